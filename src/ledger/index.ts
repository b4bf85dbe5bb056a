export {
  type Archive,
  type ArchiveOptions,
  type ArchiveResult,
  archiveSegments,
  directoryArchive,
  restoreSegments,
} from "./archive.js";
export type { Receipt } from "./batch.js";
export type { LedgerProblem, ProblemKind } from "./chain.js";
export type { Commitment, Publish } from "./checkpoints.js";
export type {
  AdminEntry,
  ApprovalEntry,
  ChallengeEntry,
  DecisionEntry,
  KeyEntry,
  LedgerEntry,
  LedgerRecord,
  Mode,
  Outcome,
  OutcomeEntry,
  PolicyEntry,
  RecordedEffect,
  StartEntry,
} from "./entry.js";
export { LedgerLocked, LedgerReadError, LedgerRefused, LedgerUnavailable, type UnavailableReason } from "./errors.js";
export { type Ledger, type LedgerOptions, type LedgerStatus, type OutcomeDurability, openLedger } from "./ledger.js";
export { NoteError } from "./note.js";
export { type ConsistencyProof, type InclusionProof, type ProveOptions, prove, proveConsistency } from "./prove.js";
export type { PruneOptions, PruneResult } from "./prune.js";
export { keptFrom, type Retention } from "./prune.js";
export {
  type ExportHeader,
  exportRecords,
  type LedgerExportOptions,
  type ReadOptions,
  type ReadRecord,
  type RecordedIntent,
  read,
  readIntents,
  readLast,
  type Tail,
  type TailOptions,
} from "./read.js";
export {
  followSeveral,
  type NamedLedger,
  type RecordOfLedger,
  readLastOfSeveral,
  readSeveral,
  type TailOfSeveral,
} from "./several.js";
export type { PrunedSegment, PruneStatement } from "./statement.js";
export { computeTiles } from "./tiles.js";
export { type CheckedCheckpoint, type Verification, type VerifyOptions, verify } from "./verify.js";
