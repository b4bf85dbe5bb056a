import { createHmac } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type OwnIssuer, ownIssuer } from "../../../test/e2e/own-issuer.js";
import { hashOf, type Prover, prover } from "../../../test/e2e/prover.js";
import { Fault } from "../../mcp/index.js";
import type { Peer } from "../../mcp/transports/index.js";
import type { Principal } from "../../policy/index.js";
import { readOAuthSettings } from "../index.js";
import { type OAuthIdentityOptions, oauthIdentity } from "./identify.js";
import { Proofs } from "./proof.js";

const RESOURCE = "https://gateway.example/mcp";
const POST = { method: "POST", url: RESOURCE };

let issuer: OwnIssuer;
let owner: Prover;
let thief: Prover;
let clock = 0;
beforeAll(async () => {
  [issuer, owner, thief] = await Promise.all([ownIssuer(), prover(), prover()]);
});
afterAll(() => issuer.close());
beforeEach(() => {
  clock = Math.floor(Date.now() / 1_000) * 1_000;
});

interface More {
  readonly settings?: Record<string, unknown>;
  readonly issuer?: Record<string, unknown>;
  readonly options?: Partial<OAuthIdentityOptions>;
}

function identity({ settings = {}, issuer: more = {}, options = {} }: More = {}) {
  const issuers = [{ issuer: issuer.issuer, app: "shop", scopes: { read: ["a"], write: ["b"] }, ...more }];
  const read = readOAuthSettings({ resource: RESOURCE, issuers, ...settings });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const { identify } = oauthIdentity({
    settings: read.settings,
    fetch,
    others: () => {
      throw new Fault("AuthenticationError", "unknown caller");
    },
    now: () => clock,
    ...options,
  });
  return async (...given: Parameters<typeof identify>): Promise<Principal> => identify(...given);
}

const seconds = (): number => clock / 1_000;
const tokenWith = (claims: Record<string, unknown>): Promise<string> =>
  issuer.sign({
    iss: issuer.issuer,
    aud: RESOURCE,
    sub: "alice",
    client_id: "bot",
    scope: "read",
    exp: seconds() + 300,
    ...claims,
  });
const bound = (claims: Record<string, unknown> = {}): Promise<string> =>
  tokenWith({ cnf: { jkt: owner.thumbprint }, ...claims });

function peer(authorization: string, dpop?: string, more: Partial<Peer> = {}): Peer {
  const headers = { authorization, ...(dpop === undefined ? {} : { dpop }) };
  return { transport: "http", address: "test", headers, method: "POST", path: "/mcp", ...more };
}

/** What the caller is told: the words, and OAuth's name for it. */
async function refusal(work: Promise<unknown>): Promise<string> {
  const fault = await work.then(
    () => new Error("it was let in"),
    (error: Fault) => error,
  );
  expect(fault).toMatchObject({ type: "AuthenticationError", code: "UNAUTHENTICATED" });
  const { authenticate } = (fault as Fault).detail;
  const [, scheme, error] = /^(\w+) .*\berror="(\w+)"/.exec(authenticate ?? "") ?? [];
  expect(authenticate).toContain(
    'resource_metadata="https://gateway.example/.well-known/oauth-protected-resource/mcp"',
  );
  if (scheme === "DPoP") expect(authenticate).toContain('algs="RS256 ');
  return `${scheme} ${error}: ${fault.message}`;
}

