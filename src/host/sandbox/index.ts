export { type Confinement, missingProtections, type Protections, type Without } from "./confinement.js";
export { confinementOf, environmentOf, launchLimitsOf } from "./plan.js";
export { Sandbox, type RunOutcome, type RunRequest } from "./sandbox.js";
export type { Ending, OutputStream } from "./warden-link.js";
