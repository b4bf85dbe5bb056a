export { PROFILE_NAMES, type ProfileName, type SandboxMode } from "./document.js";
export { type Executable, findExecutable, isUnchanged, searchFolders } from "./executable.js";
export { canonicalJson } from "./hash.js";
export { type LoadOptions, loadPolicy, type LoadResult, parsePolicy } from "./load.js";
export { matchAll } from "./patterns.js";
export { type Command, type Policy, policyFor, type ProcessLimits } from "./policy.js";
export { type PolicyProblem, problemText } from "./problem.js";
export { policySchema, policySchemaText } from "./schema.js";
export { placed, type Positions, readYaml } from "./yaml.js";
