// Which failures of PostgreSQL are transient and how the others are reported; and the connection that listens for changes.

import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { StorageError, sleep } from "../sql.js";

interface Failure {
  readonly code?: string;
  readonly message?: string;
}

/** The server ended a transaction whose client was silent for too long, and its connection. */
const STALLED = "25P03";

/** The server is starting, stopping, full, or had to choose a victim. */
const PASSING = new Set([STALLED, "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03", "25006"]);

/** The connection is lost, or could not be made. */
const OF_THE_LINE = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EAI_AGAIN",
  "ENOENT",
]);

export function isPassing(error: unknown): boolean {
  const { code, message = "" } = error as Failure;
  if (code !== undefined && (PASSING.has(code) || code.startsWith("08") || OF_THE_LINE.has(code))) return true;
  return /connection terminated|timeout exceeded when trying to connect|query read timeout|not queryable/i.test(
    message,
  );
}

/** The connection cannot be used any more. */
export function isBroken(error: unknown): boolean {
  const { code } = error as Failure;
  // A code of five characters is the server's own answer: the connection still works, unless the server is shutting down.
  if (code === undefined || !/^[0-9A-Z]{5}$/.test(code)) return true;
  return code === STALLED || code.startsWith("57P") || code.startsWith("08");
}

export function explained(error: unknown): unknown {
  if (error instanceof StorageError) return error;
  const { code, message = "unknown" } = error as Failure;
  if (code === undefined) return error;
  if (code.startsWith("23")) return new StorageError("STORAGE_INVALID", `the store refuses this: ${message}`, error);
  return new StorageError("STORAGE_UNAVAILABLE", `PostgreSQL failed: ${message} (${code})`, error);
}

const CHANNEL = "portcullis_changes";
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;
/** A connection that lasted this long was sound: the next attempt follows soon. */
const SOUND_MS = 5_000;
const END_MS = 500;

/** Resolves when it listens, or when the first attempt failed: polling covers for it until one succeeds. */
export async function listen(
  settings: pg.ClientConfig,
  onNotification: () => void,
  onReconnect: () => void,
): Promise<() => Promise<void>> {
  const stop = new AbortController();
  const stopped = new Promise<void>((resolve) => stop.signal.addEventListener("abort", () => resolve()));

  /** Listens until the connection ends. Never throws. */
  const once = async (onListening: () => void): Promise<void> => {
    const client = new pg.Client(settings);
    const ended = new Promise<void>((resolve) => {
      client.on("error", () => resolve());
      client.on("end", () => resolve());
    });
    client.on("notification", onNotification);
    try {
      await Promise.race([client.connect(), ended.then(() => Promise.reject(new Error("closed"))), stopped]);
      if (stop.signal.aborted) return;
      await client.query(`LISTEN ${CHANNEL}`);
      onListening();
      await Promise.race([ended, stopped]);
    } catch {
      // The loop tries again.
    } finally {
      // The peer of a connection that hangs does not confirm its end.
      await Promise.race([client.end().catch(() => {}), wait(END_MS, undefined, { ref: false })]);
    }
  };

  let attempted = (): void => {};
  const firstAttempt = new Promise<void>((resolve) => {
    attempted = resolve;
  });
  const loop = async (): Promise<void> => {
    let isFirst = true;
    for (let pause = FIRST_PAUSE_MS; !stop.signal.aborted; ) {
      const began = performance.now();
      await once(() => {
        if (!isFirst) onReconnect();
        attempted();
      });
      attempted();
      isFirst = false;
      pause = performance.now() - began > SOUND_MS ? FIRST_PAUSE_MS : Math.min(LONGEST_PAUSE_MS, pause * 2);
      if (!stop.signal.aborted) await Promise.race([sleep(pause * (0.5 + Math.random())), stopped]);
    }
  };
  const running = loop();
  await firstAttempt;
  return async () => {
    stop.abort();
    await running;
  };
}
