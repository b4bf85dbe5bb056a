// A connection of its own that hears of changes at once, and comes back by itself when it breaks.

import pg from "pg";
import { sleep } from "../retry.js";

const CHANNEL = "portcullis_changes";
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;

/** Resolves when it listens, or cannot yet: polling covers for it until it does. */
export async function listen(
  settings: pg.ClientConfig,
  heard: () => void,
  lost: () => void,
): Promise<() => Promise<void>> {
  let client: pg.Client | undefined;
  let stopped = false;

  const connect = async (): Promise<void> => {
    const next = new pg.Client(settings);
    client = next;
    let ended = false;
    const onEnd = (): void => {
      if (ended) return;
      ended = true;
      void next.end().catch(() => {});
      if (!stopped && client === next) void again();
    };
    next.on("error", onEnd);
    next.on("end", onEnd);
    next.on("notification", heard);
    try {
      await next.connect();
      await next.query(`LISTEN ${CHANNEL}`);
    } catch (error) {
      ended = true;
      await next.end().catch(() => {});
      throw error;
    }
  };

  const again = async (): Promise<void> => {
    for (let pause = FIRST_PAUSE_MS; !stopped; pause = Math.min(LONGEST_PAUSE_MS, pause * 2)) {
      await sleep(pause * (0.5 + Math.random()));
      if (stopped) return;
      try {
        await connect();
        return lost();
      } catch {
        // Not yet back.
      }
    }
  };

  await connect().catch(() => void again());
  return async () => {
    stopped = true;
    await client?.end().catch(() => {});
  };
}
