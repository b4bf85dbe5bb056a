// What the filter has to close because nothing else does, and what stays open or is taken away all the same. The latter is said in
// every answer, and by `doctor`.

import type { Confinement } from "../confinement.js";
import { SCOPES } from "./landlock.js";
import type { FilterRules } from "./seccomp.js";
import type { Entered } from "./view.js";

const TRUNCATION = 3;

interface InForce {
  readonly hasView: boolean;
  /** Its version; 0 without. */
  readonly landlock: number;
  readonly ownsFilesOutside: boolean;
  readonly hasPidNamespace: boolean;
}

export function filterRules({ network, mode }: Confinement, inForce: InForce): FilterRules {
  const { hasView, landlock, ownsFilesOutside, hasPidNamespace } = inForce;
  return {
    network,
    hasOwnSocketNames: hasView && landlock >= SCOPES,
    // Most builds need it; `preferred` is for running with what there is.
    changesMetadataByName: hasView || !ownsFilesOutside || mode === "preferred",
    holdsSignals: hasPidNamespace || landlock >= SCOPES,
    guardsTruncation: hasView || landlock >= TRUNCATION,
  };
}

export function gapsOfView({ hasProc, temporary }: Entered): string[] {
  const noTmp = temporary.hasTmp ? [] : ["the policy has a file in /tmp, or all of it: commands have TMPDIR instead"];
  return hasProc ? noTmp : ["there is no /proc for commands, and so no /dev/stdin, /dev/stdout or /dev/fd", ...noTmp];
}

export function gapsOfLandlock(filter: FilterRules, seccomp: boolean, ownsFilesOutside: boolean): string[] {
  return [
    "names, sizes and times of files outside can be asked for",
    "there is no /tmp, /dev/shm or /proc for commands, only TMPDIR and HOME",
    ...(ownsFilesOutside ? [metadataGap(filter, seccomp)] : []),
    ...(filter.holdsSignals ? [] : ["signals reach the other processes of the same user, all but SIGUSR1"]),
  ];
}

function metadataGap({ changesMetadataByName }: FilterRules, seccomp: boolean): string {
  return changesMetadataByName || !seccomp
    ? "mode, owner and times of files outside can be changed"
    : "mode, owner and times cannot be changed by name, not even in the zones, and can by descriptor wherever a file can be read";
}
