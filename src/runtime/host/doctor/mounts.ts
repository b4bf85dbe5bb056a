// File systems under the policy's folders: what is remote, and what is mounted inside them.

import { isNetworkType, isWithin, mountOf, type Policy, readMounts } from "../../../host/index.js";
import type { Finding } from "../../../lib/finding.js";

const MAX_NAMED = 5;

export function mounts({ roots, zones }: Policy): Finding {
  const check = "file systems";
  if (process.platform !== "linux") return { check, ok: true, detail: "looked at when a file is opened" };
  const table = readMounts();
  const places = [...roots, ...zones].map((place) => place.path);
  const types = [...new Set(places.map((path) => mountOf(path, table)?.type ?? "unknown"))];
  const remote = types.filter(isNetworkType);
  if (remote.length > 0) {
    const hint = "a hung server can hold up a call; denyNetworkFS: true refuses such folders";
    return { check, ok: true, detail: `${remote.join(", ")}: data from elsewhere`, hint };
  }
  const inside = table.map((mount) => mount.path).filter((path) => isInside(path, places));
  const detail = types.join(", ") || "nothing to look at";
  if (inside.length === 0) return { check, ok: true, detail };
  const named = inside.slice(0, MAX_NAMED).join(", ");
  return {
    check,
    ok: true,
    detail: `${detail}; other file systems are mounted inside: ${named}`,
    hint: "they stay closed to the agent; name them in allowedRoots if they are meant",
  };
}

function isInside(path: string, places: readonly string[]): boolean {
  return places.some((place) => path !== place && isWithin(path, place)) && !places.includes(path);
}
