// What this gateway calls itself among others on the same store. A ledger belongs to one name for good, so the name is
// chosen once and kept beside it.

import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";

const NAME = /^[A-Za-z0-9._-]{1,200}$/;

/** `isAmongOthers`: the store is shared, so a name that others choose too will not do. */
export function replicaName(stateDir: string, isAmongOthers: boolean): string {
  const file = join(stateDir, "replica");
  const known = existsSync(file) ? readFileSync(file, "utf8").trim() : "";
  if (NAME.test(known)) return known;
  const isFirst = !existsSync(join(stateDir, "ledger"));
  const host = hostname().replace(/[^A-Za-z0-9.-]+/g, "-");
  const name = isAmongOthers && isFirst ? `${host}-${randomBytes(4).toString("hex")}` : "gateway";
  writeFileSync(file, `${name}\n`, { mode: 0o600 });
  return name;
}
