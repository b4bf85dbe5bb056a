// Who else could change the rules.

import { statSync } from "node:fs";
import { dirname } from "node:path";
import { CliError, EXIT } from "../../../lib/exit.js";

export interface Openness {
  readonly detail: string;
  readonly remedy: string;
  /** Anyone it is open to can rewrite the file as it stands; the others are a matter of whom one trusts. */
  readonly isWritable: boolean;
}

const WRITABLE_BY_OTHERS = 0o022;
const STICKY = 0o1000;

/** The worst of it, or nothing. Left to access lists on Windows. */
export function opennessOf(config: string): Openness | undefined {
  if (process.platform === "win32") return undefined;
  const own = process.getuid?.() ?? 0;
  const { mode, uid } = statSync(config);
  if ((mode & WRITABLE_BY_OTHERS) !== 0) {
    return { detail: `${config} can be written by others`, remedy: `chmod 600 ${config}`, isWritable: true };
  }
  if (uid !== own && uid !== 0) {
    const detail = `${config} belongs to user ${uid}, who can change the rules`;
    return { detail, remedy: `chown ${own} ${config}`, isWritable: false };
  }
  const folder = dirname(config);
  const above = statSync(folder).mode;
  if ((above & WRITABLE_BY_OTHERS) !== 0 && (above & STICKY) === 0) {
    return { detail: `others can put files into ${folder}`, remedy: `chmod go-w ${folder}`, isWritable: false };
  }
  return undefined;
}

/** Rules that others can rewrite are theirs, not the operator's. */
export function requireClosed(config: string): void {
  const open = opennessOf(config);
  if (open?.isWritable === true) throw new CliError(open.detail, EXIT.invalidPolicy, open.remedy);
}
