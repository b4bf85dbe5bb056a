export type { HopBlock, RootBlock, UseBlock } from "./block.js";
export { type Chain, ChainReader, type ChainOptions } from "./chain.js";
export {
  type DelegationKeys,
  exportDelegationKeys,
  gatewayName,
  generateDelegationKeys,
  importDelegationKeys,
} from "./keys.js";
export { type DelegationProblem, DelegationRefused } from "./refused.js";
export type { DelegationRules, Judged } from "./rules.js";
export { SpentNonces } from "./spent.js";
export { type HandOn, handOn, mintDelegation, type MintOptions, spend, type Spending, takeAcross } from "./token.js";
export { delegationVoice } from "./voice.js";
