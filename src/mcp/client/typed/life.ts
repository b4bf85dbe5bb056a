// One agent from its making to its end: what it holds, whom it delegated to, which of its handles is the current one.
// INVARIANT: an agent never holds what the one that delegated to it does not hold, and never outlives it.

import { CallbackRunner, type GuardrailCallback, type Principal, type Rule } from "../../../policy/index.js";
import { type ErrorDetail, PolicyViolation, ProtocolError } from "../errors.js";
import type { TypedConnection } from "./connection.js";

interface Held {
  readonly names: ReadonlySet<string>;
  /** Those that run without a guardrail, by their author's or the operator's word. */
  readonly open: ReadonlySet<string>;
}

interface AgentSettings {
  readonly app: string;
  readonly tokenTtlMs: number;
  readonly maxAgents: number;
}

const MAX_ID_CHARS = 256;

export class Life {
  readonly id: string;
  readonly settings: AgentSettings;
  readonly held: Held;
  readonly guardrails: CallbackRunner;
  readonly #guarded: ReadonlySet<string>;
  readonly #over = new AbortController();
  readonly #children = new Set<Life>();
  #parent: Life | undefined;
  #whyOver: string | undefined;
  /** The only object through which this agent can be used. */
  handle: object | undefined;
  connection: TypedConnection | undefined;

  constructor(id: unknown, held: Held, guardrails: unknown, settings: AgentSettings, parent?: Life) {
    if (typeof id !== "string" || id === "" || id.length > MAX_ID_CHARS) {
      throw new TypeError(`an agent's id is a text of 1 to ${MAX_ID_CHARS} characters, not ${JSON.stringify(id)}`);
    }
    this.id = id;
    this.held = held;
    this.settings = settings;
    this.#parent = parent;
    const callbacks = readCallbacks(id, guardrails, held.names);
    this.#guarded = new Set(callbacks.keys());
    this.guardrails = new CallbackRunner();
    for (const [tool, callback] of callbacks) {
      this.guardrails.register({ id: `${id}:${tool}`, agent: this.name, tool, callback });
    }
  }

  /** As policies and records know it. */
  get name(): string {
    return `${this.settings.app}/${this.id}`;
  }

  get principal(): Principal {
    return { app: this.settings.app, agent: this.id, scope: [], via: "local", tools: this.held.names };
  }

  get tokenTtlMs(): number {
    return this.settings.tokenTtlMs;
  }

  get whyOver(): string | undefined {
    return this.#whyOver;
  }

  /** Aborts when the agent ends, and what it is doing with it. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  get isRoot(): boolean {
    return this.#parent === undefined;
  }

  hasGuardrailFor(tool: string): boolean {
    return this.#guarded.has(tool) || this.#guarded.has("*");
  }

  /** The name as it is held, or a refusal that says what is. */
  mustHold(tool: unknown): string {
    if (typeof tool === "string" && this.held.names.has(tool)) return tool;
    throw notHeld(this.id, tool, this.held.names);
  }

  /** A part of what this agent holds. */
  part(capabilities: unknown): Held {
    if (!Array.isArray(capabilities)) throw new TypeError("capabilities: give an array of tool names");
    const names = new Set(capabilities.map((tool) => this.mustHold(tool)));
    return { names, open: new Set([...this.held.open].filter((tool) => names.has(tool))) };
  }

  child(id: unknown, held: Held, guardrails: unknown): Life {
    const child = new Life(id, held, guardrails, this.settings, this);
    this.#adopt(child);
    return child;
  }

