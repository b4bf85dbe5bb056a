// The hardened host: three tools and nothing else. Entered from other rooms only here.

export { type AuditSummary, deniedSummary, type ToolName } from "./audit.js";
export { type Denial, type DenialCode, isDenial } from "./denial.js";
export {
  decideBy,
  executeBy,
  type DirectoryDecision,
  type ListArguments,
  type MoveArguments,
  type Prepare,
  prepareDeleteFile,
  prepareDeleteDirectory,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
  prepareStat,
} from "./directories/index.js";
export { isNetworkType, isWithin, mountOf, type OpeningMethod, openingMethod, readMounts } from "./paths/index.js";
export {
  type Command,
  type HostPolicyLoadOptions,
  type LoadResult,
  loadYamlPolicy,
  parsePolicy,
  placed,
  type Policy,
  policyFor,
  type HostPolicyProblem,
  policySchema,
  policySchemaText,
  type Positions,
  problemText,
  PROFILE_NAMES,
  type ProfileName,
  readYaml,
  realPathOf,
  type SandboxMode,
} from "./policy/index.js";
export {
  closeProcess,
  confinementOf,
  LAUNCH_FD,
  launchReport,
  missingForServer,
  missingProtections,
  prepareServerLaunch,
  type Protections,
  reachInSandbox,
  Sandbox,
  type ServerLaunch,
  type ServerProtections,
  type ServerSandbox,
  unprotected,
} from "./sandbox/index.js";
export {
  type CmdContext,
  cmdRun,
  type CmdRunResult,
  closeSharedSandbox,
  decideCmdRun,
  executeCmdRun,
  sharedSandbox,
} from "./tools/cmd-run.js";
export { type HostToolDefinition, hostTools } from "./tools/definitions.js";
export { decideFsRead, executeFsRead, fsRead } from "./tools/fs-read.js";
export { decideFsWrite, executeFsWrite, fsWrite } from "./tools/fs-write.js";
export type { HostCallContext, HostDecision, HostOutcome, Would } from "./tools/outcome.js";
export type { FsReadResult, FsWriteResult } from "./tools/shapes.js";
