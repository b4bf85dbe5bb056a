// The revisions this client speaks, by name. What tells them apart on the wire is data of the protocol room.

import {
  type Era,
  LEGACY,
  MODERN as MODERN_REVISION,
  type Revision,
  revisionNamed,
  SUPPORTED_VERSIONS,
} from "../index.js";

export type RevisionName = "2026-07-28" | "2025-11-25" | "2025-06-18" | "2025-03-26";

export const MODERN_NAME = MODERN_REVISION.name as RevisionName;
/** The handshake begins with the newest that has one. */
export const NEWEST_HANDSHAKE = LEGACY[0]?.name as RevisionName;

export function isRevision(value: unknown): value is RevisionName {
  return typeof value === "string" && revisionNamed(value) !== undefined;
}

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

/** The best revision that a server offering these can speak with us. */
export function bestOf(offered: readonly unknown[]): RevisionName | undefined {
  return SUPPORTED_VERSIONS.find((name) => offered.includes(name)) as RevisionName | undefined;
}
