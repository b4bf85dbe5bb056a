// Agents at run time. Whatever the types of types.ts refuse is refused here as well, for callers that silenced them;
// and what no type can see: a token spent twice, an agent that is stale.

import { type CallTarget, canonicalize, makeIntent, NOTHING_FORWARDED } from "../../../policy/index.js";
import { type JsonValue, StrictJsonError } from "../../index.js";
import type { ConnectTarget } from "../connect.js";
import { ProtocolError } from "../errors.js";
import type { RequestOptions } from "../options.js";
import { type AgentConnectOptions, TypedConnection } from "./connection.js";
import { CallProof, GuardrailBlocked, Life, needsGuardrail, stale, wrongPhase } from "./life.js";
import type { AgentGuardrails, AgentId, AgentPhase, Name, NewAgent, ToolMap, Toolset } from "./types.js";

export interface AgentOptions<Caps> {
  /** The application it belongs to, as policies name it. */
  app: string;
  guardrails?: AgentGuardrails<Caps>;
  /** How long a guardrail's yes holds; a minute unless said. */
  tokenTtlMs?: number;
  /** Agents on one connection at once. */
  maxAgents?: number;
}

const DEFAULT_TOKEN_TTL_MS = 60_000;
const DEFAULT_MAX_AGENTS = 1_000;

/** The first agent of a connection, which holds the whole toolset. It can do nothing until it is connected. */
export function createAgent<const Id extends string, Caps>(
  id: AgentId<Id>,
  tools: Toolset<Caps>,
  options: AgentOptions<Caps>,
): NewAgent<Id, Caps> {
  if (!isToolset(tools)) throw new TypeError("tools: give what `toolset<Tools>()({ names })` made");
  const { app, guardrails, tokenTtlMs = DEFAULT_TOKEN_TTL_MS, maxAgents = DEFAULT_MAX_AGENTS } = options;
  if (typeof app !== "string" || app === "") throw new TypeError("app: say which application the agent belongs to");
  const held = { names: new Set<string>(tools.names), open: new Set(tools.noGuardrailRequired) };
  const life = new Life(id, held, guardrails, { app, tokenTtlMs, maxAgents });
  return new AgentHandle(life, "new") as unknown as NewAgent<Id, Caps>;
}

/** Every method is there in every phase, so that misuse is answered in words. */
class AgentHandle {
  readonly #life: Life;
  readonly #phase: AgentPhase;

  constructor(life: Life, phase: AgentPhase) {
    this.#life = life;
    this.#phase = phase;
    life.handle = this;
    Object.freeze(this);
  }

  get id(): string {
    return this.#life.id;
  }

  get phase(): AgentPhase {
    return this.#phase;
  }

