// A bound on everything, with a default.

import type { UpstreamLimits, UpstreamTimeouts } from "./types.js";

export const DEFAULT_UPSTREAM_LIMITS: UpstreamLimits = {
  maxMessageBytes: 4 * 1024 * 1024,
  maxDepth: 128,
  maxInFlight: 256,
  maxQueued: 1_024,
  maxMessagesPerCall: 10_000,
  maxQuestions: 16,
  maxUnsentBytes: 16 * 1024 * 1024,
  maxNonsense: 100,
  maxEntries: 10_000,
  maxPages: 1_000,
  maxCatalogueBytes: 32 * 1024 * 1024,
  maxWatched: 1_000,
  connections: 128,
  maxResumes: 5,
  stderrBytes: 16 * 1024,
  failuresToOpen: 5,
};

export const DEFAULT_UPSTREAM_TIMEOUTS: UpstreamTimeouts = {
  startMs: 30_000,
  discoverMs: 5_000,
  listMs: 10_000,
  catalogueMs: 60_000,
  questionMs: 5 * 60_000,
  idleMs: 0,
  leaveMs: 1_000,
  graceMs: 2_000,
  backoffMs: 500,
  maxBackoffMs: 30_000,
};
