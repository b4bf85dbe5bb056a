import { REVISION_20250326 } from "./2025-03-26.js";
import { REVISION_20250618 } from "./2025-06-18.js";
import { REVISION_20251125 } from "./2025-11-25.js";
import { REVISION_20260728 } from "./2026-07-28.js";
import type { Revision } from "./revision.js";

export { META } from "./2026-07-28.js";
export type { Revision } from "./revision.js";

export const MODERN: Revision = REVISION_20260728;
/** Newest first. */
export const LEGACY: readonly Revision[] = [REVISION_20251125, REVISION_20250618, REVISION_20250326];
export const REVISIONS: readonly Revision[] = [MODERN, ...LEGACY];
export const SUPPORTED_VERSIONS: readonly string[] = REVISIONS.map((revision) => revision.name);

/** A client that sends no revision at all over HTTP predates the header. */
export const ASSUMED: Revision = REVISION_20250326;

const byName = new Map(REVISIONS.map((revision) => [revision.name, revision]));

export function revisionNamed(name: string | undefined): Revision | undefined {
  return name === undefined ? undefined : byName.get(name);
}

/** The handshake answers with what was asked for when it is known, otherwise with the newest of its era. */
export function negotiate(asked: unknown): Revision {
  const known = typeof asked === "string" ? byName.get(asked) : undefined;
  return known && known.era === "legacy" ? known : (LEGACY[0] as Revision);
}
