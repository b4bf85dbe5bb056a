// From a token to who is calling and what they hold. Everything that does not depend on the call is settled here.

import type { JsonObject } from "../../mcp/index.js";
import {
  type Block,
  DelegationRefused,
  decodeBlock,
  type HopBlock,
  type RootBlock,
  TOKEN_LIMITS,
  type UseBlock,
} from "./block.js";
import { type DelegationKeys, gatewayName } from "./keys.js";
import { checkNarrowed } from "./narrowing.js";
import { HMAC_PREFIX, openHmac, openSigned, SIGNED_PREFIX } from "./proof.js";

/** A use may live this long at most: nonces are remembered for that time. */
export const MAX_USE_MS = 5 * 60_000;
/** How far the clock of the spender of a token may be ahead of this gateway's. */
const SKEW_MS = 30_000;

/** Who is calling, by which way they came to hold what they hold. */
export interface DelegationChain {
  readonly agent: string;
  readonly app: string;
  /** What arrives at the agent, by the names of the workflow. */
  readonly capabilities: ReadonlySet<string>;
  readonly hops: readonly HopBlock[];
  /** Root first; one agent more than there are hops. */
  readonly agents: readonly string[];
  /** Absent where the caller is itself an agent with authority of its own. */
  readonly use: UseBlock | undefined;
  /** When what was delegated ends, in milliseconds since 1970. A call that waits for an approval may outlive it. */
  readonly expires: number;
  /** For the decision's record. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface ChainOptions {
  /** Those in force now: they may be replaced while the reader is in use. */
  readonly keys: () => DelegationKeys;
  readonly rules: () => DelegationRules;
  /** Public keys of other gateways whose delegations are accepted. */
  readonly trusted?: readonly string[];
  readonly now?: () => number;
}

export class ChainReader {
  readonly #keys: () => DelegationKeys;
  readonly #rules: () => DelegationRules;
  readonly #trusted: ReadonlyMap<string, string>;
  readonly #now: () => number;
  readonly #started: number;

  constructor({ keys, rules, trusted = [], now = Date.now }: ChainOptions) {
    this.#keys = keys;
    this.#rules = rules;
    this.#trusted = new Map(trusted.map((key) => [gatewayName(key), key]));
    this.#now = now;
    this.#started = now();
  }

  /** Throws a DelegationRefused that says what is wrong. */
  read(token: string): DelegationChain {
    const signed = token.startsWith(SIGNED_PREFIX);
    if (!signed && !token.startsWith(HMAC_PREFIX)) {
      throw new DelegationRefused("malformed", "the delegation token is of no kind that is known here");
    }
    const own = this.#accepted();
    const publicKeyOf = (gateway: string): string | undefined =>
      own.find((keys) => keys.gateway === gateway)?.publicKey ?? this.#trusted.get(gateway);
    const { texts, by } = signed ? { texts: openSigned(token, publicKeyOf), by: undefined } : openOwn(token, own);
    const { root, hops, use } = sorted(texts.map((text) => decodeBlock(text).block));
    if (by !== undefined && root.issuer !== by.gateway)
      throw new DelegationRefused("forged", "another gateway minted it");
    if (!own.some(({ gateway }) => gateway === use.audience)) {
      throw new DelegationRefused(
        "wrong-audience",
        `this token is for the gateway \`${use.audience}\`, not for this one`,
      );
    }
    const expires = this.#checkTimes(root, hops, use);
    return { ...this.#chain(root, hops, use, signed ? "ed25519" : "hmac"), expires };
  }

  /** The chain of an agent that is known by its own credential and has authority of its own. */
  ofRoot(app: string, agent: string): DelegationChain | undefined {
    const rules = this.#rules();
    const capabilities = rules.isRoot(agent) ? rules.offered(agent) : undefined;
    if (capabilities === undefined) return undefined;
    const record = { delegation: { workflow: rules.workflow, chain: [{ agent, holds: capabilities.size }] } };
    return { agent, app, capabilities, hops: [], agents: [agent], use: undefined, expires: Infinity, record };
  }

  /** The current keys first. */
  #accepted(): readonly DelegationKeys[] {
    const keys = this.#keys();
    const now = this.#now();
    return [keys, ...(keys.older ?? []).filter(({ until }) => now < until)];
  }

