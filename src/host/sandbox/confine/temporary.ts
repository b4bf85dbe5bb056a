// Temporary folders of a command's own, in memory, at the places where programs look for them: /tmp and /dev/shm.

import { mkdirSync } from "node:fs";
import { isWithin } from "../../paths/mounts.js";
import { ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY, MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID } from "./mount-flags.js";
import type { Kernel } from "./syscalls.js";
import type { ViewCheck, Placed, View } from "./view.js";

const SECOND_NAME = "/portcullis-tmp";
const SHARED_MEMORY = "/dev/shm";
const SHARED_MEMORY_LIMITS = "size=64m,nr_inodes=1000,mode=1777";
const COVER_LIMITS = "size=1m,mode=755";

export interface Temporary {
  /** Written by commands, and emptied after each. INVARIANT: nothing is mounted below them by these names. */
  readonly emptied: readonly string[];
  /** Folders right below them that stay, because something is mounted on them by the name /tmp. */
  readonly kept: readonly string[];
  readonly hasTmp: boolean;
  /** Called when everything is in its place. */
  seal(): void;
}

/**
 * What is /tmp to a command has a second name. What the policy opens below /tmp is mounted by the first name and only
 * there, so that emptying the folder by its second never leads into it.
 */
export function placeTemporary(
  calls: Kernel,
  base: string,
  view: View,
  sources: readonly Placed[],
  ok: ViewCheck,
): Temporary {
  const { path, bytes, files } = view.scratch;
  const flags = MS_NOSUID | MS_NODEV | (view.mayExecute ? 0 : MS_NOEXEC);
  const make = (what: string, how: number, limits: string): void => {
    mkdirSync(base + what, { recursive: true });
    ok(what, calls.mount("tmpfs", base + what, "tmpfs", how, limits));
  };
  const limits = `size=${bytes},nr_inodes=${files},mode=1777`;
  make(path, flags, limits);
  const below = sources.filter((source) => isWithin(source.path, "/tmp"));
  // A file or a link right there would have to lie among what every command may change.
  const hasTmp = below.every(({ path: at, isFolder }) => at !== "/tmp" && (isFolder || at.split("/").length > 3));
  const kept = hasTmp ? [...new Set(below.map((source) => source.path.split("/")[2] ?? ""))] : [];
  const covers = kept.filter((name) => !below.some((source) => source.path === `/tmp/${name}`));
  if (hasTmp) {
    make(SECOND_NAME, flags, limits);
    mkdirSync(`${base}/tmp`, { recursive: true });
    ok("/tmp", calls.mount(base + SECOND_NAME, `${base}/tmp`, null, MS_BIND, null));
    for (const name of kept) mkdirSync(`${base}/tmp/${name}`, { mode: 0o755 });
    for (const name of covers) make(`/tmp/${name}`, MS_NOSUID | MS_NODEV, COVER_LIMITS);
  }
  const hasShared = !sources.some((source) => isWithin(source.path, SHARED_MEMORY));
  if (hasShared) make(SHARED_MEMORY, MS_NOSUID | MS_NODEV | MS_NOEXEC, SHARED_MEMORY_LIMITS);
  return {
    emptied: [path, ...(hasTmp ? [SECOND_NAME] : []), ...(hasShared ? [SHARED_MEMORY] : [])],
    kept,
    hasTmp,
    seal() {
      for (const name of covers) {
        const flagsOfCover = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV;
        ok(`/tmp/${name}`, calls.setMountFlags(`${base}/tmp/${name}`, flagsOfCover, false));
      }
    },
  };
}
