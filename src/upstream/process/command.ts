// Finding the program ourselves: behind a launcher a missing one would look like a server that died.

import { accessSync, constants, statSync } from "node:fs";
import { delimiter, isAbsolute, join, resolve, sep } from "node:path";

/** The path to start, or undefined when there is none. On Windows the system's own search knows better. */
export function findCommand(command: string, cwd: string | undefined, path: string | undefined): string | undefined {
  if (process.platform === "win32") return command;
  if (command.includes(sep)) return runnable(isAbsolute(command) ? command : resolve(cwd ?? ".", command));
  for (const folder of (path ?? "").split(delimiter)) {
    if (folder === "") continue;
    const found = runnable(join(folder, command));
    if (found !== undefined) return found;
  }
  return undefined;
}

function runnable(path: string): string | undefined {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile() ? path : undefined;
  } catch {
    return undefined;
  }
}