  /** The end of the whole chain. */
  #checkTimes(root: RootBlock, hops: readonly HopBlock[], use: UseBlock): number {
    const now = this.#now();
    let expires = root.expires;
    for (const hop of hops) {
      if (hop.expires === undefined) continue;
      if (hop.expires > expires) {
        throw new DelegationRefused("widened", `\`${hop.to}\` was given more time than its delegator had`);
      }
      expires = hop.expires;
    }
    if (Math.min(expires, use.expires) <= now) {
      throw new DelegationRefused("expired", "the delegation token has expired; ask for a new one");
    }
    // What was used before this process began is not remembered, so nothing from then is taken.
    if (use.issued < this.#started) {
      throw new DelegationRefused("expired", "this token was spent before the gateway started; spend a new one");
    }
    if (use.expires > now + MAX_USE_MS || use.issued > now + SKEW_MS) {
      throw new DelegationRefused("malformed", `a token may be spent for ${MAX_USE_MS / 1_000} seconds at most`);
    }
    return expires;
  }

  #chain(root: RootBlock, hops: readonly HopBlock[], use: UseBlock, kind: string): Omit<DelegationChain, "expires"> {
    const rules = this.#rules();
    const offered = rules.isRoot(root.agent) ? rules.offered(root.agent) : undefined;
    if (offered === undefined) {
      throw new DelegationRefused("not-declared", `\`${root.agent}\` has no authority of its own in this workflow`);
    }
    let held = only(offered, root.tools, root.agent);
    const agents = [root.agent];
    const steps: unknown[] = [{ agent: root.agent, holds: held.size, ...narrowing(root) }];
    for (const hop of hops) {
      const from = agents.at(-1) as string;
      const passes = rules.passedOn(from, hop.to);
      const theirs = rules.offered(hop.to);
      if (passes === undefined || theirs === undefined) {
        throw new DelegationRefused(
          "not-declared",
          `the workflow has no delegation from \`${from}\` to \`${hop.to}\`; declare it and have it checked first`,
        );
      }
      const given = only(held, hop.tools, hop.to);
      checkNarrowed(given, hop);
      held = new Set([...given].filter((name) => theirs.has(name) && passes(name)));
      agents.push(hop.to);
      steps.push({ agent: hop.to, holds: held.size, ...narrowing(hop) });
    }
    const record = {
      delegation: {
        token: kind,
        issuer: root.issuer,
        id: root.id,
        use: use.nonce,
        workflow: rules.workflow,
        chain: steps,
      },
    };
    return { agent: agents.at(-1) as string, app: root.app, capabilities: held, hops, agents, use, record };
  }
}

function sorted(blocks: readonly Block[]): { root: RootBlock; hops: readonly HopBlock[]; use: UseBlock } {
  const [root, ...rest] = blocks;
  const use = rest.pop();
  if (rest.some((block) => block.kind === "use")) {
    throw new DelegationRefused(
      "malformed",
      "the token was spent already, and nothing follows that: spend the delegation itself",
    );
  }
  if (root?.kind !== "root" || blocks.length > TOKEN_LIMITS.maxBlocks || rest.some((block) => block.kind !== "hop")) {
    throw new DelegationRefused("malformed", "the blocks of the delegation token are not in order, or too many");
  }
  if (use?.kind !== "use") {
    throw new DelegationRefused("unspent", "a delegation is not sent itself: spend it on this request first");
  }
  return { root, hops: rest as HopBlock[], use };
}

/** Opens a token that one of these keys minted. */
function openOwn(token: string, own: readonly DelegationKeys[]): { texts: string[]; by: DelegationKeys } {
  let failure: unknown;
  for (const by of own) {
    try {
      return { texts: openHmac(token, by), by };
    } catch (error) {
      failure ??= error;
    }
  }
  throw failure;
}

/** Naming what the delegator does not hold is an attempt to widen, and refused as a whole. */
function only(held: ReadonlySet<string>, tools: readonly string[] | undefined, agent: string): ReadonlySet<string> {
  if (tools === undefined) return held;
  const more = tools.find((tool) => !held.has(tool));
  if (more !== undefined) {
    throw new DelegationRefused("widened", `\`${agent}\` was given \`${more}\`, which its delegator does not hold`);
  }
  return new Set(tools);
}

function narrowing(block: RootBlock | HopBlock): Record<string, unknown> {
  const args = block.kind === "hop" ? block.arguments : undefined;
  return {
    ...(block.tools === undefined ? {} : { tools: block.tools }),
    ...(args === undefined ? {} : { arguments: args }),
    ...(block.expires === undefined ? {} : { expires: new Date(block.expires).toISOString() }),
  };
}

/** Answers at once where it can. */
export type RuleAnswer = boolean | Promise<boolean>;

/**
 * The rules of a workflow about delegation. Capabilities are the workflow's names; tools are the
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
  takes(capability: string, args: JsonObject): RuleAnswer;
  /** Whether one of the delegations between them lets this very call through. */
  admits(from: string, to: string, capability: string, args: JsonObject): RuleAnswer;
  /** Whether the agent's allow list has this very call. */
  allows(agent: string, capability: string, args: JsonObject): RuleAnswer;
  /** Whether arguments fit a schema that a token carries. */
  fits(schema: JsonObject | boolean, args: JsonObject): RuleAnswer;
  toolOf(capability: string): string | undefined;
  capabilityOf(tool: string): string | undefined;
}
