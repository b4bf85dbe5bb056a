// Event streams of the handshake revisions on HTTP: the one a client opens to listen, and those it picks up again
// with `Last-Event-ID` when the server let go of the connection before the answer came.

import { setTimeout as sleep } from "node:timers/promises";
import type { ClientTransport, Sent } from "../transports/index.js";

export interface ClientStreamOptions {
  transport: ClientTransport;
  /** Asked before every attempt, because the session may have been renewed. */
  headers: () => Promise<Record<string, string>>;
  signal: AbortSignal;
  /** Attempts in a row that brought nothing. */
  maxFailures: number;
  /** Called when the server has answered the first attempt, whatever it said. */
  onAnswered?: () => void;
}

const DEFAULT_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;
/** A stream that lived this long was worth opening, even if nothing came. */
const WORTHWHILE_MS = 10_000;

/** Undefined when the server gave no event id to go on from. */
export function resumeStream(from: Sent, options: ClientStreamOptions): Promise<void> | undefined {
  if (from.lastEventId === undefined) return undefined;
  return follow(options, from.lastEventId, from.retryMs ?? DEFAULT_RETRY_MS);
}

/** Listens until the signal, or until the server says that it has no such stream. */
export function listenStream(options: ClientStreamOptions): Promise<void> {
  return follow(options, undefined, 0);
}

async function follow(options: ClientStreamOptions, lastEventId: string | undefined, retryMs: number): Promise<void> {
  const { signal, transport } = options;
  let last = lastEventId;
  let waitMs = retryMs;
  for (let failures = 0; failures <= options.maxFailures; ) {
    await pause(Math.min(waitMs, MAX_RETRY_MS), signal);
    if (signal.aborted) return;
    const openedAt = performance.now();
    const sent = await open(transport, await options.headers(), last, options);
    if (signal.aborted || refused(sent)) return;
    const moved = sent?.lastEventId !== undefined && sent.lastEventId !== last;
    failures = moved || performance.now() - openedAt > WORTHWHILE_MS ? 0 : failures + 1;
    last = sent?.lastEventId ?? last;
    waitMs = sent?.retryMs ?? Math.max(waitMs, DEFAULT_RETRY_MS) * (failures > 1 ? 2 : 1);
  }
}

/** Opens the stream and reads it to its end; undefined when the server could not be reached. */
async function open(
  transport: ClientTransport,
  headers: Record<string, string>,
  last: string | undefined,
  { signal, onAnswered }: ClientStreamOptions,
): Promise<Sent | undefined> {
  try {
    const sent = await transport.send("", {
      verb: "GET",
      headers: { ...headers, ...(last === undefined ? {} : { "last-event-id": last }) },
      signal,
    });
    onAnswered?.();
    // A stream that breaks off is picked up again by the loop, like one that ends.
    await sent.done.catch(() => {});
    return sent;
  } catch {
    onAnswered?.();
    return undefined;
  }
}

/** A server that says no says it for good; one that is in trouble may be back. */
function refused(sent: Sent | undefined): boolean {
  return sent?.status !== undefined && sent.status >= 400 && sent.status < 500;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => {});
}
