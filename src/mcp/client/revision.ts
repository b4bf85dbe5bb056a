// The revisions this client speaks, by name. What tells them apart on the wire is data of the protocol room.

import { type Era, MODERN as MODERN_REVISION, type Revision, revisionNamed } from "../index.js";

export type RevisionName = "2026-07-28" | "2025-11-25" | "2025-06-18" | "2025-03-26";

export const MODERN_NAME = MODERN_REVISION.name as RevisionName;

export function factsOf(name: RevisionName): Revision {
  return revisionNamed(name) as Revision;
}

export function eraOf(name: RevisionName): Era {
  return factsOf(name).era;
}

/** Forms and URLs were told apart from 2025-11-25 on; 2025-03-26 has no elicitation at all. */
export function elicitationModes(name: RevisionName): "none" | "form" | "both" {
  if (name === "2025-03-26") return "none";
  return name === "2025-06-18" ? "form" : "both";
}
