export { type Confinement, missingProtections, type Protections, type Without } from "./confinement.js";
export { needsOf } from "./needs.js";
export { confinementOf, environmentOf, launchLimitsOf, programFolders } from "./plan.js";
export { reachInSandbox } from "./reach.js";
export { Sandbox, type RunOutcome, type RunRequest } from "./sandbox.js";
export type { Ending, OutputStream } from "./warden-link.js";
