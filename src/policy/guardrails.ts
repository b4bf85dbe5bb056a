// Guardrail callbacks run before a tool does. They mint a token or block; a token is for one agent, one tool and
// these arguments, and is spent once. Callbacks belong to the agent they were registered for and are never inherited.

import type { JsonObject } from "../mcp/index.js";
import { type Intent, intentForwarded } from "./intent.js";
import { type CallTarget, type CheckResult, deny, type Principal } from "./types.js";

export interface GuardrailCall {
  readonly app: string;
  readonly agent: string;
  readonly tool: string;
  readonly intentId: string;
  /** A private copy: changing it changes nothing. */
  readonly arguments: JsonObject;
  /** What travels beside the arguments (`_meta`, `inputResponses`, further allowed fields); also a private copy. */
  readonly forwarded: JsonObject;
}

/** Returns nothing to let the call pass, or the reason why it is blocked. Throwing blocks. */
export type GuardrailCallback = (
  call: GuardrailCall,
) => undefined | string | { block: string } | Promise<undefined | string | { block: string }>;

export interface Guardrail {
  readonly id: string;
  /** Exact agent (`app/agent` or `agent`), or `*` for every agent by an explicit choice of the operator. */
  readonly agent: string;
  /** Exact tool name, a prefix ending in `*`, or `*`. */
  readonly tool: string;
  readonly callback: GuardrailCallback;
}

export class GuardrailProof {
  readonly #agent: string;
  readonly #intentId: string;
  #spent = false;
  private constructor(agent: string, intentId: string) {
    this.#agent = agent;
    this.#intentId = intentId;
  }

  /** INVARIANT: called by the callback runner alone; the class is exported as a type only. */
  static mint(agent: string, intentId: string): GuardrailProof {
    return new GuardrailProof(agent, intentId);
  }

  /** True once, for the agent and the arguments it was minted for. A look-alike object has no private state. */
  static spend(token: unknown, agent: string, intentId: string): boolean {
    if (typeof token !== "object" || token === null || !(#spent in token)) return false;
    if (token.#spent || token.#agent !== agent || token.#intentId !== intentId) return false;
    token.#spent = true;
    return true;
  }
}

export type GuardrailAnswer = { token: GuardrailProof } | { blocked: CheckResult };

/** The agent as which a guardrail calls a tool; no API key and no token can have this name. */
export function guardrailAgent(id: string): string {
  return `guardrail:${id}`;
}

/** The rule that denies a tool without a registered callback. */
export const MISSING_GUARDRAIL = "guardrail.missing";

const DEFAULT_TIMEOUT_MS = 5_000;
const MAX_GUARDRAILS = 10_000;

export class CallbackRunner {
  readonly #guardrails: Guardrail[] = [];
  readonly #timeoutMs: number;
  constructor(options: { timeoutMs?: number } = {}) {
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  }

  register(guardrail: Guardrail): () => void {
    checkGuardrail(guardrail);
    if (this.#guardrails.length >= MAX_GUARDRAILS) throw new RangeError(`more than ${MAX_GUARDRAILS} guardrails`);
    this.#guardrails.push(guardrail);
    return () => {
      const at = this.#guardrails.indexOf(guardrail);
      if (at !== -1) this.#guardrails.splice(at, 1);
    };
  }

  /** Synchronous whenever no callback has to be waited for. */
  run(principal: Principal, target: CallTarget, intent: Intent): GuardrailAnswer | Promise<GuardrailAnswer> {
    const agent = `${principal.app}/${principal.agent}`;
    const mine = this.#guardrails.filter((g) => coversAgent(g, principal, agent) && coversTool(g, nameOf(target)));
    if (mine.length > 0) return this.#runAll(mine, principal, target, intent, agent);
    if (target.noGuardrailRequired) return { token: GuardrailProof.mint(agent, intent.id) };
    return {
      blocked: deny(
        "GuardrailBlocked",
        MISSING_GUARDRAIL,
        `\`${target.name}\` has no guardrail callback for agent \`${agent}\`, and is not declared to need none`,
        {
          suggestions: [
            "Register a guardrail for this agent and tool",
            "Or let the tool's author (or, for a third-party tool, the operator) set noGuardrailRequired",
          ],
        },
      ),
    };
  }

  /** Under `serve --observe` a missing guardrail is noted, not enforced; a callback that blocks still blocks. */
  observed(principal: Principal, intent: Intent): GuardrailProof {
    return GuardrailProof.mint(`${principal.app}/${principal.agent}`, intent.id);
  }

  async #runAll(
    mine: readonly Guardrail[],
    principal: Principal,
    target: CallTarget,
    intent: Intent,
    agent: string,
  ): Promise<GuardrailAnswer> {
    for (const guardrail of mine) {
      const reason = await this.#ask(guardrail, {
        app: principal.app,
        agent: principal.agent,
        tool: nameOf(target),
        intentId: intent.id,
        arguments: JSON.parse(intent.argumentsText) as JsonObject,
        forwarded: intentForwarded(intent),
      });
      if (reason !== undefined) return { blocked: deny("GuardrailBlocked", guardrail.id, reason) };
    }
    return { token: GuardrailProof.mint(agent, intent.id) };
  }

  async #ask(guardrail: Guardrail, call: GuardrailCall): Promise<string | undefined> {
    let timer: NodeJS.Timeout | undefined;
    const expired = new Promise<string>((resolve) => {
      timer = setTimeout(
        () => resolve(`guardrail \`${guardrail.id}\` did not answer within ${this.#timeoutMs} ms`),
        this.#timeoutMs,
      );
    });
    try {
      const answer = await Promise.race([guardrail.callback(call), expired]);
      return answer === undefined ? undefined : reasonIn(guardrail, answer);
    } catch (error) {
      return `guardrail \`${guardrail.id}\` failed: ${(error as Error)?.message ?? error}`;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** A guardrail that could never match a call, or never run, would be missing without notice. */
function checkGuardrail(guardrail: Guardrail): void {
  const { id, agent, tool, callback } = guardrail;
  for (const [field, value] of Object.entries({ id, agent, tool })) {
    if (typeof value === "string" && value !== "") continue;
    throw new TypeError(`a guardrail needs \`${field}\` as text; \`agent\` and \`tool\` may be "*" for every one`);
  }
  if (typeof callback !== "function") throw new TypeError(`guardrail \`${id}\` needs \`callback\` as a function`);
}

/** Anything but undefined blocks; a value that is not a valid reason is reported as such. */
function reasonIn(guardrail: Guardrail, answer: unknown): string {
  const reason = typeof answer === "object" && answer !== null && "block" in answer ? answer.block : answer;
  if (typeof reason === "string" && reason !== "") return reason;
  const shown = typeof answer === "object" ? "an object" : String(answer);
  return `guardrail \`${guardrail.id}\` answered ${answer === null ? "null" : shown || "an empty text"}: it returns nothing to let a call pass, or the reason why not`;
}

/** A server's request to a client is guarded by its method's name. */
function nameOf(target: CallTarget): string {
  return target.serverRequest ? target.action : target.name;
}

function coversAgent(guardrail: Guardrail, principal: Principal, agent: string): boolean {
  return guardrail.agent === "*" || guardrail.agent === agent || guardrail.agent === principal.agent;
}

function coversTool(guardrail: Guardrail, tool: string): boolean {
  if (guardrail.tool === "*" || guardrail.tool === tool) return true;
  return guardrail.tool.endsWith("*") && tool.startsWith(guardrail.tool.slice(0, -1));
}
