// What an operator says about OAuth: who may issue tokens for this gateway, and what a token is worth here.

import {
  type Infer,
  integer,
  list,
  object,
  oneOf,
  optional,
  record,
  required,
  type ShapeProblem,
  textShape,
} from "../../mcp/index.js";
import { GRANT_PATTERN } from "../granted.js";

/** Asymmetric only: with a shared secret every verifier of tokens could issue them. */
export const ALGORITHMS = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
] as const;

const address = (about: string) => textShape(about, { min: 1, max: 2_048 });
const claim = (about: string) => textShape(about, { min: 1, max: 256 });
const appName = textShape("an application", {
  max: 63,
  pattern: "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
  patternSays: "must be an application's id",
});
const grant = textShape("a tool, resource:URI or prompt:NAME, or a pattern", {
  max: 300,
  pattern: GRANT_PATTERN,
  patternSays: "must be a tool name, `resource:` with a URI or `prompt:` with a name; * stands for anything",
});

const issuer = object("an authorization server whose tokens count here", {
  issuer: required(address("its issuer identifier, exactly as it stands in tokens")),
  name: optional(
    textShape("in front of its agents and users, so that those of two issuers are not mixed up", {
      max: 63,
      pattern: "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
      patternSays: "must have letters, digits, - and _",
    }),
  ),
  audience: optional(list("accepted besides the resource", address("an audience"), { max: 16 })),
  app: optional(appName),
  apps: optional(
    object("the application by a claim that the issuer sets", {
      claim: required(claim("the claim, such as azp or client_id")),
      values: required(
        record("value of the claim to application", appName, {
          max: 10_000,
          names: "^.{1,512}$",
          namesSay: "it has 1 to 512 characters",
        }),
      ),
    }),
  ),
  agent: optional(claim("the claim that names the agent; client_id, azp or sub unless said")),
  user: optional(claim("the claim that names the person; sub unless said")),
  groups: optional(claim("the claim that lists the groups of the caller; policies see none unless said")),
  scopes: optional(
    record("what a scope lets its holder use", list("tools, resources and prompts", grant, { max: 1_000 }), {
      max: 1_000,
      names: "^[\\x21\\x23-\\x5b\\x5d-\\x7e]{1,256}$",
      namesSay: "it must be a scope: visible ASCII without quotes and backslashes",
    }),
  ),
  algorithms: optional(list("accepted signatures", oneOf("an algorithm", ALGORITHMS), { max: 16 })),
  jwksUri: optional(address("where its keys are, when its metadata does not say")),
  dpop: optional(oneOf("its tokens count only when they are bound to a key and come with a proof", ["required"])),
  perMinute: optional(integer("calls in a minute, for each user of each client", { min: 1, max: 1_000_000_000 })),
  perHour: optional(integer("calls in an hour", { min: 1, max: 1_000_000_000 })),
  introspection: optional(
    object("ask the issuer whether a token was revoked, at most once in 60 s for each", {
      clientId: required(claim("our client there")),
      clientSecret: required(textShape("its secret; write ${env:NAME}", { min: 1, max: 4_096 })),
      endpoint: optional(address("the introspection endpoint, where it is at another origin than the issuer")),
    }),
  ),
});

const settings = object("OAuth at this gateway", {
  resource: required(address("this gateway's MCP address as its callers write it: the audience of their tokens")),
  name: optional(textShape("shown to people who log in", { min: 1, max: 200 })),
  documentation: optional(address("where developers read on")),
  proofs: optional(
    object("proofs of possession (DPoP) that come with bound tokens", {
      maxAgeSeconds: optional(integer("how old one may be; 60 unless said", { min: 1, max: 600 })),
      maxAheadSeconds: optional(integer("how far a caller's clock may be ahead; 5 unless said", { min: 0, max: 60 })),
      roots: optional(
        list(
          "where this gateway's paths begin as callers write them, besides the resource's origin",
          address("a root"),
          {
            max: 16,
          },
        ),
      ),
    }),
  ),
  issuers: required(list("who may issue tokens", issuer, { max: 64 })),
});

export type IssuerSettings = Infer<typeof issuer>;
export type OAuthSettings = Infer<typeof settings>;

/** The scope that lets its holder use everything of its application, where the operator named no scopes. */
export const DEFAULT_SCOPES: Readonly<Record<string, readonly string[]>> = { "mcp:tools": ["*"] };

export type SettingsRead =
  | { readonly ok: true; readonly settings: OAuthSettings }
  | { readonly ok: false; readonly problems: readonly ShapeProblem[] };

export function readOAuthSettings(value: unknown): SettingsRead {
  const problems: ShapeProblem[] = [];
  const read = settings.check(value, [], problems);
  if (!read) return { ok: false, problems };
  problems.push(...addressProblems(read), ...issuerProblems(read.issuers));
  return problems.length > 0 ? { ok: false, problems } : { ok: true, settings: read };
}

function addressProblems({ resource, proofs }: OAuthSettings): ShapeProblem[] {
  const problems: ShapeProblem[] = [];
  if (!isPlain(resource, /^https?:$/)) {
    problems.push({ path: ["resource"], message: "must be an http or https address without query and fragment" });
  }
  for (const [i, root] of (proofs?.roots ?? []).entries()) {
    if (isPlain(root, /^(https?|wss?):$/)) continue;
    const message = "must be an http, https, ws or wss address without query and fragment";
    problems.push({ path: ["proofs", "roots", i], message });
  }
  return problems;
}

function isPlain(text: string, protocols: RegExp): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && protocols.test(url.protocol) && url.hash === "" && url.search === "";
}

function issuerProblems(issuers: readonly IssuerSettings[]): ShapeProblem[] {
  const problems: ShapeProblem[] = [];
  const seen = new Map<string, Set<string>>([
    ["issuer", new Set()],
    ["name", new Set()],
  ]);
  for (const [i, each] of issuers.entries()) {
    const path = ["issuers", i];
    if ((each.app === undefined) === (each.apps === undefined)) {
      problems.push({ path, message: "must have either `app` or `apps`; a caller never chooses its application" });
    }
    for (const [field, taken] of seen) {
      // Without a name counts as one: two issuers without it would share their users.
      const value = each[field as "issuer" | "name"] ?? "";
      if (taken.has(value))
        problems.push({ path: [...path, field], message: "must differ from that of other issuers" });
      taken.add(value);
    }
  }
  return problems;
}
