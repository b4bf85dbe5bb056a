// Event streams of the handshake revisions: kept open, and picked up again where they broke.

import { setTimeout as sleep } from "node:timers/promises";
import type { Exchange, ExchangeSink } from "./exchange.js";

interface FollowOptions {
  open(lastEventId: string | undefined, sink: ExchangeSink): Promise<Exchange>;
  message(text: string): void;
  /** The server has answered the first time, one way or the other. */
  opened?(): void;
  readonly from?: { readonly lastEventId: string | undefined; readonly retryMs: number | undefined };
  readonly stop: AbortSignal;
  /** Attempts in a row that brought nothing new. */
  readonly maxFailures: number;
}

const DEFAULT_RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;
/** A stream that lived this long was worth opening. */
const WORTHWHILE_MS = 10_000;

/** Resolves when the signal says so, when the server has no such stream, or when it cannot be had any more. */
export async function follow(options: FollowOptions): Promise<void> {
  const { stop, from } = options;
  let last = from?.lastEventId;
  let waitMs = from === undefined ? 0 : (from.retryMs ?? DEFAULT_RETRY_MS);
  for (let failures = 0; failures <= options.maxFailures; ) {
    await sleep(Math.min(waitMs, MAX_RETRY_MS), undefined, { signal: stop, ref: false }).catch(() => {});
    if (stop.aborted) return;
    const openedAt = performance.now();
    const exchange = await readOnce(options, last);
    options.opened?.();
    const isRefused = exchange !== undefined && (exchange.status >= 400 || !exchange.isStream) && exchange.status < 500;
    if (stop.aborted || (isRefused && exchange.status !== 0)) return;
    const moved = exchange?.lastEventId !== undefined && exchange.lastEventId !== last;
    failures = moved || performance.now() - openedAt > WORTHWHILE_MS ? 0 : failures + 1;
    last = exchange?.lastEventId ?? last;
    waitMs = exchange?.retryMs ?? Math.max(waitMs, DEFAULT_RETRY_MS) * (failures > 1 ? 2 : 1);
  }
}

/** Opens the stream and reads it to its end; undefined when it could not be opened. */
function readOnce(
  { open, message, opened, stop }: FollowOptions,
  last: string | undefined,
): Promise<Exchange | undefined> {
  return new Promise((resolve) => {
    const ended = (exchange: Exchange | undefined): void => {
      stop.removeEventListener("abort", onStop);
      resolve(exchange);
    };
    let running: Exchange | undefined;
    const onStop = (): void => {
      running?.abort();
      ended(running);
    };
    stop.addEventListener("abort", onStop, { once: true });
    open(last, { head: opened ?? (() => {}), message, done: ended }).then(
      (exchange) => {
        running = exchange;
        if (stop.aborted) onStop();
      },
      () => ended(undefined),
    );
  });
}
