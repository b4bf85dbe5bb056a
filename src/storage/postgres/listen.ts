// A connection of its own that is notified of changes at once, and reconnects by itself when it breaks. One loop owns it:
// at every moment there is at most one connection, and attempts are at least a pause apart, whatever closes them.

import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { sleep } from "../retry.js";

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
