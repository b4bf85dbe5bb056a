// What an agent may do, as types. A tool outside its capabilities, a call without a token, another agent's token and a
// wrong phase do not compile; the run time (agent.ts) refuses the same things when types were silenced.
//
// Methods learn who they belong to from `this`, so that an agent's type does not mention its capabilities in a
// parameter: one that holds more can then stand where one that holds less is asked for, and not the other way round.

import type { GuardrailCall } from "../../../policy/index.js";
import type { ConnectTarget } from "../connect.js";
import type { RequestOptions } from "../options.js";
import type { AgentConnectOptions } from "./connection.js";

declare const SELF: unique symbol;
declare const PROOF: unique symbol;
declare const CAPABILITIES: unique symbol;

/** Nothing but the run time makes one: a literal, a copy or a look-alike has no private part. */
declare abstract class Sealed {
  private readonly sealed: true;
}

/** One tool as a type: what it takes and what it gives. */
interface ToolShape {
  args: object;
  result: unknown;
}
/** `interface Tools { "fs.read": { args: …; result: … } }` is one. */
export type ToolMap<Tools> = { [Name in keyof Tools]: ToolShape };

export type AgentPhase = "new" | "active" | "closed";

/** An agent, what it holds, and how far its connection has come. */
export type Agent<Id extends string, Caps, Phase extends AgentPhase> = {
  new: NewAgent<Id, Caps>;
  active: ActiveAgent<Id, Caps>;
  closed: ClosedAgent<Id, Caps>;
}[Phase];

/** Proof that the guardrail callbacks of `Owner` let one call of `Tool` pass, with the arguments they saw. */
export interface GuardrailToken<in out Tool extends string, in out Owner extends string> extends Sealed {
  // Not in the private part: published types do not say what that holds.
  readonly [PROOF]: { kind: "token"; tool: (tool: Tool) => Tool; owner: (owner: Owner) => Owner };
}

/** One call of a tool that needs no guardrail, because its author or the operator said so. */
export interface UncheckedInvocation<in out Tool extends string, in out Owner extends string> extends Sealed {
  // Not in the private part: published types do not say what that holds.
  readonly [PROOF]: { kind: "unchecked"; tool: (tool: Tool) => Tool; owner: (owner: Owner) => Owner };
}

/** Which tools there are, for the compiler and for the run time. Made by `toolset`. */
export interface Toolset<Caps> extends Sealed {
  readonly [CAPABILITIES]: Caps;
  readonly names: readonly Name<Caps>[];
  readonly noGuardrailRequired: readonly string[];
}

/** The capabilities of a toolset, to write agents' types with. */
export type CapabilitiesOf<Set extends { readonly [CAPABILITIES]: unknown }> = Set[typeof CAPABILITIES];

interface Self<Phase, Id, Caps> {
  phase: Phase;
  id: Id;
  caps: Caps;
  // Fewer permitted arguments are less authority: an agent with them must not pass for one that has more.
  accepts: { [Tool in keyof Caps]: (args: Caps[Tool]["args" & keyof Caps[Tool]]) => void };
}
interface AnyActive extends Sealed {
  readonly [SELF]: { phase: "active"; id: string; caps: unknown };
}
type IdOf<Self extends AnyActive> = Self[typeof SELF]["id"];
type CapsOf<Self extends AnyActive> = Self[typeof SELF]["caps"];

export type Name<Caps> = keyof Caps & string;
type Unguarded<Caps> = {
  [Tool in keyof Caps]: Caps[Tool] extends { noGuardrailRequired: true } ? Tool : never;
}[keyof Caps] &
  string;

// The names below are what a person reads in the compiler's message.
type Held<Tool, Self extends AnyActive> = Tool extends keyof CapsOf<Self>
  ? Tool
  : { "not within this agent's capabilities": Tool; agent: IdOf<Self> };
type NeedsNoGuardrail<Tool, Self extends AnyActive> =
  Tool extends Unguarded<CapsOf<Self>>
    ? Tool
    : Tool extends keyof CapsOf<Self>
      ? { "needs a guardrail token, because noGuardrailRequired was not declared for": Tool }
      : { "not within this agent's capabilities": Tool; agent: IdOf<Self> };
export type AgentId<Id extends string> = string extends Id
  ? { "an agent's id has to be a literal, so that types can tell agents apart": Id }
  : Id;
type ChildId<Id extends string, Self extends AnyActive> =
  Id extends IdOf<Self> ? { "an agent cannot delegate to itself": Id } : AgentId<Id>;

/** What every tool that `Tool` may be accepts: with several names, all of theirs at once. */
type ArgsOf<Caps, Tool> = (
  Tool extends keyof Caps
    ? (args: Caps[Tool]["args" & keyof Caps[Tool]]) => void
    : never
) extends (args: infer Args) => void
  ? Args
  : never;
