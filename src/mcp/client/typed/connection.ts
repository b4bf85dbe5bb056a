// The connection that the agents of one tree share. Its gate lets a call of theirs pass only while a token is being
// spent on exactly that call: who holds the gate and calls in an agent's name without a token is refused as well.

import { canonicalize, createGate, type Gate, loadPolicy } from "../../../policy/index.js";
import type { JsonObject } from "../../index.js";
import type { ToolDefinition, ToolResult } from "../../server/index.js";
import type { Client } from "../client.js";
import { type ConnectTarget, connect } from "../connect.js";
import { ChallengeRequired, ProtocolError, ToolFailure } from "../errors.js";
import type { ConnectOptions, RequestOptions } from "../options.js";
import type { Life } from "./life.js";

export interface AgentConnectOptions extends ConnectOptions {
  /**
   * Cedar text, checked against the tools that the server lists. With neither `policy` nor `gate`, an agent may make
   * the calls it holds the capability and a token for; the server's own gate decides as it always does.
   */
  policy?: string;
}

const CAPABILITIES_DECIDE = '@id("capabilities") permit (principal, action, resource);';
/** Calls of one agent under way at once. */
const MAX_UNDER_WAY = 1_024;

/** Agents that live on a gate: two with one name could not be told apart by it. */
const living = new WeakMap<Gate, Set<string>>();

export class TypedConnection {
  readonly #client: Client;
  readonly #gate: Gate;
  readonly #tools: ReadonlyMap<string, ToolDefinition>;
  readonly #agents = new Map<Life, { underWay: Map<string, number>; unregister: () => void }>();

  private constructor(client: Client, gate: Gate, tools: ReadonlyMap<string, ToolDefinition>) {
    this.#client = client;
    this.#gate = gate;
    this.#tools = tools;
  }

  static async open(target: ConnectTarget, options: AgentConnectOptions, first: Life): Promise<TypedConnection> {
    const { policy, onClose, ...rest } = options;
    if (policy !== undefined && rest.gate) throw new TypeError("give a `policy` or a `gate`, not both");
    const gate = rest.gate ?? createGate();
    const server = rest.server ?? "server";
    const client = await connect(target, {
      ...rest,
      gate,
      server,
      onClose: (error) => {
        first.connection?.lost(error);
        onClose?.(error);
      },
    });
    try {
      const tools = await client.listTools();
      if (!rest.gate) {
        const known = tools.map(({ name, inputSchema }) => ({ name, inputSchema, server }));
        gate.swap(loadPolicy([{ file: "policy.cedar", text: policy ?? CAPABILITIES_DECIDE }], known));
      }
      const connection = new TypedConnection(client, gate, new Map(tools.map((tool) => [tool.name, tool])));
      connection.#mustOffer(first);
      connection.enter(first);
      return connection;
    } catch (error) {
      await client.close();
      throw error;
    }
  }

  #mustOffer(agent: Life): void {
    const missing = [...agent.held.names].filter((name) => !this.#tools.has(name)).map((name) => `\`${name}\``);
    if (missing.length === 0) return;
    throw new ProtocolError(
      "ToolNotFound",
      `agent \`${agent.id}\` holds ${missing.slice(0, 8).join(", ")}, which the server does not offer; ` +
        "generate the tool map anew, or leave it out of the toolset",
    );
  }

  /** From here on the gate refuses calls in this agent's name that no token was spent on. */
  enter(agent: Life): void {
    const names = living.get(this.#gate) ?? new Set();
    living.set(this.#gate, names);
    if (names.has(agent.name)) {
      throw new TypeError(`there is an agent \`${agent.id}\` already; end it first or choose another id`);
    }
    if (this.#agents.size >= agent.settings.maxAgents) {
      throw new RangeError(`${this.#agents.size} agents live on this connection; end some or raise maxAgents`);
    }
    const underWay = new Map<string, number>();
    const unregister = this.#gate.guardrails.register({
      id: "guardrail.token",
      agent: agent.name,
      tool: "*",
      callback: (call) =>
        underWay.has(keyOf(call.tool, canonicalize(call.arguments)))
          ? undefined
          : `no guardrail token of agent \`${agent.id}\` was spent on this call of \`${call.tool}\``,
    });
    names.add(agent.name);
    this.#agents.set(agent, { underWay, unregister });
  }

  leave(agent: Life): void {
    this.#agents.get(agent)?.unregister();
    if (this.#agents.delete(agent)) living.get(this.#gate)?.delete(agent.name);
  }

  async call(agent: Life, tool: string, argumentsText: string, options: RequestOptions): Promise<unknown> {
    const signal = options.signal ? AbortSignal.any([options.signal, agent.over]) : agent.over;
    const context = { ...options, signal, app: agent.settings.app, agent: agent.id, allowed: agent.held.names };
    const args = JSON.parse(argumentsText) as JsonObject;
    const run = (): Promise<ToolResult> => this.#client.callToolSecure(tool, args, context);
    return this.#valueOf(tool, await this.#during(agent, keyOf(tool, argumentsText), run));
  }

  /** What the agents' connection is closed with; their ends are not waited for. */
  async close(): Promise<void> {
    await this.#client.close();
  }

  lost(error: Error | undefined): void {
    const why = error ? `the connection was lost: ${error.message}` : "the connection is closed";
    for (const agent of this.#agents.keys()) agent.end(why);
  }

  async #during(agent: Life, key: string, run: () => Promise<ToolResult>): Promise<ToolResult> {
    const underWay = this.#agents.get(agent)?.underWay;
    if (!underWay) throw new ProtocolError("WrongPhase", `agent \`${agent.id}\` is over`);
    if (underWay.size >= MAX_UNDER_WAY) {
      throw new ProtocolError("TooMany", `agent \`${agent.id}\` has ${MAX_UNDER_WAY} calls under way`);
    }
    underWay.set(key, (underWay.get(key) ?? 0) + 1);
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof ChallengeRequired)) throw error;
      // Waiting for approval continues with the same call, and so with the token that was spent on it.
      const { challenge, rules, suggestions, data } = error;
      const detail = { rules, suggestions, cause: error, ...(data === undefined ? {} : { data }) };
      throw new ChallengeRequired(challenge, (how) => this.#during(agent, key, () => error.wait(how)), detail);
    } finally {
      const left = (underWay.get(key) ?? 1) - 1;
      if (left === 0) underWay.delete(key);
      else underWay.set(key, left);
    }
  }

  /** A tool with an output schema gives its structured content; of any other the whole result is all there is. */
  #valueOf(tool: string, result: ToolResult): unknown {
    if (this.#tools.get(tool)?.outputSchema === undefined) return result;
    if (result.structuredContent !== undefined) return result.structuredContent;
    throw new ToolFailure("OutputInvalid", `\`${tool}\` declares an output schema and gave no structured content`, {
      result,
    });
  }
}

function keyOf(tool: string, argumentsText: string): string {
  return `${tool}\n${argumentsText}`;
}
