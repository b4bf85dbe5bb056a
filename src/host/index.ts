// The hardened host: three tools and nothing else. The only entry from other modules.

export { type AuditSummary, deniedSummary, type ToolName } from "./audit.js";
export { type Denial, type DenialCode, isDenial } from "./denial.js";
export {
  type DirectoryDecision,
  decideBy,
  executeBy,
  type ListArguments,
  type MoveArguments,
  type Prepare,
  prepareDeleteDirectory,
  prepareDeleteFile,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
  prepareStat,
} from "./directories/operations.js";
export { type OpeningMethod, openingMethod } from "./paths/locate.js";
export { isNetworkType, isWithin, mountOf, readMounts } from "./paths/mounts.js";
export {
  PROFILE_NAMES,
  type ProfileName,
  policySchema,
  policySchemaText,
  type SandboxMode,
} from "./policy/document.js";
export { type HostPolicyLoadOptions, type LoadResult, loadYamlPolicy, parsePolicy } from "./policy/load.js";
export { realPathOf } from "./policy/places.js";
export { type Command, type Policy, policyFor } from "./policy/policy.js";
export { type HostPolicyProblem, type Positions, placed, problemText, readYaml } from "./policy/yaml.js";
export {
  missingProtections,
  NETWORK_FILES,
  type Protections,
  SYSTEM_DIRECTORIES,
  SYSTEM_FILES,
} from "./sandbox/confinement.js";
export { type Containment, makeContainer, type ProcessContainer } from "./sandbox/container.js";
export { confinementOf } from "./sandbox/plan.js";
export { signalProcess } from "./sandbox/processes.js";
export { reachInSandbox } from "./sandbox/reach.js";
export { Sandbox } from "./sandbox/sandbox.js";
export {
  closeProcess,
  launchReport,
  prepareServerLaunch,
  type ServerLaunch,
  unprotected,
} from "./sandbox/server/launch.js";
export { type HeldCall, type NotificationReader, notificationReader } from "./sandbox/server/notify.js";
export { destinationName, portOf, WEB_PORTS } from "./sandbox/server/profile.js";
export {
  type Destination,
  LAUNCH_FD,
  missingForServer,
  type ServerProfile,
  type ServerProtections,
  type ServerSandbox,
  type StrictPlan,
  type TouchedPath,
} from "./sandbox/server/types.js";
export {
  type CmdContext,
  type CmdRunResult,
  closeSharedSandbox,
  decideCmdRun,
  executeCmdRun,
  sharedSandbox,
} from "./tools/cmd-run.js";
export { type FsReadResult, type FsWriteResult, type HostToolDefinition, hostTools } from "./tools/definitions.js";
export { decideFsRead, executeFsRead } from "./tools/fs-read.js";
export { decideFsWrite, executeFsWrite } from "./tools/fs-write.js";
export type { HostCallContext, HostDecision, HostOutcome, Would } from "./tools/outcome.js";