  get capabilities(): readonly string[] {
    return [...this.#life.held.names];
  }

  async connect(target: ConnectTarget, options: AgentConnectOptions = {}): Promise<AgentHandle> {
    const life = AgentHandle.#use(this, "new", "connect");
    // Of two attempts to connect at once the first has the agent.
    life.handle = undefined;
    try {
      life.connection = await TypedConnection.open(target, options, life);
    } catch (error) {
      life.handle = this;
      throw error;
    }
    return new AgentHandle(life, "active");
  }

  async guard(tool: string, args: unknown): Promise<CallProof> {
    const life = AgentHandle.#use(this, "active", `call ${named(tool)}`);
    const name = life.mustHold(tool);
    const argumentsText = canonicalArguments(name, args);
    const target = targetOf(name, life.held.open.has(name));
    const intent = makeIntent({
      principal: life.principal,
      method: "tools/call",
      target,
      arguments: JSON.parse(argumentsText),
      forwarded: NOTHING_FORWARDED,
    });
    const answer = await life.guardrails.run(life.principal, target, intent);
    if ("blocked" in answer) {
      const { reason, rules, suggestions = [] } = answer.blocked;
      throw new GuardrailBlocked(life.id, name, reason, { rules, suggestions });
    }
    return CallProof.mint(life, name, argumentsText);
  }

  unchecked(tool: string, args: unknown): CallProof {
    const life = AgentHandle.#use(this, "active", `call ${named(tool)}`);
    const name = life.mustHold(tool);
    if (!life.held.open.has(name)) throw needsGuardrail(life.id, name, "noGuardrailRequired was not declared for it");
    if (life.hasGuardrailFor(name)) throw needsGuardrail(life.id, name, "this agent has a guardrail for it");
    return CallProof.mint(life, name, canonicalArguments(name, args));
  }

  async call(tool: string, proof: unknown, options: RequestOptions = {}): Promise<unknown> {
    const life = AgentHandle.#use(this, "active", `call ${named(tool)}`);
    const name = life.mustHold(tool);
    const argumentsText = CallProof.spend(proof, life, name);
    return (life.connection as TypedConnection).call(life, name, argumentsText, options);
  }

  delegate(id: string, capabilities: unknown, options: { guardrails?: unknown } = {}): AgentHandle {
    const life = AgentHandle.#use(this, "active", `delegate ${named(capabilities)}`);
    const child = life.child(id, life.part(capabilities), options.guardrails);
    try {
      life.connection?.enter(child);
    } catch (error) {
      child.end("it was never admitted");
      throw error;
    }
    return new AgentHandle(child, "active");
  }

  handOver(id: string, capabilities: unknown, options: { guardrails?: unknown } = {}): AgentHandle {
    const life = AgentHandle.#use(this, "active", `hand over ${named(capabilities)}`);
    const next = life.successor(id, life.part(capabilities), options.guardrails);
    next.connection = life.connection;
    try {
      life.connection?.enter(next);
    } catch (error) {
      next.end("it was never admitted");
      throw error;
    }
    life.end(`it handed over to agent \`${next.id}\``);
    return new AgentHandle(next, "active");
  }

  async close(): Promise<AgentHandle> {
    const life = AgentHandle.#use(this, "active", "close");
    life.end("it was closed");
    if (life.isRoot) await life.connection?.close();
    return new AgentHandle(life, "closed");
  }

  /** INVARIANT: the first line of every method. Phase, then whether this is still the agent's current handle. */
  static #use(handle: unknown, phase: "new" | "active", what: string): Life {
    if (typeof handle !== "object" || handle === null || !(#life in handle)) {
      throw new TypeError(`cannot ${what}: this is not an agent; call the method on the agent itself`);
    }
    const life = handle.#life;
    if (handle.#phase !== phase) throw wrongPhase(life.id, what, REMEDY[handle.#phase]);
    if (life.whyOver !== undefined) throw stale(life.id, what, life.whyOver);
    if (life.handle !== handle) throw stale(life.id, what, "connect() was called on it; go on with what that gave");
    return life;
  }
}

const REMEDY: Record<AgentPhase, string> = {
  new: "it is not connected yet; await connect(…) and go on with what that gives",
  active: "it is connected already",
  closed: "it is closed",
};

function named(tools: unknown): string {
  const names: unknown[] = Array.isArray(tools) ? tools.slice(0, 8) : [tools];
  return names.map((name) => `\`${String(name)}\``).join(", ");
}

function canonicalArguments(tool: string, args: unknown): string {
  try {
    if (typeof args !== "object" || args === null || Array.isArray(args)) throw new StrictJsonError("no object");
    return canonicalize(args as JsonValue);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ProtocolError("InvalidParams", `the arguments of \`${tool}\` cannot be sent: ${why}`, { cause: error });
  }
}

/** What guardrails see of a tool before there is a server in sight. */
function targetOf(tool: string, open: boolean): CallTarget {
  return {
    type: "Tool",
    name: tool,
    action: tool,
    binding: "agent",
    server: "agent",
    definitionHash: "unlisted",
    tags: [],
    readOnly: false,
    noGuardrailRequired: open,
    builtin: false,
  };
}

/** Tools at most in one set; more than that no compiler checks in reasonable time, so sets are made per server. */
const MAX_TOOLS = 20_000;

type Known<Tool, Tools> = Tool extends keyof Tools ? Tool : { "not a tool of this map": Tool };
type Listed<Tool, Tools> = Tool extends Tools ? Tool : { "not among the names of this set": Tool };

type Chosen<Tools, Tool extends keyof Tools, Open extends string> = [Open] extends [never]
  ? [keyof Tools] extends [Tool]
    ? Tools
    : Pick<Tools, Tool>
  : WithoutGuardrail<Tools, Tool, Open>;

/** `Tool` of `Tools`, where those in `Open` need no guardrail. Named, so that messages stay short. */
type WithoutGuardrail<Tools, Tool extends keyof Tools, Open extends string> = {
  [Each in Tool]: Each extends Open ? Tools[Each] & { noGuardrailRequired: true } : Tools[Each];
};

/**
 * `toolset<Tools>()({ names: ["fs.read", "fs.write"], noGuardrailRequired: ["fs.read"] })`
 * In two steps, because the compiler either takes all type arguments from the caller or none.
 */
export function toolset<Tools extends ToolMap<Tools>>() {
  return <const Tool extends string = Name<Tools>, const Open extends string = never>(declared: {
    names: readonly (Name<Tools> | Known<Tool, Tools>)[];
    /** Tools that run without a guardrail: said by their author or, of a third party's tools, by you, the operator. */
    noGuardrailRequired?: readonly Listed<Open, NoInfer<Tool>>[];
  }): Toolset<Chosen<Tools, Tool & keyof Tools, Open>> => {
    const names = checkedNames("names", declared.names);
    const open = checkedNames("noGuardrailRequired", declared.noGuardrailRequired ?? []);
    for (const name of open) {
      if (!names.has(name)) throw new TypeError(`noGuardrailRequired: \`${name}\` is not among the names of this set`);
    }
    const set = { names: Object.freeze([...names]), noGuardrailRequired: Object.freeze([...open]) };
    made.add(set);
    return Object.freeze(set) as unknown as Toolset<Chosen<Tools, Tool & keyof Tools, Open>>;
  };
}

const made = new WeakSet<object>();

/** Whether `toolset` made it; an object that only looks like one was never checked. */
function isToolset(value: unknown): value is Toolset<Record<string, unknown>> {
  return typeof value === "object" && value !== null && made.has(value);
}

function checkedNames(field: string, names: unknown): Set<string> {
  if (!Array.isArray(names)) throw new TypeError(`${field}: give an array of tool names`);
  if (names.length > MAX_TOOLS) throw new RangeError(`${field}: ${names.length} tools, and ${MAX_TOOLS} is the limit`);
  for (const name of names) {
    if (typeof name !== "string" || name === "")
      throw new TypeError(`${field}: \`${String(name)}\` is not a tool name`);
  }
  return new Set(names as string[]);
}
