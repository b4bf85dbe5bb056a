// A tool of somebody's module may fail outside of any call, in a timer or a promise nobody waits for. What it left
// behind cannot be known, so the process ends; but in order, with every record written, and saying whose fault it was.

import { EXIT } from "../lib/exit.js";
import { paintErr } from "../lib/print.js";

const CLOSE_MS = 5_000;

/** Gives back what ends the guard. */
export function guardAgainstStrays(close: () => Promise<void>): () => void {
  const end = (error: unknown): void => {
    stop();
    const { message = String(error), stack = "" } = error instanceof Error ? error : {};
    const [, where] = /\n\s+at (.*)/.exec(stack) ?? [];
    const place = where === undefined ? "" : `\n  at ${where}`;
    process.stderr.write(
      `${paintErr.red("error:")} something failed outside of any call: ${message}${place}\n` +
        "no call can be answered safely any more, so this process ends; handle the failure where it happens\n",
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
