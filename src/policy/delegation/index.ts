export type { HopBlock, RootBlock, UseBlock } from "./block.js";
export { type DelegationChain, ChainReader, type ChainOptions } from "./chain.js";
export {
  type DelegationKeys,
  exportDelegationKeys,
  generateDelegationKeys,
  importDelegationKeys,
} from "./keys.js";
export { type DelegationProblem, DelegationRefused } from "./refused.js";
export type { DelegationRules, Judged } from "./rules.js";
export {
  type HandOn,
  handOnDelegation,
  mintDelegation,
  type MintOptions,
  spendDelegation,
  type Spending,
  takeDelegationAcross,
} from "./token.js";
export type { SharedNonces } from "./spent.js";
export { delegationCheck } from "./voice.js";
