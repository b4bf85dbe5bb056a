// What every screen shares: who is signed in, what waits, the connection, messages and the theme.

import { effect, signal } from "@preact/signals";
import type { AdminEvent, SessionFacts } from "../../src/admin/operations.js";
import type { OperationName } from "../../src/admin/routes.js";
import { type ApiError, call, hasPageKey, keepPageKey, whenSignedOut } from "./api/client.js";
import { type ConnectionState, follow } from "./api/events.js";
import { BASE } from "./router.js";

/** Undefined until it is known whether the browser is signed in. */
export const session = signal<SessionFacts | null | undefined>(undefined);
export const signInProblem = signal("");
export const connection = signal<ConnectionState>("connecting");
/** Approval requests that wait. */
export const waiting = signal(0);
/** The difference between the gateway's clock and this one, for everything that counts down. */
export const clockOffsetMs = signal(0);

export function can(operation: OperationName): boolean {
  return session.value?.operations.includes(operation) ?? false;
}

// ---- sign-in ----------------------------------------------------------------------------------------------------------

export async function signIn(by: { code: string } | { credential: string }): Promise<void> {
  const { page_key, session: facts } = await call("signIn", by);
  keepPageKey(page_key);
  signInProblem.value = "";
  session.value = facts;
}

export async function signOut(everywhere: boolean): Promise<void> {
  await call("signOut", everywhere ? { everywhere } : {});
  endSession("");
}

function endSession(problem: string): void {
  keepPageKey(undefined);
  signInProblem.value = problem;
  session.value = null;
}

/** Signs in with the code of a one-time link, or continues the session of this browser. */
export async function start(): Promise<void> {
  whenSignedOut(() => {
    if (session.value) endSession("The session has ended. Sign in again.");
  });
  const code = location.hash.slice(1);
  if (code !== "") {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      return await signIn({ code });
    } catch (error) {
      signInProblem.value = (error as ApiError).message;
    }
  }
  if (!hasPageKey()) {
    session.value = null;
    return;
  }
  try {
    session.value = await call("getSession", {});
  } catch (error) {
    if ((error as ApiError).status === 401) keepPageKey(undefined);
    else signInProblem.value = (error as ApiError).message;
    session.value = null;
  }
}

// ---- events -----------------------------------------------------------------------------------------------------------

type Listener = (event: AdminEvent) => void;
const listeners = new Set<Listener>();

/** Returns a function that ends the subscription. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Follows events while someone is signed in. */
effect(() => {
  if (!session.value) return;
  return follow({
    onEvent: (event) => {
      if (event.type === "approvals") waiting.value = event.pending;
      if (event.type === "reset" || event.type === "hello") void countWaiting();
      for (const listener of listeners) listener(event);
    },
    onState: (state) => {
      connection.value = state;
      if (state === "ended") endSession("The session has ended. Sign in again.");
    },
  });
});

async function countWaiting(): Promise<void> {
  try {
    waiting.value = (await call("listApprovals", { state: "pending" })).approvals.length;
  } catch {
    // The next event counts again.
  }
}

const MAX_COUNT = 9;

/** The number that waits stands in the title and on the icon, for tabs in the background. */
export const titleOf = signal("");
effect(() => {
  const count = session.value ? waiting.value : 0;
  document.title = `${count > 0 ? `(${count}) ` : ""}${titleOf.value ? `${titleOf.value} · ` : ""}Portcullis`;
  const name = count === 0 ? "icon.svg" : `icon-${Math.min(count, MAX_COUNT + 1)}.svg`;
  document.querySelector('link[rel="icon"]')?.setAttribute("href", BASE + name);
});

// ---- messages ---------------------------------------------------------------------------------------------------------

interface Message {
  readonly kind: "good" | "bad";
  readonly text: string;
}

/** The outcome of the last action; assistive technology reads it. */
export const message = signal<Message | undefined>(undefined);
const MESSAGE_MS = 8_000;
let timer: ReturnType<typeof setTimeout> | undefined;

export function notify(kind: Message["kind"], text: string): void {
  message.value = { kind, text };
  clearTimeout(timer);
  timer = setTimeout(() => (message.value = undefined), MESSAGE_MS);
}

/** Runs an action and shows why it failed; returns whether it succeeded. */
export async function attempt(run: () => Promise<void>): Promise<boolean> {
  try {
    await run();
    return true;
  } catch (error) {
    const { message: text, suggestions = [] } = error as ApiError;
    notify("bad", [text, ...suggestions].join(". "));
    return false;
  }
}

// ---- theme ------------------------------------------------------------------------------------------------------------

export type Theme = "system" | "light" | "dark";
const THEME = "theme";
const stored = localStorage.getItem(THEME);
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");
effect(() => {
  document.documentElement.dataset.theme = theme.value;
  if (theme.value === "system") localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, theme.value);
});