  /** The one that takes this agent's place; this agent still has to end. */
  successor(id: unknown, held: Held, guardrails: unknown): Life {
    const next = new Life(id, held, guardrails, this.settings, this.#parent);
    if (this.#parent) this.#parent.#adopt(next);
    return next;
  }

  #adopt(child: Life): void {
    child.connection = this.connection;
    this.#children.add(child);
  }

  /** This agent and all it delegated to. */
  end(why: string): void {
    if (this.#whyOver !== undefined) return;
    this.#whyOver = why;
    this.connection?.leave(this);
    for (const child of this.#children) child.end(`agent \`${this.id}\`, which delegated to it, is over: ${why}`);
    this.#children.clear();
    if (this.#parent) this.#parent.#children.delete(this);
    this.#over.abort(new Error(why));
  }
}

function readCallbacks(id: string, given: unknown, held: ReadonlySet<string>): Map<string, GuardrailCallback> {
  const callbacks = new Map<string, GuardrailCallback>();
  for (const [tool, callback] of Object.entries(given ?? {})) {
    if (callback === undefined) continue;
    if (tool !== "*" && !held.has(tool)) throw notHeld(id, tool, held);
    if (typeof callback !== "function") throw new TypeError(`guardrails: \`${tool}\` has to be a function`);
    callbacks.set(tool, async (call) => checkedAnswer(await (callback as GuardrailCallback)(call)));
  }
  return callbacks;
}

/** `true` from a callback may have meant either; only what is defined counts, and the rest throws, which blocks. */
function checkedAnswer(answer: unknown): undefined | string | { block: string } {
  if (answer === undefined || typeof answer === "string") return answer;
  const { block } = Object(answer) as { block?: unknown };
  if (typeof block === "string") return { block };
  throw new TypeError(
    `it answered ${JSON.stringify(answer)}; return nothing to let the call pass, or why it is blocked`,
  );
}

export class CallProof {
  readonly #owner: Life;
  readonly #tool: string;
  /** Canonical: what happens to the caller's own object later does not matter. */
  readonly #argumentsText: string;
  readonly #expires: number;
  #spent = false;

  private constructor(owner: Life, tool: string, argumentsText: string) {
    this.#owner = owner;
    this.#tool = tool;
    this.#argumentsText = argumentsText;
    this.#expires = performance.now() + owner.tokenTtlMs;
  }

  /** INVARIANT: called after the callback runner minted its token for the same, or for a tool that needs none. */
  static mint(owner: Life, tool: string, argumentsText: string): CallProof {
    return new CallProof(owner, tool, argumentsText);
  }

  /** Gives the arguments, once. A proof that is not this agent's, or not for this tool, is left as it is. */
  static spend(proof: unknown, agent: Life, tool: string): string {
    const refuse = (problem: string): Error => noToken(agent.id, tool, problem);
    if (proof === undefined || proof === null) throw refuse("there is no guardrail token");
    if (typeof proof !== "object" || !(#spent in proof)) throw refuse("what was given is not a guardrail token");
    if (proof.#owner !== agent) throw refuse(`the token is of agent \`${proof.#owner.id}\``);
    if (proof.#tool !== tool) throw refuse(`the token is for \`${proof.#tool}\``);
    if (proof.#spent) throw refuse("the token is already spent");
    if (performance.now() > proof.#expires) {
      throw refuse(`the token is older than ${agent.tokenTtlMs} ms; ask the guardrails again`);
    }
    proof.#spent = true;
    return proof.#argumentsText;
  }
}

/** A guardrail said no, or there is no valid token. Nothing ran. A decision about the task, not a broken connection. */
export class GuardrailBlocked extends PolicyViolation {
  readonly agent: string;
  readonly tool: string;
  constructor(agent: string, tool: string, reason: string, detail: ErrorDetail = {}) {
    super("GuardrailBlocked", reason, detail);
    this.agent = agent;
    this.tool = tool;
  }
}

const by = (id: string): readonly Rule[] => [{ id }];
const MAX_SHOWN = 8;

function notHeld(agent: string, tool: unknown, held: ReadonlySet<string>): PolicyViolation {
  const names = [...held].slice(0, MAX_SHOWN).map((name) => `\`${name}\``);
  const more = held.size > MAX_SHOWN ? ` and ${held.size - MAX_SHOWN} more` : "";
  const holds = names.length === 0 ? "nothing" : `${names.join(", ")}${more}`;
  return new PolicyViolation(
    "AuthorizationError",
    `\`${String(tool)}\` is not within the capabilities of agent \`${agent}\`, which holds ${holds}`,
    { rules: by("capability"), suggestions: ["Ask an agent that holds it to make the call or to delegate it"] },
  );
}

function noToken(agent: string, tool: string, problem: string): GuardrailBlocked {
  return new GuardrailBlocked(agent, tool, `\`${tool}\` was not called for agent \`${agent}\`: ${problem}`, {
    rules: by("guardrail.token"),
    suggestions: [`Get a token with guard(${JSON.stringify(tool)}, …) of this very agent, and spend it once`],
  });
}

export function needsGuardrail(agent: string, tool: string, why: string): GuardrailBlocked {
  return new GuardrailBlocked(agent, tool, `\`${tool}\` needs a guardrail token of agent \`${agent}\`: ${why}`, {
    rules: by("guardrail.token"),
    suggestions: [`Get a token with guard(${JSON.stringify(tool)}, …)`],
  });
}

export function wrongPhase(agent: string, what: string, problem: string): ProtocolError {
  return new ProtocolError("WrongPhase", `agent \`${agent}\` cannot ${what}: ${problem}`, { rules: by("phase") });
}

export function stale(agent: string, what: string, why: string): ProtocolError {
  return new ProtocolError("WrongPhase", `agent \`${agent}\` is stale and cannot ${what}: ${why}`, {
    rules: by("agent.stale"),
  });
}
