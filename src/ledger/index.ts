export { type Archive, archiveSegments, type ArchiveOptions, type ArchiveResult } from "./archive.js";
export type { Receipt } from "./batch.js";
export type { LedgerProblem, ProblemKind } from "./chain.js";
export type { Commitment } from "./checkpoints.js";
export { directoryArchive } from "./archive.js";
export type {
  AdminEntry,
  ApprovalEntry,
  ChallengeEntry,
  DecisionEntry,
  RecordedEffect,
  KeyEntry,
  LedgerEntry,
  LedgerRecord,
  Mode,
  Outcome,
  OutcomeEntry,
  PolicyEntry,
  StartEntry,
} from "./entry.js";
export { LedgerLocked, LedgerReadError, LedgerRefused, LedgerUnavailable, type UnavailableReason } from "./errors.js";
export { type ExportHeader, type LedgerExportOptions, exportRecords } from "./read.js";
export { type Ledger, type LedgerOptions, type LedgerStatus, openLedger, type OutcomeDurability } from "./ledger.js";
export { NoteError } from "./note.js";
export { type ConsistencyProof, type InclusionProof, prove, proveConsistency, type ProveOptions } from "./prove.js";
export type { PruneOptions, PruneResult } from "./prune.js";
export type { Publish } from "./checkpoints.js";
export { type ReadOptions, type ReadRecord, type RecordedIntent, read, readIntents } from "./read.js";
export { restoreSegments } from "./archive.js";
export { keptFrom, type Retention } from "./prune.js";
export {
  followSeveral,
  type NamedLedger,
  readLastOfSeveral,
  readSeveral,
  type RecordOfLedger,
  type TailOfSeveral,
} from "./several.js";
export type { PrunedSegment, PruneStatement } from "./statement.js";
export { readLast, type Tail, type TailOptions } from "./read.js";
export { computeTiles } from "./tiles.js";
export { type CheckedCheckpoint, type Verification, type VerifyOptions, verify } from "./verify.js";
