// Runs a started gateway until it ends, and stops it in order: readiness fails, balancers get time to notice, listeners
// close, calls in flight end within their own timeout, then everything else closes. A second signal ends it at once.

import { setTimeout as sleep } from "node:timers/promises";
import { EXIT } from "../lib/exit.js";
import { paintErr } from "../lib/print.js";
import { type Listener, listenStdio } from "../mcp/transports/index.js";
import type { Challenge } from "../policy/index.js";
import { visible } from "../telemetry/index.js";
import type { Health } from "./health.js";
import type { GatewayRuntime } from "./start.js";

/** A terminal sends Ctrl-C to every process of a group, and parents pass it on: within this time it is one signal. */
const SAME_SIGNAL_MS = 500;
/** For what remains after the calls: the ledger, servers on stdio, the store. */
const CLOSING_MS = 10_000;
const SIGNAL_NUMBER = { SIGINT: 2, SIGTERM: 15 };

/** Resolves at the first SIGINT or SIGTERM; a second one ends the process at once. */
function untilSignalled(): Promise<void> {
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

interface Stoppable {
  readonly health: Health;
  /** Closes the listeners, gives calls under way `callMs`, then closes everything else. */
  close(callMs?: number): Promise<void>;
}

export interface ShutdownTimes {
  /** How long calls are served after readiness failed. */
  readonly delayMs: number;
  readonly callMs: number;
}

/** Streams without an end of their own end once no new connection is accepted: their clients reconnect to other replicas. */
export async function closeListeners(
  listeners: readonly Listener[],
  endStreams: () => void,
  callMs: number | undefined,
): Promise<void> {
  const closed = Promise.all(listeners.map((listener) => listener.close(callMs)));
  endStreams();
  await closed;
}

async function stopInOrder(runtime: Stoppable, { delayMs, callMs }: ShutdownTimes): Promise<void> {
  runtime.health.stopping();
  const watchdog = setTimeout(
    () => {
      process.stderr.write("portcullis: shutdown took too long, the process ends now\n");
      process.exit(1);
    },
    delayMs + callMs + CLOSING_MS,
  );
  watchdog.unref();
  await sleep(delayMs);
  await runtime.close(callMs);
  clearTimeout(watchdog);
}

const CLOSE_MS = 5_000;

/** Gives back what ends the guard. */
function guardAgainstStrays(close: () => Promise<void>): () => void {
  const end = (error: unknown): void => {
    stop();
    const { message = String(error), stack = "" } = error instanceof Error ? error : {};
    const [, where] = /\n\s+at (.*)/.exec(stack) ?? [];
    const place = where === undefined ? "" : `\n  at ${where}`;
    process.stderr.write(
      `${paintErr.red("error:")} uncaught error outside of any call: ${message}${place}\n` +
        "the state of the process is unknown, so it ends; handle the error where it happens\n",
    );
    const exit = (): never => process.exit(EXIT.error);
    setTimeout(exit, CLOSE_MS).unref();
    close().then(exit, exit);
  };
  const stop = (): void => {
    process.off("uncaughtException", end);
    process.off("unhandledRejection", end);
  };
  process.on("uncaughtException", end);
  process.on("unhandledRejection", end);
  return stop;
}

/** At once when a call waits: as a line for the operator at a terminal, and as a log record everywhere else. */
function noteWaiting({ telemetry, approvalUrl }: GatewayRuntime, challenge: Challenge): void {
  const { id, tool, app, agent } = challenge;
  const url = approvalUrl(id);
  const command = `portcullis approve ${id}`;
  if (process.stderr.isTTY !== true) {
    return telemetry.log.notice("a call waits for approval", { challenge: id, tool, app, agent, url, command });
  }
  const call = `${visible(tool)} of ${visible(`${app}/${agent}`)} waits for approval`;
  const answer = `${url === undefined ? "" : `${url} or `}\`portcullis approvals open ${id}\` or \`${command}\``;
  process.stderr.write(`${paintErr.yellow(call)}: ${answer}\n`);
}

export interface StopOptions extends ShutdownTimes {
  /** Serve one client on stdin and stdout. */
  readonly stdio?: NonNullable<Parameters<typeof listenStdio>[1]> | undefined;
  /** Read the policies again on SIGHUP. */
  readonly reload: boolean;
  /** Called when the gateway serves and a signal ends it in order. */
  readonly onReady?: (() => Promise<void>) | undefined;
}

/** Runs a started gateway until its client on stdio, or a signal, ends it. */
export async function runUntilStopped(runtime: GatewayRuntime, options: StopOptions): Promise<void> {
  const { stdio, reload, onReady, callMs } = options;
  runtime.approvals.onOpen((challenge) => noteWaiting(runtime, challenge));
  if (reload) process.on("SIGHUP", () => void runtime.reloadPolicies());
  const stopped = untilSignalled();
  const unguard = guardAgainstStrays(() => runtime.close());
  await onReady?.();
  if (stdio) {
    const listener = await listenStdio(runtime.tenantRouter, stdio);
    await Promise.race([listener.closed, stopped]);
    await listener.close(callMs);
  } else await stopped;
  await stopInOrder(runtime, options);
  unguard();
}
