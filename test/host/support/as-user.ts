// A host run by an ordinary user: by the user who runs the tests, or, when that is root, by an unused one.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { compiled } from "./compiled.js";
import { isRoot } from "./machine.js";

const run = promisify(execFile);
/** An id without an account, and not the sandbox's own. */
export const UNPRIVILEGED = 64_123;

/** As container engines leave it: parts are hidden, and no user namespace gets a whole one. Needs root. */
const COVERED_PROC = [
  "unshare",
  "--mount",
  "sh",
  "-c",
  `mount --bind /dev/null /proc/interrupts && exec setpriv --reuid ${UNPRIVILEGED} --regid ${UNPRIVILEGED} --clear-groups "$@"`,
  "sh",
];

/** `body` is the body of an async function that is given `makeWorld`; what it returns comes back as JSON. */
export async function asOrdinaryUser<T>(body: string, where: "here" | "covered /proc" = "here"): Promise<T> {
  const script = `
    import { makeWorld } from ${JSON.stringify(compiled("test/host/support/world.js"))};
    const result = await (async () => {${body}})();
    process.stdout.write(JSON.stringify(result));`;
  const node = [process.execPath, "--input-type=module", "-e", script];
  const [file = "", ...args] = [...(where === "here" ? [] : COVERED_PROC), ...node];
  const { stdout } = await run(file, args, {
    ...(isRoot && where === "here" ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {}),
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  });
  return JSON.parse(stdout) as T;
}
