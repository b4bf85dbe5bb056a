// From a token's claims to who is calling. The application comes from the operator's settings; a token can at most
// say, by a claim that its issuer sets, which of the applications named there.

import { createHash } from "node:crypto";
import type { JWTPayload } from "jose";
import { Fault, isJsonObject, steadyTimeOf } from "../../mcp/index.js";
import type { Principal } from "../../policy/index.js";
import { Granted } from "../granted.js";
import { DEFAULT_SCOPES, type IssuerSettings } from "./settings.js";
import { TokenRefused } from "./verify.js";

const MAX_SCOPES = 256;
const MAX_NAME = 512;

/** The scopes of an issuer, each with what it opens. Made once. */
export class ScopeTable {
  readonly #scopes: ReadonlyMap<string, readonly string[]>;
  readonly #granted: ReadonlyMap<string, Granted>;

  constructor(settings: Pick<IssuerSettings, "scopes">) {
    const entries = Object.entries(settings.scopes ?? DEFAULT_SCOPES);
    this.#scopes = new Map(entries);
    this.#granted = new Map(entries.map(([scope, patterns]) => [scope, new Granted(patterns)]));
  }

  get names(): string[] {
    return [...this.#scopes.keys()];
  }

  opens(scopes: readonly string[]): Granted {
    return new Granted(scopes.flatMap((scope) => this.#scopes.get(scope) ?? []));
  }

  /** The first scope, in the operator's order, that would open this tool. */
  neededFor(tool: string): string | undefined {
    for (const [scope, { tools }] of this.#granted) if (tools.has(tool)) return scope;
    return undefined;
  }
}

export interface AuthenticateChallenge {
  (error: "insufficient_scope", description: string, scope: string): string;
}

export function principalOf(
  claims: JWTPayload,
  settings: IssuerSettings,
  table: ScopeTable,
  challenge: AuthenticateChallenge,
): Principal {
  const scope = scopesOf(claims);
  const { tools, resources, prompts } = table.opens(scope);
  const subject = nameClaim(claims, "sub");
  const client = optionalName(claims, "client_id") ?? optionalName(claims, "azp");
  const user = settings.user === undefined ? subject : nameClaim(claims, settings.user);
  // A client that calls for itself represents no person. Its `sub` says so: a person may have a client's name as user name.
  const person = subject === client && user === client ? undefined : user;
  // A configured agent claim may be the same for several clients, so the user part is always present with it.
  const agent =
    settings.agent === undefined
      ? agentName(settings.name, client, person)
      : agentName(settings.name, nameClaim(claims, settings.agent), user);
  const { perMinute, perHour } = settings;
  return {
    app: applicationOf(claims, settings),
    agent,
    ...(person === undefined ? {} : { user: nameWithin(settings.name, person) }),
    ...(settings.groups === undefined ? {} : { groups: groupsOf(claims, settings.groups, settings.name) }),
    tools,
    resources,
    prompts,
    ...(claims.exp === undefined ? {} : { expiresAt: steadyTimeOf(claims.exp * 1_000, Date.now()) }),
    credential: credentialOf(settings.issuer, client ?? "", subject),
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
 * and records belong to the agent: those of one person are never another's. A client that calls for itself is
 * `client|`, and a token that names no client gives `|user`.
 * INVARIANT: two different callers have different names, and none of them is an API key's: `!` and the first `|` are
 * reserved. They are escaped in claims and not accepted in the agent name of a key (`OAUTH_NAME`).
 */
function agentName(issuer: string | undefined, client: string | undefined, person: string | undefined): string {
  const prefix = issuer === undefined ? "" : `${issuer}!`;
  return `${prefix}${escaped(client ?? "", /[%!|]/g)}|${escaped(person ?? "", /[%!]/g)}`;
}

function nameWithin(issuer: string | undefined, person: string): string {
  return `${issuer === undefined ? "" : `${issuer}!`}${escaped(person, /[%!]/g)}`;
}

function escaped(text: string, ours: RegExp): string {
  return text.replace(ours, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
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

/** Control and invisible characters, and halves of surrogate pairs: names that look alike or are stored alike. */
const NOT_IN_NAMES = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;
/** Spaces that are not seen, or are taken for the ordinary one. */
const UNSEEN_SPACE = /^ | $| {2}|[^\S ]|\u2800/;

/** Refuses a token that does not say who is calling: any substitute would be shared by several callers. */
function nameClaim(claims: JWTPayload, claim: string): string {
  return nameOf(Object.hasOwn(claims, claim) ? claims[claim] : undefined, claim);
}

function nameOf(value: unknown, claim: string): string {
  const wrong = (problem: string): TokenRefused => new TokenRefused(`the token's \`${claim}\` ${problem}`);
  if (value === undefined || value === null || value === "") throw wrong("is missing or empty");
  if (typeof value !== "string") throw wrong("is not a string");
  if (value.length > MAX_NAME) throw wrong(`is longer than ${MAX_NAME} characters`);
  if (NOT_IN_NAMES.test(value) || UNSEEN_SPACE.test(value)) throw wrong("has control or invisible characters");
  if (value !== value.normalize("NFC")) throw wrong("is not in Unicode normalization form C");
  return value;
}

/** Like `nameClaim`, for a claim that a token may leave out. */
function optionalName(claims: JWTPayload, claim: string): string | undefined {
  return Object.hasOwn(claims, claim) && claims[claim] !== undefined ? nameClaim(claims, claim) : undefined;
}

/**
 * `corp!editors` of a named issuer, so that no issuer says who is in a group of another. A list that cannot be read as a
 * whole refuses the token: a rule may forbid something to a group.
 */
function groupsOf(claims: JWTPayload, claim: string, issuer: string | undefined): string[] {
  const value = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
  if (value === undefined) {
    const named = claims._claim_names;
    if (!isJsonObject(named) || !Object.hasOwn(named, claim)) return [];
    throw new TokenRefused(`the token's \`${claim}\` is not in the token (\`_claim_names\`), and is not fetched`);
  }
  const all = Array.isArray(value) ? value : [value];
  return [...new Set(all.map((each) => nameWithin(issuer, nameOf(each, claim))))].sort();
}

/** `scope` as RFC 9068 has it, `scp` as some issuers do, as a text or as a list. */
function scopesOf(claims: JWTPayload): string[] {
  const value = claims.scope ?? claims.scp ?? [];
  const all = typeof value === "string" ? value.split(" ") : Array.isArray(value) ? value : [];
  const scopes = all.filter((each): each is string => typeof each === "string" && each !== "");
  if (scopes.length > MAX_SCOPES) throw new TokenRefused(`the token has more than ${MAX_SCOPES} scopes`);
  return scopes;
}
