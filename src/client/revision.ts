// The revisions this client speaks and what tells them apart on the wire.

import type { Era } from "../protocol/index.js";

export const MODERN = "2026-07-28";
/** With a handshake, best first. */
export const HANDSHAKE = ["2025-11-25", "2025-06-18", "2025-03-26"] as const;

export type Revision = typeof MODERN | (typeof HANDSHAKE)[number];

export const REVISIONS: readonly Revision[] = [MODERN, ...HANDSHAKE];

export function isRevision(value: unknown): value is Revision {
  return REVISIONS.includes(value as Revision);
}

export function eraOf(revision: Revision): Era {
  return revision === MODERN ? "modern" : "legacy";
}

/** JSON-RPC batches came with 2025-03-26 and left with the next revision. */
export function hasBatches(revision: Revision): boolean {
  return revision === "2025-03-26";
}

/** The version header came with 2025-06-18. */
export function hasVersionHeader(revision: Revision): boolean {
  return revision !== "2025-03-26";
}

/** Forms and URLs were told apart from 2025-11-25 on; 2025-03-26 has no elicitation at all. */
export function elicitationModes(revision: Revision): "none" | "form" | "both" {
  if (revision === "2025-03-26") return "none";
  return revision === "2025-06-18" ? "form" : "both";
}

/** The best revision that a server offering these can speak with us. */
export function bestOf(offered: readonly unknown[]): Revision | undefined {
  return REVISIONS.find((revision) => offered.includes(revision));
}