describe("a token that is bound to a key", () => {
  it("a token that is bound to a key counts with a proof by that key", async () => {
    const token = await bound();
    const proof = await owner.prove({ ...POST, token });
    await expect(identity()(peer(`DPoP ${token}`, proof))).resolves.toMatchObject({ app: "shop", user: "alice" });
    await expect(
      identity()(peer(`dpop ${token}`, await owner.prove({ ...POST, token }))),
      "the scheme's case does not matter",
    ).resolves.toMatchObject({ app: "shop" });
  });

  it.each(["ES256", "ES384", "ES512", "EdDSA", "Ed25519", "RS256", "PS256", "PS384", "RS512"])(
    "a token that is bound to a key counts with a proof by %s",
    async (alg) => {
      const holder = await prover(alg, { modulusLength: 2048 });
      const token = await tokenWith({ cnf: { jkt: holder.thumbprint } });
      const proof = await holder.prove({ ...POST, token });
      await expect(identity()(peer(`DPoP ${token}`, proof))).resolves.toMatchObject({ app: "shop" });
    },
  );

  it("a token that is bound to a key does not count as a bearer token, with or without a proof, also once it is known", async () => {
    const who = identity();
    const token = await bound();
    const proof = await owner.prove({ ...POST, token });
    const why = "DPoP invalid_token: the token is bound to a key; send it as `DPoP` with a proof";
    expect(await refusal(who(peer(`Bearer ${token}`)))).toBe(why);
    expect(await refusal(who(peer(`Bearer ${token}`, proof)))).toBe(why);
    await who(peer(`DPoP ${token}`, proof));
    expect(await refusal(who(peer(`Bearer ${token}`)))).toBe(why);
  });

  it("a token that is bound to a key does not count in a request's own field", async () => {
    const token = await bound();
    const auth = { type: "bearer", token };
    const who = identity();
    expect(await refusal(who({ transport: "tcp", address: "test" }, auth))).toContain("DPoP invalid_token");
    const proof = await owner.prove({ ...POST, token });
    expect(await refusal(who(peer(`DPoP ${token}`, proof), { type: "bearer", token: "other" }))).toContain(
      "unknown caller",
    );
  });

  it("a token that is bound to a key asks for more scope in its own scheme", async () => {
    const token = await bound();
    const principal = await identity()(peer(`DPoP ${token}`, await owner.prove({ ...POST, token })));
    expect(principal.stepUp?.("b")?.detail.authenticate).toMatch(/^DPoP .*error="insufficient_scope".*algs="/);
  });

  it.each<[string, unknown]>([
    ["a certificate", { "x5t#S256": "A".repeat(43) }],
    ["a key and a certificate", { jkt: "A".repeat(43), "x5t#S256": "A".repeat(43) }],
    ["a whole key", { jwk: { kty: "EC" } }],
    ["nothing", {}],
    ["null", null],
    ["a list", ["jkt"]],
    ["a text", "jkt"],
    ["a thumbprint that is none", { jkt: "short" }],
    ["a list of thumbprints", { jkt: ["A".repeat(43)] }],
  ])("rejects a token bound by %s, which cannot be checked [L9]", async (_, cnf) => {
    const token = await tokenWith({ cnf });
    const proof = await owner.prove({ ...POST, token });
    expect(await refusal(identity()(peer(`Bearer ${token}`)))).toContain("Bearer invalid_token: the token is bound by");
    expect(await refusal(identity()(peer(`DPoP ${token}`, proof)))).toContain("cannot be checked");
  });
});

describe("a token that is not bound", () => {
  it("a token that is not bound counts as a bearer token and no other way", async () => {
    const token = await tokenWith({});
    await expect(identity()(peer(`Bearer ${token}`))).resolves.toMatchObject({ app: "shop" });
    const proof = await owner.prove({ ...POST, token });
    expect(await refusal(identity()(peer(`DPoP ${token}`, proof)))).toContain(
      "DPoP invalid_token: the token is not bound",
    );
  });

  it("a token that is not bound does not count where its issuer's have to be bound", async () => {
    const who = identity({ issuer: { dpop: "required" } });
    const token = await tokenWith({});
    expect(await refusal(who(peer(`Bearer ${token}`)))).toMatch(/^DPoP invalid_token: the token is not bound to a key/);
    const good = await bound();
    await expect(who(peer(`DPoP ${good}`, await owner.prove({ ...POST, token: good })))).resolves.toMatchObject({
      app: "shop",
    });
  });
});

describe("a caller without a token", () => {
  const told = async (...dpop: (string | undefined)[]): Promise<string | undefined> => {
    const issuers = dpop.map((each, i) => ({
      issuer: `https://login-${i}.example`,
      name: `login-${i}`,
      app: "shop",
      ...(each === undefined ? {} : { dpop: each }),
    }));
    const who = identity({ settings: { issuers } });
    const fault = await who({ transport: "http", address: "test", headers: {} }).catch((error: Fault) => error);
    return (fault as Fault).detail.authenticate?.replaceAll(/ (resource_metadata|scope|algs)="[^"]*",?/g, "");
  };

  it("a caller without a token is asked for a bound one alone, first, or as well, by what the issuers are to do", async () => {
    expect(await told("required", "required")).toBe("DPoP");
    expect(await told("required", undefined)).toBe("DPoP Bearer");
    expect(await told(undefined, undefined)).toBe("Bearer DPoP");
  });
});

describe("a proof", () => {
  const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  type Make = (token: string) => Promise<string | undefined>;
  const claiming =
    (claims: () => Record<string, unknown>): Make =>
    (token) =>
      owner.prove({ ...POST, token }, claims());
  const headed =
    (header: () => Record<string, unknown>): Make =>
    (token) =>
      owner.prove({ ...POST, token }, {}, header());

  it.each<[string, Make, string]>([
    ["that is missing", async () => undefined, "invalid_dpop_proof: the header `DPoP` with a proof is missing"],
    ["that is empty", async () => "", "hold a signed JWT"],
    ["that is not a JWT", async () => "proof", "hold a signed JWT"],
    ["whose header is not JSON", async () => "a.b.c", "malformed"],
    [
      "that comes twice",
      async (token) => `${await owner.prove({ ...POST, token })}, ${await owner.prove({ ...POST, token })}`,
      "must be there once",
    ],
    ["that is too long", claiming(() => ({ pad: "x".repeat(4_096) })), "hold a signed JWT"],
    ["without a type", headed(() => ({ typ: undefined })), "`typ`"],
    ["of another type", headed(() => ({ typ: "JWT" })), "`typ`"],
    ["that says what else is to be understood", headed(() => ({ crit: ["b64"], b64: true })), "`crit`"],
    [
      "without a signature",
      async (token) =>
        `${b64({ typ: "dpop+jwt", alg: "none", jwk: owner.jwk })}.${b64({ ...claimsOf(token) })}.${b64("x")}`,
      "`alg`",
    ],
    [
      "signed with a secret",
      async (token) => {
        const text = `${b64({ typ: "dpop+jwt", alg: "HS256", jwk: owner.jwk })}.${b64(claimsOf(token))}`;
        return `${text}.${createHmac("sha256", JSON.stringify(owner.jwk)).update(text).digest("base64url")}`;
      },
      "`alg`",
    ],
    ["without a key", headed(() => ({ jwk: undefined })), "`jwk` must be a public key of bounded size"],
    ["with a key that is none", headed(() => ({ jwk: "key" })), "`jwk` must be a public key of bounded size"],
    [
      "with a key of no bounded size",
      headed(() => ({ jwk: { ...owner.jwk, x5c: ["x".repeat(2_048)] } })),
      "`jwk` must be a public key of bounded size",
    ],
    ["with a private key", headed(() => ({ jwk: owner.privateJwk })), "`jwk` must be public"],
    ["with a shared key", headed(() => ({ jwk: { kty: "oct", k: "c2VjcmV0" } })), "`jwk` must be public"],
    ["with a key of a kind not known", headed(() => ({ jwk: { kty: "__proto__" } })), "not a supported public key"],
    ["with a part of a key", headed(() => ({ jwk: { ...owner.jwk, y: undefined } })), "not a supported public key"],
    [
      "by another key",
      (token) => thief.prove({ ...POST, token }),
      "invalid_token: the proof is made with another key than the token is bound to",
    ],
    [
      "by another key in the name of the right one",
      (token) => thief.prove({ ...POST, token }, {}, { jwk: owner.jwk }),
      "signature",
    ],
    [
      "whose claims were changed",
      async (token) => {
        const [head, , signature] = (await owner.prove({ ...POST, token })).split(".");
        return `${head}.${b64({ ...claimsOf(token), jti: "another" })}.${signature}`;
      },
      "signature",
    ],
    ["without an id", claiming(() => ({ jti: undefined })), "`jti`"],
    ["with an empty id", claiming(() => ({ jti: "" })), "`jti`"],
    ["with an id that is not a string", claiming(() => ({ jti: 7 })), "`jti`"],
    ["with an endless id", claiming(() => ({ jti: "x".repeat(257) })), "`jti`"],
    ["without a method", claiming(() => ({ htm: undefined })), "`htm`"],
    ["for another method", claiming(() => ({ htm: "GET" })), "`htm`"],
    ["for a method in another case", claiming(() => ({ htm: "post" })), "`htm`"],
    ["without an address", claiming(() => ({ htu: undefined })), "`htu`"],
    ["for another path", claiming(() => ({ htu: `${RESOURCE}/other` })), "`htu`"],
    ["for another host", claiming(() => ({ htu: "https://other.example/mcp" })), "`htu`"],
    ["for a path alone", claiming(() => ({ htu: "/mcp" })), "`htu`"],
    ["without a token", claiming(() => ({ ath: undefined })), "`ath`"],
    ["for another token", claiming(() => ({ ath: hashOf("another") })), "`ath`"],
    ["without a time", claiming(() => ({ iat: undefined })), "`iat` is missing"],
    ["of a time that is not a number", claiming(() => ({ iat: "now" })), "`iat`"],
    ["that is too old", claiming(() => ({ iat: seconds() - 61 })), "older than 60 s"],
    ["from the future", claiming(() => ({ iat: seconds() + 6 })), "in the future"],
    ["that has expired", claiming(() => ({ exp: seconds() - 10 })), "has expired"],
    ["that is not valid yet", claiming(() => ({ nbf: seconds() + 60 })), "`nbf`"],
  ])("%s does not count [L9]", async (_, make, why) => {
    const who = identity();
    const token = await bound();
    const said = await refusal(who(peer(`DPoP ${token}`, await make(token))));
    expect(said).toContain(why);
    expect(said).toMatch(why.startsWith("invalid_token") ? /^DPoP invalid_token: / : /^DPoP invalid_dpop_proof: /);
    // The same token is not worse for it.
    const good = await owner.prove({ ...POST, token }, { iat: seconds() });
    await expect(who(peer(`DPoP ${token}`, good))).resolves.toMatchObject({ app: "shop" });
  });

  const claimsOf = (token: string) => ({ jti: "1", htm: "POST", htu: RESOURCE, iat: seconds(), ath: hashOf(token) });

  it("a proof by a key too short to be one does not count", async () => {
    const n = Buffer.alloc(128, 0xff).toString("base64url");
    const jwk = { kty: "RSA", n, e: "AQAB" };
    const { calculateJwkThumbprint } = await import("jose");
    const token = await tokenWith({ cnf: { jkt: await calculateJwkThumbprint(jwk) } });
    const head = b64({ typ: "dpop+jwt", alg: "RS256", jwk });
    const said = await refusal(identity()(peer(`DPoP ${token}`, `${head}.${b64(claimsOf(token))}.${n}`)));
    expect(said).toContain("signature");
  });

  it("a proof counts up to its age and a little ahead, as the operator says", async () => {
    const settings = { proofs: { maxAgeSeconds: 10, maxAheadSeconds: 2 } };
    const who = identity({ settings });
    const token = await bound();
    const at = async (offset: number): Promise<unknown> =>
      who(peer(`DPoP ${token}`, await owner.prove({ ...POST, token }, { iat: seconds() + offset })));
    await expect(at(-10)).resolves.toMatchObject({ app: "shop" });
    await expect(at(2)).resolves.toMatchObject({ app: "shop" });
    expect(await refusal(at(-11))).toContain("older than 10 s");
    expect(await refusal(at(3))).toContain("future");
  });

  it("counts once, for as long as it could count at all [L9]", async () => {
    const who = identity();
    const token = await bound();
    const proof = await owner.prove({ ...POST, token }, { iat: seconds() + 5 });
    await who(peer(`DPoP ${token}`, proof));
    for (const waitMs of [0, 1_000, 59_000, 4_999]) {
      clock += waitMs;
      expect(await refusal(who(peer(`DPoP ${token}`, proof)))).toContain(
        "invalid_dpop_proof: the proof was used before",
      );
    }
    clock += 2;
    expect(await refusal(who(peer(`DPoP ${token}`, proof)))).toContain("older than 60 s");
  });

  it("a proof counts once, also with many at a time", async () => {
    const who = identity();
    const token = await bound();
    const proof = await owner.prove({ ...POST, token });
    const all = await Promise.allSettled(Array.from({ length: 20 }, () => who(peer(`DPoP ${token}`, proof))));
    expect(all.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  it("a proof may have the id that another's proof has", async () => {
    const who = identity();
    for (const holder of [owner, thief]) {
      const token = await tokenWith({ cnf: { jkt: holder.thumbprint } });
      const proof = await holder.prove({ ...POST, token }, { jti: "1" });
      await expect(who(peer(`DPoP ${token}`, proof))).resolves.toMatchObject({ app: "shop" });
    }
  });

  it("a proof counts for the whole of its request, however many messages are in it", async () => {
    const who = identity();
    const token = await bound();
    const request = peer(`DPoP ${token}`, await owner.prove({ ...POST, token }));
    await Promise.all([who(request), who(request)]);
    await expect(who(request)).resolves.toMatchObject({ app: "shop" });
  });

  it("a proof counts for its connection, and the token's end counts for each message", async () => {
    const who = identity();
    const token = await bound({ exp: seconds() + 120 });
    const proof = await owner.prove({ method: "GET", url: "wss://gateway.example/mcp", token });
    const connection = peer(`DPoP ${token}`, proof, { transport: "websocket", method: "GET" });
    await who(connection);
    clock += 100_000;
    await expect(who(connection)).resolves.toMatchObject({ app: "shop" });
    clock += 60_000;
    expect(await refusal(who(connection))).toBe("DPoP invalid_token: the token has expired");
  });

  it("a proof that did not count does not count for the next message either", async () => {
    const who = identity();
    const token = await bound();
    const connection = peer(`DPoP ${token}`, await thief.prove({ ...POST, token }));
    expect(await refusal(who(connection))).toContain("another key");
    expect(await refusal(who(connection))).toContain("another key");
  });

  it("a proof is for a request: without one there is nothing to prove", async () => {
    const token = await bound();
    const proof = await owner.prove({ ...POST, token });
    const { method: _, path: __, ...nowhere } = peer(`DPoP ${token}`, proof);
    expect(await refusal(identity()(nowhere))).toContain("`htm`");
    expect(await refusal(identity()({ ...nowhere, method: "POST" }))).toContain("`htu`");
  });
});

describe("what replicas remember together", () => {
  it("what replicas remember together is asked once for each proof that is right, and its no is a no", async () => {
    const asked: [string, number][] = [];
    const once = (id: string, ttlMs: number): boolean => asked.push([id, ttlMs]) === 1;
    const token = await bound();
    const proof = await owner.prove({ ...POST, token }, { jti: "an id with : in it" });
    const [one, two] = [identity({ options: { once } }), identity({ options: { once } })];
    expect(await refusal(one(peer(`DPoP ${token}`, await thief.prove({ ...POST, token }))))).toContain("another key");
    expect(asked).toHaveLength(0);
    await one(peer(`DPoP ${token}`, proof));
    expect(await refusal(two(peer(`DPoP ${token}`, proof)))).toContain("used before");
    expect(asked[0]).toEqual(asked[1]);
    expect(asked[0]?.[0]).toMatch(new RegExp(`^${owner.thumbprint}:[\\w-]{43}$`));
    expect(asked[0]?.[1]).toBe(70_000);
  });

  it("what replicas remember together is a no while it cannot be asked, and the next proof is asked about again", async () => {
    const answers: (() => Promise<boolean>)[] = [
      () => Promise.reject(new Error("the store does not answer")),
      async () => true,
    ];
    const who = identity({ options: { once: () => (answers.shift() as () => Promise<boolean>)() } });
    const token = await bound();
    const send = async () => who(peer(`DPoP ${token}`, await owner.prove({ ...POST, token })));
    await expect(send()).rejects.toMatchObject({ type: "Unavailable" });
    await expect(send()).resolves.toMatchObject({ app: "shop" });
  });

  it("what replicas remember together is asked no more than so many times at once", async () => {
    const waiting: ((isFirst: boolean) => void)[] = [];
    const once = () => new Promise<boolean>((resolve) => waiting.push(resolve));
    const now = () => clock;
    const proofs = new Proofs({
      roots: ["https://gateway.example"],
      maxAgeMs: 60_000,
      maxAheadMs: 5_000,
      now,
      once,
      maxChecking: 1,
    });
    const send = async (token: string) =>
      proofs.accept(peer("", await owner.prove({ ...POST, token })), hashOf(token), owner.thumbprint);
    const first = send("one");
    await expect.poll(() => waiting.length).toBe(1);
    await expect(send("two")).rejects.toMatchObject({ type: "Unavailable" });
    waiting[0]?.(true);
    await first;
    const third = send("three");
    await expect.poll(() => waiting.length).toBe(2);
    waiting[1]?.(true);
    await third;
  });

  it("leaves a connection to its proof, which was used when it could not be asked", async () => {
    const once = () => Promise.reject(new Fault("Unavailable", "the store does not answer"));
    const who = identity({ options: { once } });
    const token = await bound();
    const connection = peer(`DPoP ${token}`, await owner.prove({ ...POST, token }));
    await expect(who(connection)).rejects.toMatchObject({ type: "Unavailable" });
    expect(await refusal(who(connection))).toContain("used before");
  });
});
