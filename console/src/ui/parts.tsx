// The parts that screens are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { visible } from "../../../src/lib/visible.js";
import type { ApiError } from "../api/client.js";
import { notify } from "../state.js";
import { Icon, type IconName } from "./icon.js";
import { Text } from "./text.js";

interface ButtonProps {
  children: ComponentChildren;
  onClick?: () => unknown;
  kind?: "primary" | "danger" | "plain" | "quiet";
  icon?: IconName;
  disabled?: boolean;
  type?: "button" | "submit";
  label?: string;
  id?: string;
  shortcut?: string;
  pressed?: boolean;
}

/** Disabled while what it started is under way, so that nothing is sent twice. */
export function Button(props: ButtonProps) {
  const {
    children,
    onClick,
    kind = "plain",
    icon,
    disabled = false,
    type = "button",
    label,
    id,
    shortcut,
    pressed,
  } = props;
  const [isBusy, setBusy] = useState(false);
  const run = async (): Promise<void> => {
    setBusy(true);
    try {
      await onClick?.();
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type={type}
      id={id}
      class={`button ${kind}`}
      disabled={disabled || isBusy}
      aria-label={label}
      aria-pressed={pressed}
      aria-keyshortcuts={shortcut}
      onClick={onClick ? () => void run() : undefined}
    >
      {icon && <Icon name={icon} />}
      <span>{children}</span>
      {shortcut && <kbd aria-hidden="true">{shortcut}</kbd>}
    </button>
  );
}

type Tone = "good" | "bad" | "wait" | "info" | "neutral";

export function Pill({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`pill ${tone}`}>{children}</span>;
}

const EFFECTS = {
  permit: ["good", "Permitted"],
  deny: ["bad", "Denied"],
  challenge: ["wait", "Approval needed"],
} as const;

export function Effect({ effect, mode }: { effect: keyof typeof EFFECTS; mode?: string }) {
  const [tone, word] = EFFECTS[effect];
  return <Pill tone={tone}>{mode === "observe" ? `${word} (observed)` : word}</Pill>;
}

export function Header({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <header class="screen-header">
      <h1 tabIndex={-1}>{title}</h1>
      {children && <div class="screen-actions">{children}</div>}
    </header>
  );
}

interface CardProps {
  title?: ComponentChildren;
  children: ComponentChildren;
  actions?: ComponentChildren;
  flush?: boolean;
}

export function Card({ title, children, actions, flush = false }: CardProps) {
  const id = useId();
  return (
    <section class={`card${flush ? " flush" : ""}`} {...(title ? { "aria-labelledby": id } : {})}>
      {(title || actions) && (
        <div class="card-head">
          {title && <h2 id={id}>{title}</h2>}
          {actions && <div class="card-actions">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

export function Problem({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="problem" role="alert">
      <Icon name="warning" />
      <div>
        <p>
          <Text>{error.message}</Text>
        </p>
        {error.suggestions.map((suggestion) => (
          <p key={suggestion} class="soft">
            <Text>{suggestion}</Text>
          </p>
        ))}
        {retry && <Button onClick={retry}>Try again</Button>}
      </div>
    </div>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      Loading …
    </p>
  );
}

/** What was loaded, or why not. */
export function Show<T>({
  of: { data, error, reload },
  children,
}: {
  of: { data: T | undefined; error: ApiError | undefined; reload(): void };
  children: (data: T) => ComponentChildren;
}) {
  if (error) return <Problem error={error} retry={reload} />;
  if (data === undefined) return <Loading />;
  return <>{children(data)}</>;
}

export function Facts({ items }: { items: readonly (readonly [string, ComponentChildren] | false | undefined)[] }) {
  return (
    <dl class="facts">
      {items.map(
        (item) =>
          item && (
            <div key={item[0]}>
              <dt>{item[0]}</dt>
              <dd>{item[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  hint?: string;
  type?: "text" | "password" | "number" | "datetime-local";
  rows?: number;
  required?: boolean;
  autofocus?: boolean;
  id?: string;
  list?: readonly string[];
  placeholder?: string;
  maxLength?: number;
  mono?: boolean;
}

export function Field(props: FieldProps) {
  const {
    label,
    value,
    onInput,
    hint,
    type = "text",
    rows,
    required,
    autofocus,
    list,
    placeholder,
    maxLength,
    mono,
  } = props;
  const own = useId();
  const id = props.id ?? own;
  const common = {
    id,
    value,
    required,
    placeholder,
    maxLength,
    class: mono ? "mono" : undefined,
    "aria-describedby": hint ? `${id}-hint` : undefined,
    autocomplete: "off" as const,
    spellcheck: false,
    autoFocus: autofocus,
    onInput: (event: { currentTarget: { value: string } }) => onInput(event.currentTarget.value),
  };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {rows === undefined ? (
        <input type={type as "text"} list={list ? `${id}-list` : undefined} {...common} />
      ) : (
        <textarea rows={rows} {...common} />
      )}
      {list && (
        <datalist id={`${id}-list`}>
          {list.map((option) => (
            <option key={option} value={option} />
          ))}
        </datalist>
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChange: (value: string) => void;
}

export function Select({ label, value, options, onChange }: SelectProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([key, text]) => (
          <option key={key} value={key} selected={key === value}>
            {visible(text)}
          </option>
        ))}
      </select>
    </div>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

/** A modal dialog: the focus stays inside and returns to where it was. */
export function Dialog({ title, onClose, children, wide = false }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    ref.current?.showModal();
    ref.current?.querySelector<HTMLElement>("[autofocus], input, textarea, select")?.focus();
    return () => before?.isConnected && before.focus();
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "wide" : undefined}
      aria-labelledby={id}
      onClose={onClose}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {children}
    </dialog>
  );
}

/** A form that sends nothing by itself: submitting calls the function. */
export function Form({ onSubmit, children }: { onSubmit: () => unknown; children: ComponentChildren }) {
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void onSubmit();
      }}
    >
      {children}
    </form>
  );
}

export function Copy({ text, label }: { text: string; label: string }) {
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      notify("good", `${label}: copied`);
    } catch {
      notify("bad", "the browser does not allow copying here: select the text instead");
    }
  };
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={`Copy ${label}`}
      title={`Copy ${label}`}
      onClick={() => void copy()}
    >
      <Icon name="copy" />
    </button>
  );
}

/** Saves a text as a file, without a request. */
export function download(name: string, text: string, type = "application/json"): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}

export function shortHash(hash: string): string {
  return hash.length > 16 ? `${hash.slice(0, 12)}…` : hash;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}
