// From a token's claims to who is calling. The application comes from the operator's settings; a token can at most
// say, by a claim that its issuer sets, which of the applications named there.

import { createHash } from "node:crypto";
import type { JWTPayload } from "jose";
import type { Principal } from "../../gate/index.js";
import { Fault } from "../../protocol/index.js";
import { ToolMatcher } from "../keys/permissions.js";
import { DEFAULT_SCOPES, type IssuerSettings } from "./settings.js";
import { TokenRefused } from "./verify.js";

const MAX_SCOPES = 256;
const MAX_NAME = 512;

/** The scopes of an issuer, each with what it opens. Made once. */
export class ScopeTable {
  readonly #tools: ReadonlyMap<string, ToolMatcher>;

  constructor(settings: Pick<IssuerSettings, "scopes">) {
    const entries = Object.entries(settings.scopes ?? DEFAULT_SCOPES);
    this.#tools = new Map(entries.map(([scope, patterns]) => [scope, new ToolMatcher(patterns)]));
  }

  get names(): string[] {
    return [...this.#tools.keys()];
  }

  opens(scopes: readonly string[]): { has(tool: string): boolean } {
    const matchers = scopes.flatMap((scope) => this.#tools.get(scope) ?? []);
    return { has: (tool) => matchers.some((matcher) => matcher.has(tool)) };
  }

  /** The first scope, in the operator's order, that would open this tool. */
  neededFor(tool: string): string | undefined {
    for (const [scope, matcher] of this.#tools) if (matcher.has(tool)) return scope;
    return undefined;
  }
}

export interface Challenge {
  (error: "insufficient_scope", description: string, scope: string): string;
}

export function principalOf(
  claims: JWTPayload,
  settings: IssuerSettings,
  table: ScopeTable,
  challenge: Challenge,
): Principal {
  const scope = scopesOf(claims);
  const tools = table.opens(scope);
  const client = textClaim(claims, "client_id") ?? textClaim(claims, "azp");
  const subject = textClaim(claims, settings.user ?? "sub");
  const named = settings.agent === undefined ? (client ?? subject) : textClaim(claims, settings.agent);
  if (named === undefined) throw new TokenRefused(`the token's \`${settings.agent ?? "sub"}\` is missing`);
  // A client that calls for itself stands for no person.
  const person = subject === undefined || subject === client ? undefined : subject;
  const { perMinute, perHour } = settings;
  return {
    app: applicationOf(claims, settings),
    agent: agentName(settings.name, named, person),
    ...(person === undefined ? {} : { user: userName(settings.name, person) }),
    tools,
    credential: credentialOf(settings.issuer, client ?? "", claims.sub ?? ""),
    ...(perMinute === undefined && perHour === undefined
      ? {}
      : {
          limits: { ...(perMinute === undefined ? {} : { perMinute }), ...(perHour === undefined ? {} : { perHour }) },
        }),
    scope,
    via: "oauth",
    stepUp: (tool) => {
      if (tools.has(tool)) return undefined;
      const needed = table.neededFor(tool);
      if (needed === undefined) return undefined;
      const held = table.names.filter((name) => scope.includes(name));
      return new Fault("AuthorizationError", `the token's scope does not cover \`${tool}\``, {
        authenticate: challenge("insufficient_scope", "the tool needs more scope", [...held, needed].join(" ")),
        extra: { required_scope: needed },
        suggestions: [`Get a token with scope \`${needed}\` as well`],
      });
    },
  };
}

/**
 * `client|user`, under the issuer's name: `corp!client|user`. One client serves many people, and sessions, approvals
 * and records are the agent's: those of one person are never another's.
 * INVARIANT: no two callers have the same name. `!` and the first `|` are ours; in claims they are escaped.
 */
function agentName(issuer: string | undefined, named: string, person: string | undefined): string {
  const client = escaped(named, /[%!|]/g);
  const prefix = issuer === undefined ? "" : `${issuer}!`;
  return person === undefined || person === named ? prefix + client : `${prefix}${client}|${escaped(person, /[%!]/g)}`;
}

function userName(issuer: string | undefined, person: string): string {
  return `${issuer === undefined ? "" : `${issuer}!`}${escaped(person, /[%!]/g)}`;
}

function escaped(text: string, ours: RegExp): string {
  return text.replace(ours, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** The same for every token of a person with a client: a fresh token brings no fresh limits. */
function credentialOf(issuer: string, client: string, subject: string): string {
  const digest = createHash("sha256")
    .update(JSON.stringify([issuer, client, subject]))
    .digest("base64url");
  return `oauth_${digest.slice(0, 22)}`;
}

function applicationOf(claims: JWTPayload, { app, apps }: IssuerSettings): string {
  if (app !== undefined) return app;
  const value = apps && textClaim(claims, apps.claim);
  const found = value !== undefined && apps && Object.hasOwn(apps.values, value) ? apps.values[value] : undefined;
  if (found === undefined) throw new TokenRefused("the token is for no application here");
  return found;
}

function textClaim(claims: JWTPayload, claim: string): string | undefined {
  const value = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
  return typeof value === "string" && value !== "" && value.length <= MAX_NAME ? value : undefined;
}

/** `scope` as RFC 9068 has it, `scp` as some issuers do, as a text or as a list. */
function scopesOf(claims: JWTPayload): string[] {
  const value = claims.scope ?? claims.scp ?? [];
  const all = typeof value === "string" ? value.split(" ") : Array.isArray(value) ? value : [];
  const scopes = all.filter((each): each is string => typeof each === "string" && each !== "");
  if (scopes.length > MAX_SCOPES) throw new TokenRefused(`the token has more than ${MAX_SCOPES} scopes`);
  return scopes;
}
