export { type Archive, archiveSegments, type ArchiveOptions, type ArchiveResult } from "./archive.js";
export type { Receipt } from "./batch.js";
export type { LedgerProblem, ProblemKind } from "./chain.js";
export type { Commitment } from "./commitments.js";
export { directoryArchive } from "./directory-archive.js";
export type {
  AdminEntry,
  ApprovalEntry,
  ChallengeEntry,
  DecisionEntry,
  Effect,
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
export { type ExportHeader, type LedgerExportOptions, exportRecords } from "./export.js";
export { type Ledger, type LedgerOptions, type LedgerStatus, openLedger, type OutcomeDurability } from "./ledger.js";
export { NoteError } from "./note.js";
export { type ConsistencyProof, type InclusionProof, prove, proveConsistency, type ProveOptions } from "./prove.js";
export type { PruneOptions, PruneResult } from "./prune.js";
export type { Publish } from "./publish.js";
export { type ReadOptions, type ReadRecord, type RecordedIntent, read, readIntents } from "./read.js";
export { restoreSegments } from "./restore.js";
export { keptFrom, type Retention } from "./retention.js";
export {
  followSeveral,
  type NamedLedger,
  readLastOfSeveral,
  readSeveral,
  type RecordOfLedger,
  type TailOfSeveral,
} from "./several.js";
export type { PrunedSegment, PruneStatement } from "./statement.js";
export { readLast, type Tail, type TailOptions } from "./tail.js";
export { type CheckedCheckpoint, type Verification, type VerifyOptions, verify } from "./verify.js";
