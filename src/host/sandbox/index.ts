export { type Confinement, missingProtections, type Protections, type Without } from "./confinement.js";
export { needsOf } from "./needs.js";
export { confinementOf, environmentOf, launchLimitsOf, programDirectories, type Settings } from "./plan.js";
export { reachInSandbox } from "./reach.js";
export { Sandbox, type RunOutcome, type RunRequest } from "./sandbox.js";
export type { Ending, OutputStream } from "./supervisor-link.js";
export { closeProcess } from "./server/close-process.js";
export { launchReport, prepareServerLaunch, type ServerLaunch, unprotected } from "./server/launch.js";
export { LAUNCH_FD, missingForServer, type ServerProtections, type ServerSandbox } from "./server/types.js";
