import type { JsonObject } from "../../mcp/index.js";

/** Answers at once where it can. */
export type Judged = boolean | Promise<boolean>;

/**
 * What a workflow says about delegation, in the words of the gate. Capabilities are the workflow's names; tools are the
 * gateway's. An implementation that cannot tell answers false or throws: both are a deny.
 */
export interface DelegationRules {
  /** Names this version of the workflow, for the record. */
  readonly workflow: string;
  /** The agent has authority of its own. */
  isRoot(agent: string): boolean;
  /** Caps(agent): what its servers offer it; undefined for an agent that the workflow does not know. */
  offered(agent: string): ReadonlySet<string> | undefined;
  /** Whether delegations run from one agent to the other, and for which capabilities; undefined when there are none. */
  passedOn(from: string, to: string): ((capability: string) => boolean) | undefined;
  /** Whether the capability, as it was analysed, takes these arguments. */
  takes(capability: string, args: JsonObject): Judged;
  /** Whether one of the delegations between them lets this very call through. */
  admits(from: string, to: string, capability: string, args: JsonObject): Judged;
  /** Whether the agent's allow list has this very call. */
  allows(agent: string, capability: string, args: JsonObject): Judged;
  /** Whether arguments fit a schema that a token carries. */
  fits(schema: JsonObject | boolean, args: JsonObject): Judged;
  toolOf(capability: string): string | undefined;
  capabilityOf(tool: string): string | undefined;
}
