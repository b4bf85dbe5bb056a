// A caller that holds a delegation: its credential says which application it is of, the token says which agent it is
// and what it may reach. A token never takes a caller into another application, and never adds to its credential.

import { Fault, isJsonObject, type JsonValue, steadyTimeOf } from "../mcp/index.js";
import type { Peer } from "../mcp/transports/index.js";
import { type ChainReader, type DelegationChain, DelegationRefused, type Principal } from "../policy/index.js";
import type { Identify } from "./index.js";

/** Where a spent token travels: a header on HTTP, a field of `_meta` everywhere. */
export const DELEGATION_HEADER = "portcullis-delegation";
export const DELEGATION_META = "portcullis/delegation";

export interface DelegatedOptions {
  readonly base: Identify;
  readonly reader: ChainReader;
  /** The gateway's name of a capability; undefined for what it does not serve. */
  readonly toolOf: (capability: string) => string | undefined;
  /** The application whose callers are agents of the workflow. Those of others are as they were. */
  readonly app: string;
}

/** A caller without a token must be an agent with authority of its own. */
export function delegatedIdentity({ base, reader, toolOf, app }: DelegatedOptions): Identify {
  return async (peer, auth, meta) => {
    const known = await base(peer, auth, meta);
    if (known.app !== app) return known;
    const token = tokenOf(peer, meta);
    const chain = token === undefined ? reader.ofRoot(known.app, known.agent) : read(reader, token, known);
    if (chain === undefined) {
      throw new Fault(
        "AuthenticationError",
        `a workflow is served here, and \`${known.agent}\` has no authority of its own in it`,
        {
          suggestions: [
            `Send a delegation in the header \`${DELEGATION_HEADER}\` or in \`_meta\` as \`${DELEGATION_META}\``,
          ],
        },
      );
    }
    const delegated = new Set([...chain.capabilities].flatMap((capability) => toolOf(capability) ?? []));
    const via = token === undefined ? known.via : "delegation";
    const expiresAt = Math.min(known.expiresAt ?? Number.POSITIVE_INFINITY, steadyTimeOf(chain.expires, Date.now()));
    const holder = known.agent === chain.agent ? {} : { holder: known.agent };
    return { ...known, ...within(known, delegated), agent: chain.agent, ...holder, via, delegation: chain, expiresAt };
  };
}

const NONE = { has: () => false };

/** What the credential allows and the delegation has; a larger scope would not help with what was not delegated. */
function within({ tools, shown, stepUp }: Principal, delegated: ReadonlySet<string>): Partial<Principal> {
  return {
    tools: { has: (tool) => delegated.has(tool) && (tools?.has(tool) ?? true) },
    // A workflow delegates tools; resources and prompts are not part of it.
    resources: NONE,
    prompts: NONE,
    ...(shown === undefined ? {} : { shown: { has: (tool: string) => delegated.has(tool) && shown.has(tool) } }),
    ...(stepUp === undefined ? {} : { stepUp: (tool: string) => (delegated.has(tool) ? stepUp(tool) : undefined) }),
  };
}

function tokenOf(peer: Peer, meta: JsonValue | undefined): string | undefined {
  const header = peer.headers?.[DELEGATION_HEADER];
  const field = isJsonObject(meta) ? meta[DELEGATION_META] : undefined;
  if (header === undefined && field === undefined) return undefined;
  const token = field ?? header;
  if (typeof token !== "string" || (header !== undefined && header !== token)) {
    throw new Fault("AuthenticationError", "a request carries one delegation token, as text");
  }
  return token;
}

function read(reader: ChainReader, token: string, known: Principal): DelegationChain {
  try {
    const chain = reader.read(token);
    if (chain.app === known.app) return chain;
    throw new DelegationRefused("forged", "the delegation token belongs to another application");
  } catch (error) {
    if (!(error instanceof DelegationRefused)) throw error;
    throw new Fault("AuthenticationError", error.message, { extra: { delegation: error.code } });
  }
}
