// The frame around the screens: navigation, who is signed in, the state of the connection and the last outcome.

import { useEffect, useRef, useState } from "preact/hooks";
import { address, followLinks, hrefOf, navigate } from "./router.js";
import { SignIn } from "./screens/sign-in.js";
import { SCREENS, type Screen } from "./screens.js";
import { attempt, can, connection, message, session, signOut, type Theme, theme, titleOf, waiting } from "./state.js";
import { Icon, type IconName } from "./ui/icon.js";
import { useKeys } from "./ui/load.js";
import { Button, Dialog, Empty, Loading } from "./ui/parts.js";
import { Text } from "./ui/text.js";

const THEMES: readonly (readonly [Theme, string, IconName])[] = [
  ["system", "Like the system", "system"],
  ["light", "Light", "sun"],
  ["dark", "Dark", "moon"],
];
/** On a phone the others are behind “More”. */
const TABS = 3;

export function App() {
  if (session.value === undefined) return <Loading />;
  if (session.value === null) return <SignIn />;
  return <Frame />;
}

function Frame() {
  const screens = SCREENS.filter(({ operations }) => can(operations[0]));
  const screen = screens.find(({ path }) => path === address.value.screen);
  const [isHelpOpen, setHelp] = useState(false);
  const [isMoreOpen, setMore] = useState(false);
  const main = useRef<HTMLElement>(null);
  const shown = useRef(screen?.path);
  useEffect(() => {
    titleOf.value = screen?.title ?? "";
    setMore(false);
    if (!screen && address.value.screen === "" && screens[0]) {
      // What waits comes first.
      const first = (waiting.value > 0 && screens.find(({ path }) => path === "approvals")) || screens[0];
      navigate(hrefOf(first.path), { replace: true });
    }
    if (shown.current !== screen?.path) main.current?.querySelector<HTMLElement>("h1")?.focus();
    shown.current = screen?.path;
  }, [screen?.path, address.value.screen]);
  useKeys({ "?": () => setHelp(true) });
  return (
    <div class="frame" onClick={followLinks}>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <nav class="side" aria-label="Screens">
        <a class="brand" href={hrefOf("")}>
          <Gate />
          <span>Portcullis</span>
        </a>
        <ul>
          {screens.map((each, i) => (
            <li key={each.path} class={i >= TABS ? "beyond" : undefined}>
              <Entry screen={each} isCurrent={each === screen} />
            </li>
          ))}
          <li class="more-entry">
            <button type="button" class="entry" aria-expanded={isMoreOpen} onClick={() => setMore(true)}>
              <Icon name="more" />
              <span>More</span>
            </button>
          </li>
        </ul>
        <Account onHelp={() => setHelp(true)} />
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        <Connection />
        {screen ? (
          <screen.view key={screen.path} />
        ) : (
          <Empty title="There is nothing at this address">
            {address.value.screen !== "" && <a href={hrefOf("")}>Go to the first screen</a>}
          </Empty>
        )}
      </main>
      <div class="messages" aria-live="polite" role="status">
        {message.value && (
          <div class={`message ${message.value.kind}`}>
            <Icon name={message.value.kind === "good" ? "check" : "warning"} />
            <p>
              <Text>{message.value.text}</Text>
            </p>
            <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => (message.value = undefined)}>
              <Icon name="close" />
            </button>
          </div>
        )}
      </div>
      {isMoreOpen && (
        <Dialog title="Screens" onClose={() => setMore(false)}>
          <ul class="more-list" onClick={followLinks}>
            {screens.slice(TABS).map((each) => (
              <li key={each.path} onClick={() => setMore(false)}>
                <Entry screen={each} isCurrent={each === screen} />
              </li>
            ))}
          </ul>
          <Account onHelp={() => setHelp(true)} />
        </Dialog>
      )}
      {isHelpOpen && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

function Entry({ screen, isCurrent }: { screen: Screen; isCurrent: boolean }) {
  const count = screen.path === "approvals" ? waiting.value : 0;
  return (
    <a class="entry" href={hrefOf(screen.path)} aria-current={isCurrent ? "page" : undefined}>
      <Icon name={screen.icon} />
      <span>{screen.title}</span>
      {count > 0 && (
        <span class="count">
          {count}
          <span class="hidden"> waiting</span>
        </span>
      )}
    </a>
  );
}

function Account({ onHelp }: { onHelp: () => void }) {
  const [isOpen, open] = useState(false);
  const facts = session.value;
  if (!facts) return null;
  const [, word, icon] = THEMES.find(([name]) => name === theme.value) ?? (THEMES[0] as (typeof THEMES)[number]);
  const next = (): void => {
    const at = THEMES.findIndex(([name]) => name === theme.value);
    theme.value = (THEMES[(at + 1) % THEMES.length] as (typeof THEMES)[number])[0];
  };
  return (
    <div class="account">
      <div class="account-buttons">
        <button type="button" class="icon-button" aria-label={`Theme: ${word}`} title={`Theme: ${word}`} onClick={next}>
          <Icon name={icon} />
        </button>
        <button type="button" class="icon-button" aria-label="Keyboard" title="Keyboard (?)" onClick={onHelp}>
          <Icon name="keyboard" />
        </button>
        <button type="button" class="icon-button" aria-label="Sign out" title="Sign out" onClick={() => open(true)}>
          <Icon name="exit" />
        </button>
      </div>
      <p class="who">
        <strong>
          <Text>{facts.name}</Text>
        </strong>
        <span>
          {facts.roles.join(", ")}
          {facts.app !== undefined && (
            <>
              {" of "}
              <Text>{facts.app}</Text>
            </>
          )}
        </span>
      </p>
      {isOpen && (
        <Dialog title="Sign out" onClose={() => open(false)}>
          <p>End the session of this browser, or every session of this name in every browser.</p>
          <div class="dialog-actions">
            <Button onClick={() => attempt(() => signOut(true))}>Everywhere</Button>
            <Button kind="primary" onClick={() => attempt(() => signOut(false))}>
              This browser
            </Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

function Connection() {
  if (connection.value !== "waiting") return null;
  return (
    <div class="banner" role="status">
      <Icon name="warning" />
      The connection to the gateway is interrupted. What is shown may be old; it continues by itself.
    </div>
  );
}

const KEYS: readonly (readonly [string, string])[] = [
  ["j / k", "next or previous approval request"],
  ["a", "go to “Approve once”; Enter approves"],
  ["d", "deny: write the reason, Enter denies"],
  ["x", "mark the request for “Approve these”"],
  ["↑ ↓ PgUp PgDn", "move in a list; Enter opens"],
  ["Esc", "close what is open"],
  ["?", "this list"],
];

function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="soft">Version {session.value?.version}</p>
    </Dialog>
  );
}

export function Gate() {
  return (
    <svg class="gate" viewBox="0 0 64 64" aria-hidden="true">
      <rect width="64" height="64" rx="14" />
      <path d="M14 54V28a18 18 0 0 1 36 0v26M24 20v34M32 12v42M40 20v34M14 32h36M14 44h36" />
    </svg>
  );
}