type ResultOf<Caps, Tool> = Tool extends keyof Caps ? Caps[Tool]["result" & keyof Caps[Tool]] : never;

type Proof<Tool extends string, Owner extends string> = GuardrailToken<Tool, Owner> | UncheckedInvocation<Tool, Owner>;

/** Returns nothing to let the call pass, or why it is blocked. Throwing blocks. */
export type AgentGuardrail<Tool, Args> = (
  call: Omit<GuardrailCall, "tool" | "arguments"> & { readonly tool: Tool; readonly arguments: Args },
) => undefined | string | { block: string } | Promise<undefined | string | { block: string }>;

/** Callbacks of this agent alone, by tool; `*` is asked for every tool. None is inherited from the delegating agent. */
export type AgentGuardrails<Caps> = {
  readonly [Tool in Name<Caps>]?: AgentGuardrail<Tool, Caps[Tool]["args" & keyof Caps[Tool]]>;
} & { readonly "*"?: AgentGuardrail<Name<Caps>, unknown> };

export interface DelegateOptions<Caps> {
  guardrails?: AgentGuardrails<Caps>;
}

/** Not connected: nothing can be called. */
export interface NewAgent<Id extends string, Caps> extends Sealed {
  readonly [SELF]: Self<"new", Id, Caps>;
  readonly id: Id;
  readonly phase: "new";
  readonly capabilities: readonly string[];
  /** Connects. Go on with what this gives; the agent it was called on is stale from then on. */
  connect(target: ConnectTarget, options?: AgentConnectOptions): Promise<ActiveAgent<Id, Caps>>;
}

export interface ActiveAgent<Id extends string, Caps> extends Sealed {
  readonly [SELF]: Self<"active", Id, Caps>;
  readonly id: Id;
  readonly phase: "active";
  readonly capabilities: readonly string[];

  /** Runs this agent's guardrails on these arguments. Throws `GuardrailBlocked` when one of them says no. */
  guard<Self extends AnyActive, const Tool extends string = Name<CapsOf<Self>>>(
    this: Self,
    tool: Held<Tool, Self>,
    args: ArgsOf<CapsOf<Self>, Tool>,
  ): Promise<GuardrailToken<Tool, IdOf<Self>>>;

  /** Says openly that no guardrail runs. Only for tools of which that was declared. */
  unchecked<Self extends AnyActive, const Tool extends string = Unguarded<CapsOf<Self>>>(
    this: Self,
    tool: NeedsNoGuardrail<Tool, Self>,
    args: ArgsOf<CapsOf<Self>, Tool>,
  ): UncheckedInvocation<Tool, IdOf<Self>>;

  /** Calls the tool with the arguments that the token was given for. A token is good for one call. */
  call<Self extends AnyActive, const Tool extends string = Name<CapsOf<Self>>>(
    this: Self,
    tool: Held<Tool, Self>,
    proof: Proof<NoInfer<Tool>, IdOf<Self>>,
    options?: RequestOptions,
  ): Promise<ResultOf<CapsOf<Self>, Tool>>;

  // In a list each place may take any name that is held, whatever stands at the others: completion offers them all.
  /** An agent that holds these capabilities and no more, for as long as this one lives. */
  delegate<Self extends AnyActive, const Id extends string, const Tool extends string = Name<CapsOf<Self>>>(
    this: Self,
    id: ChildId<Id, Self>,
    capabilities: readonly (Name<CapsOf<Self>> | Held<Tool, Self>)[],
    options?: DelegateOptions<Pick<CapsOf<Self>, NoInfer<Tool> & keyof CapsOf<Self>>>,
  ): ActiveAgent<Id, Pick<CapsOf<Self>, Tool & keyof CapsOf<Self>>>;

  /** Like `delegate`, and this agent ends: whatever it had delegated ends with it, and the new one takes its place. */
  handOver<Self extends AnyActive, const Id extends string, const Tool extends string = Name<CapsOf<Self>>>(
    this: Self,
    id: ChildId<Id, Self>,
    capabilities: readonly (Name<CapsOf<Self>> | Held<Tool, Self>)[],
    options?: DelegateOptions<Pick<CapsOf<Self>, NoInfer<Tool> & keyof CapsOf<Self>>>,
  ): ActiveAgent<Id, Pick<CapsOf<Self>, Tool & keyof CapsOf<Self>>>;

  /** Ends this agent and every agent it delegated to; the first agent of a connection closes the connection. */
  close(): Promise<ClosedAgent<Id, Caps>>;
}

export interface ClosedAgent<Id extends string, Caps> extends Sealed {
  readonly [SELF]: Self<"closed", Id, Caps>;
  readonly id: Id;
  readonly phase: "closed";
  readonly capabilities: readonly string[];
}
