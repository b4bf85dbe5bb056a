// The order in which a process stops: readiness fails, balancers get time to notice, listeners close, calls under way
// end within their own timeout, then everything else is closed. A second signal ends the process at once.

import { setTimeout as sleep } from "node:timers/promises";
import type { Listener } from "../mcp/transports/index.js";
import type { Health } from "./health.js";

/** A terminal sends Ctrl-C to every process of a group, and parents pass it on: within this time it is one signal. */
const SAME_SIGNAL_MS = 500;
/** For what remains after the calls: the ledger, servers on stdio, the store. */
const CLOSING_MS = 10_000;
const SIGNAL_NUMBER = { SIGINT: 2, SIGTERM: 15 };

/** Resolves at the first SIGINT or SIGTERM; a second one ends the process at once. */
export function untilSignalled(): Promise<void> {
  return new Promise((resolve) => {
    let first: number | undefined;
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.on(signal, () => {
        const now = performance.now();
        if (first !== undefined && now - first > SAME_SIGNAL_MS) process.exit(128 + SIGNAL_NUMBER[signal]);
        first ??= now;
        resolve();
      });
    }
  });
}

export interface Stoppable {
  readonly health: Health;
  /** Closes the listeners, gives calls under way `callMs`, then closes everything else. */
  close(callMs?: number): Promise<void>;
}

export interface ShutdownTimes {
  /** How long calls are served after readiness failed. */
  readonly delayMs: number;
  readonly callMs: number;
}

/** Streams without an end of their own end once no new connection is accepted: their clients open them elsewhere. */
export async function closeListeners(
  listeners: readonly Listener[],
  endStreams: () => void,
  callMs: number | undefined,
): Promise<void> {
  const closed = Promise.all(listeners.map((listener) => listener.close(callMs)));
  endStreams();
  await closed;
}

export async function stopInOrder(runtime: Stoppable, { delayMs, callMs }: ShutdownTimes): Promise<void> {
  runtime.health.stopping();
  const watchdog = setTimeout(
    () => {
      process.stderr.write("portcullis: closing took too long, the process ends now\n");
      process.exit(1);
    },
    delayMs + callMs + CLOSING_MS,
  );
  watchdog.unref();
  await sleep(delayMs);
  await runtime.close(callMs);
  clearTimeout(watchdog);
}
