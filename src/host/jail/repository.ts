// The insides of a repository: what is written there (hooks, settings, the file that says where the repository lies) is run by
// the developer's own tools later, outside any sandbox, and no diff shows it.

import { type Denial, denial, quote } from "../denial.js";
import type { Zone } from "./target.js";

/** As git itself guards them: in any case, by the short name of FAT and NTFS, by a stream's name. */
const INTERNAL = /^(\.git|\.hg|git~[0-9]+|hg~[0-9]+)(::?\$.*)?$/i;

/** Characters that HFS+ does not see in a name. */
const IGNORED = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/gu;

function isInternal(name: string): boolean {
  return INTERNAL.test(name.replace(IGNORED, "").replace(/[. ]+$/, ""));
}

/** INVARIANT: `real` lies in the zone. A zone that itself lies inside a repository was named by its operator. */
export function checkRepository(zone: Zone, real: string, path: string, field: string): Denial | undefined {
  if (zone.repositoryInternals) return undefined;
  const name = real.slice(zone.path.length).split(/[\\/]/).find(isInternal);
  if (name === undefined) return undefined;
  const reason = `${field} ${quote(path)} leads into ${quote(name)}: what is written there, the tools of the repository's owner would run`;
  return denial("POLICY_DENY", "writeRules.repositoryInternals", reason, {
    field,
    suggestions: ["write beside it", "ask the operator to set repositoryInternals: true for this write zone"],
  });
}
