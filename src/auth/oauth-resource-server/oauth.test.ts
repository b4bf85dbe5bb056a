import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type OwnIssuer, ownIssuer } from "../../../test/e2e/own-issuer.js";
import { Fault } from "../../mcp/index.js";
import type { Principal } from "../../policy/index.js";
import { checkKeyAgent } from "../api-keys/create.js";
import { readOAuthSettings } from "../index.js";
import { oauthIdentity } from "./identify.js";
import { principalOf, ScopeTable } from "./principal.js";
import type { IssuerSettings } from "./settings.js";

const RESOURCE = "https://gateway.example/mcp";

let issuer: OwnIssuer;
let clock = 0;
beforeEach(async () => {
  issuer = await ownIssuer();
  clock = Date.now();
});
afterEach(() => issuer.close());

function identity(more: Record<string, unknown> = {}, bounds: { maxCached?: number; pauseMs?: number } = {}) {
  const read = readOAuthSettings({ resource: RESOURCE, issuers: [{ issuer: issuer.issuer, app: "shop", ...more }] });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const { identify } = oauthIdentity({
    settings: read.settings,
    fetch,
    others: () => {
      throw new Fault("AuthenticationError", "unknown caller");
    },
    now: () => clock,
    ...bounds,
  });
  return async (token: string): Promise<Principal> =>
    identify({ transport: "http", address: "test", headers: { authorization: `Bearer ${token}` } });
}

const sign = (more: Record<string, unknown> = {}): Promise<string> => {
  const now = Math.floor(clock / 1_000);
  return issuer.sign({ iss: issuer.issuer, aud: RESOURCE, sub: "alice", client_id: "bot", exp: now + 3_600, ...more });
};

const fetches = (): number => issuer.asked.filter((path) => path === "/keys").length;

describe("keys of an issuer", () => {
  it("keys of an issuer are fetched once for many tokens at once", async () => {
    const who = identity();
    const tokens = await Promise.all(Array.from({ length: 20 }, (_, i) => sign({ jti: String(i) })));
    await Promise.all(tokens.map(who));
    expect(issuer.asked).toEqual(["/.well-known/oauth-authorization-server", "/keys"]);
  });

  it("keys of an issuer are fetched again for a key that is not known, and the old ones are forgotten [L9]", async () => {
    const who = identity();
    await who(await sign());
    const old = await sign({ jti: "old" });
    await issuer.rotate("second");
    clock += 16_000;
    await expect(who(await sign({ jti: "new" }))).resolves.toMatchObject({
      app: "shop",
      agent: "bot|alice",
      user: "alice",
    });
    await expect(who(old)).rejects.toThrow("signature");
  });

  it("keys of an issuer are not fetched again and again because strangers make up key names", async () => {
    const who = identity();
    await who(await sign());
    clock += 16_000;
    const made = await Promise.all(
      Array.from({ length: 50 }, (_, i) => issuer.sign({ iss: issuer.issuer }, { kid: `k${i}` })),
    );
    for (const token of made) await expect(who(token)).rejects.toThrow("signature");
    expect(fetches()).toBe(2);
  });

  it("keeps old signing keys valid for a while when new ones cannot be fetched, then denies every token", async () => {
    const who = identity();
    await who(await sign({ exp: clock / 1_000 + 100_000 }));
    issuer.fail = true;
    clock += 20 * 60_000;
    await expect(who(await sign({ jti: "later" }))).resolves.toMatchObject({ app: "shop" });
    clock += 50 * 60_000;
    await expect(who(await sign({ jti: "too late" }))).rejects.toMatchObject({ type: "Unavailable" });
  });

  it("keys of an issuer that are secret are not taken", async () => {
    const secret = Buffer.from("a shared secret of 32 characters").toString("base64url");
    issuer.jwks.keys.unshift({ kty: "oct", k: secret, kid: "shared", alg: "HS256" });
    await expect(identity()(await sign())).resolves.toMatchObject({ app: "shop" });
  });

  it("keys of an issuer of metadata that names another issuer are not taken", async () => {
    const read = readOAuthSettings({ resource: RESOURCE, issuers: [{ issuer: `${issuer.issuer}/`, app: "shop" }] });
    if (!read.ok) throw new Error("unexpected");
    const { identify } = oauthIdentity({ settings: read.settings, fetch, others: () => ({}) as Principal });
    const token = await sign({ iss: `${issuer.issuer}/` });
    const headers = { authorization: `Bearer ${token}` };
    await expect(async () => identify({ transport: "http", address: "test", headers })).rejects.toMatchObject({
      type: "Unavailable",
    });
    expect(fetches()).toBe(0);
  });
});

describe("an issuer that does not answer", () => {
  const silent = "https://silent.example";
  const hanging = new Promise<never>(() => {});

  it("an issuer that does not answer does not keep the tokens of another issuer from being checked", async () => {
    const read = readOAuthSettings({
      resource: RESOURCE,
      issuers: [
        { issuer: issuer.issuer, app: "shop", name: "one" },
        { issuer: silent, app: "blog", name: "other" },
      ],
    });
    if (!read.ok) throw new Error(JSON.stringify(read.problems));
    const { identify } = oauthIdentity({
      settings: read.settings,
      fetch: (url, init) => (String(url).startsWith(silent) ? hanging : fetch(url, init)),
      others: () => ({}) as Principal,
      maxVerifying: 2,
    });
    const who = async (token: string): Promise<Principal> =>
      identify({ transport: "http", address: "test", headers: { authorization: `Bearer ${token}` } });
    const theirs = await Promise.all(Array.from({ length: 3 }, (_, i) => sign({ iss: silent, jti: String(i) })));
    const results = theirs.map(who);
    await expect(results[2]).rejects.toMatchObject({ type: "Unavailable" });
    await expect(who(await sign())).resolves.toMatchObject({ app: "shop" });
  });

  it("an issuer that does not answer does not keep tokens with a known key from being checked while strangers name unknown keys", async () => {
    let isSilent = false;
    const read = readOAuthSettings({ resource: RESOURCE, issuers: [{ issuer: issuer.issuer, app: "shop" }] });
    if (!read.ok) throw new Error(JSON.stringify(read.problems));
    const { identify } = oauthIdentity({
      settings: read.settings,
      fetch: (url, init) => (isSilent ? hanging : fetch(url, init)),
      others: () => ({}) as Principal,
      pauseMs: 0,
    });
    const who = async (token: string): Promise<Principal> =>
      identify({ transport: "http", address: "test", headers: { authorization: `Bearer ${token}` } });
    await who(await sign());
    isSilent = true;
    const made = await Promise.all(
      Array.from({ length: 300 }, (_, i) => issuer.sign({ iss: issuer.issuer }, { kid: `k${i}` })),
    );
    for (const token of made) void who(token).catch(() => {});
    await expect(who(await sign({ jti: "mine" }))).resolves.toMatchObject({ app: "shop" });
  });
});

describe("a verified token", () => {
  it("a verified token is kept for a minute at most, and never beyond its end [L9]", async () => {
    const who = identity({ introspection: { clientId: "gateway", clientSecret: "a secret: 100%" } });
    const token = await sign();
    await who(token);
    issuer.revoked.add(token);
    clock += 59_000;
    await who(token);
    clock += 2_000;
    await expect(who(token)).rejects.toThrow("revoked");
    const short = await sign({ exp: Math.floor(clock / 1_000) + 20 });
    await who(short);
    clock += 60_000;
    await expect(who(short)).rejects.toThrow("expired");
  });

  it("a verified token makes room for others when there are too many", async () => {
    const who = identity({}, { maxCached: 2 });
    const first = await sign({ jti: "1" });
    const principal = await who(first);
    expect(await who(first)).toBe(principal);
    await who(await sign({ jti: "2" }));
    await who(await sign({ jti: "3" }));
    expect(await who(first)).not.toBe(principal);
  });

  it("a verified token is never sent, with our secret, to another origin that the metadata or a redirect names", async () => {
    const secret = { clientId: "gateway", clientSecret: "a secret: 100%" };
    const other = await ownIssuer();
    try {
      const [, port = ""] = other.issuer.split("127.0.0.1:");
      const named = [other.issuer, `http://localhost:${port}`, `http://LOCALHOST:${port}`];
      for (const address of [...named, issuer.issuer.replace("127.0.0.1", "localhost")]) {
        issuer.introspectionEndpoint = `${address}/introspect`;
        await expect(identity({ introspection: secret })(await sign())).rejects.toMatchObject({ type: "Unavailable" });
      }
      const host = new URL(issuer.issuer).host;
      issuer.introspectionEndpoint = `http://${host}@127.0.0.1:${port}/introspect`;
      await expect(identity({ introspection: secret })(await sign())).rejects.toThrow();
      issuer.introspectionEndpoint = undefined;
      issuer.redirect = `${other.issuer}/introspect`;
      await expect(identity({ introspection: secret })(await sign())).rejects.toMatchObject({ type: "Unavailable" });
      expect(other.credentials).toEqual([]);
      const endpoint = `${other.issuer}/introspect`;
      await identity({ introspection: { ...secret, endpoint } })(await sign());
      expect(other.credentials).toHaveLength(1);
    } finally {
      await other.close();
    }
  });

  it("a verified token is refused when the issuer cannot be asked", async () => {
    const who = identity({ introspection: { clientId: "gateway", clientSecret: "wrong" } });
    await expect(who(await sign())).rejects.toMatchObject({ type: "Unavailable" });
  });
});

describe("claims", () => {
  it("claims name client and person, under the issuer's name where it has one", async () => {
    expect(await identity({ name: "corp" })(await sign())).toMatchObject({
      agent: "corp!bot|alice",
      user: "corp!alice",
    });
  });

  it("names the groups of a caller by the operator's claim, under the issuer's name where it has one", async () => {
    const groups = ["staff", "editors", "staff"];
    expect(await identity({ groups: "roles" })(await sign({ roles: groups }))).toMatchObject({
      groups: ["editors", "staff"],
    });
    expect(await identity({ groups: "roles", name: "corp" })(await sign({ roles: "staff" }))).toMatchObject({
      groups: ["corp!staff"],
    });
    expect(await identity({ groups: "roles" })(await sign())).toMatchObject({ groups: [] });
    expect(await identity()(await sign({ groups }))).not.toHaveProperty("groups");
  });

  it.each<[string, Record<string, unknown>]>([
    ["hold something else than names", { groups: ["staff", 7] }],
    ["hold an invisible character", { groups: ["sta\u200bff"] }],
    ["are an object", { groups: { staff: true } }],
    ["are to be fetched from another address", { _claim_names: { groups: "src1" } }],
  ])("refuses a token whose groups %s", async (_, claims) => {
    const refused = { type: "AuthenticationError", message: expect.stringContaining("`groups`") };
    await expect(identity({ groups: "groups" })(await sign(claims))).rejects.toMatchObject(refused);
  });

  it("maps two different callers to different agents and users", async () => {
    const plain = identity();
    const named = identity({ name: "corp" });
    const callers: [typeof plain, object][] = [
      [plain, { client_id: "bot", sub: "alice" }],
      [plain, { client_id: "bot", sub: "bob" }],
      [plain, { client_id: "bot", sub: "bot" }],
      [plain, { client_id: undefined, sub: "bot" }],
      [plain, { client_id: "bot|alice", sub: "bot|alice" }],
      [plain, { client_id: "bot|alice", sub: "bob" }],
      [plain, { client_id: "bot", sub: "alice|bob" }],
      [plain, { client_id: "bot%7Calice", sub: "bob" }],
      [plain, { client_id: "corp!bot", sub: "alice" }],
      [plain, { client_id: "corp", sub: "!bot|alice" }],
      [named, { client_id: "bot", sub: "alice" }],
      [named, { client_id: "bot", sub: "bot" }],
    ];
    const principals = await Promise.all(callers.map(async ([who, claims]) => who(await sign({ ...claims }))));
    expect(new Set(principals.map(({ agent }) => agent)).size).toBe(callers.length);
    expect(principals.at(-2)?.user).not.toBe(principals[0]?.user);
  });

  it("maps any two different callers to different agents, none of which a key can have [L9]", () => {
    const characters = fc.constantFrom("a", "b", "!", "|", "%", "%7C", "/", " ", "é");
    const name = fc
      .array(characters, { minLength: 1, maxLength: 4 })
      .map((parts) => parts.join(""))
      .filter((text) => text.trim() === text && !text.includes("  "));
    const caller = fc.record({
      issuer: fc.constantFrom(undefined, "corp", "b"),
      client: fc.option(name, { nil: undefined }),
      sub: name,
    });
    type Caller = typeof caller extends fc.Arbitrary<infer T> ? T : never;
    const settingsOf = (called: string | undefined): IssuerSettings => {
      const given = { issuer: "https://a.example", app: "shop", ...(called === undefined ? {} : { name: called }) };
      const read = readOAuthSettings({ resource: RESOURCE, issuers: [given] });
      if (!read.ok) throw new Error(JSON.stringify(read.problems));
      return read.settings.issuers[0] as IssuerSettings;
    };
    const who = ({ issuer: called, client, sub }: Caller): Principal => {
      const settings = settingsOf(called);
      const claims = { sub, ...(client === undefined ? {} : { client_id: client }) };
      return principalOf(claims, settings, new ScopeTable(settings), () => "");
    };
    fc.assert(
      fc.property(caller, caller, (a, b) => {
        const isSame = a.issuer === b.issuer && a.client === b.client && a.sub === b.sub;
        expect(who(a).agent === who(b).agent).toBe(isSame);
        expect(() => checkKeyAgent(who(a).agent)).toThrow("reserved");
      }),
      { numRuns: 2_000 },
    );
  });

  it.each<[string, unknown]>([
    ["is missing", undefined],
    ["is null", null],
    ["is empty", ""],
    ["is a number", 7],
    ["is a list", ["alice"]],
    ["is longer than 512 characters", "a".repeat(513)],
    ["has a line break", "alice\nadmin"],
    ["has a NUL", "alice\0"],
    ["has an invisible character", "ali\u200bce"],
    ["has a variation selector", "alice\ufe0f"],
    ["has a filler", "alice\u3164"],
    ["ends with a space", "alice "],
    ["begins with a space", " alice"],
    ["has two spaces in a row", "alice  b"],
    ["has a no-break space", "alice\u00a0b"],
    ["is decomposed", "e\u0301ve"],
    ["is an object", { name: "alice" }],
    ["is a truth value", true],
    ["has half of a surrogate pair", "alice\ud800"],
  ])("refuses a token whose `sub`, user claim or agent claim %s [L9]", async (_, value) => {
    const refused = { type: "AuthenticationError" };
    await expect(identity()(await sign({ sub: value }))).rejects.toMatchObject(refused);
    // A valid `sub` does not replace a configured claim.
    await expect(identity({ user: "email" })(await sign({ email: value }))).rejects.toMatchObject(refused);
    await expect(identity({ agent: "robot" })(await sign({ robot: value }))).rejects.toMatchObject(refused);
    await expect(identity({ user: "email" })(await sign({ sub: value, email: "a@b" }))).rejects.toMatchObject(refused);
    // A client claim may be absent, but not invalid.
    if (value !== undefined) await expect(identity()(await sign({ client_id: value }))).rejects.toMatchObject(refused);
  });

  it("claims keeps two users apart who share a configured agent claim", async () => {
    const who = identity({ agent: "robot" });
    const agents = await Promise.all(
      ["one", "two"].map(
        async (client) => (await who(await sign({ robot: "r", client_id: client, sub: client }))).agent,
      ),
    );
    expect(new Set(agents).size).toBe(2);
  });

  it("claims of a person whose user name is that of a client are not the client's own", async () => {
    const who = identity({ user: "preferred_username" });
    const own = await who(await sign({ sub: "bot", client_id: "bot", preferred_username: "bot" }));
    const person = await who(await sign({ sub: "42", client_id: "bot", preferred_username: "bot" }));
    expect([own.agent, own.user, person.agent, person.user]).toEqual(["bot|", undefined, "bot|bot", "bot"]);
  });

  it("claims of a client that calls for itself name no person", async () => {
    expect(await identity()(await sign({ sub: "bot" }))).not.toHaveProperty("user");
  });

  it("claims say which application only by the operator's map", async () => {
    const who = identity({ app: undefined, apps: { claim: "azp", values: { one: "shop" } } });
    await expect(who(await sign({ azp: "one" }))).resolves.toMatchObject({ app: "shop" });
    for (const azp of ["shop", "two", "", "__proto__", "constructor", ["one"], undefined]) {
      await expect(who(await sign({ azp }))).rejects.toThrow("no application");
    }
  });

  it("open tools by scope, as a text or a list; unknown scopes open nothing", async () => {
    const who = identity({ scopes: { read: ["notes.*"], admin: ["*"] } });
    expect((await who(await sign({ scope: "read other" }))).tools?.has("notes.get")).toBe(true);
    expect((await who(await sign({ scp: ["read"] }))).tools?.has("notes.get")).toBe(true);
    for (const scope of ["", "READ", "rea", "read,admin", undefined]) {
      expect((await who(await sign({ scope }))).tools?.has("notes.get")).toBe(false);
    }
  });

  it("open resources and prompts only by scopes that name them [L9]", async () => {
    const who = identity({
      scopes: { tools: ["tool:*"], docs: ["resource:doc://open/*", "prompt:hello"], all: ["*"] },
    });
    const reach = async (scope: string): Promise<unknown[]> => {
      const { tools, resources, prompts } = await who(await sign({ scope }));
      return [tools?.has("x"), resources?.has("doc://open/a"), resources?.has("doc://a"), prompts?.has("hello")];
    };
    expect(await reach("")).toEqual([false, false, false, false]);
    expect(await reach("tools")).toEqual([true, false, false, false]);
    expect(await reach("docs")).toEqual([false, true, false, true]);
    expect(await reach("all")).toEqual([true, true, true, true]);
  });

  it("claims without scope for a tool that no scope opens are told nothing", async () => {
    const who = identity({ scopes: { read: ["notes.*"] } });
    const principal = await who(await sign());
    expect(principal.stepUp?.("notes.get")?.detail.authenticate).toContain('scope="read"');
    expect(principal.stepUp?.("shell.run")).toBeUndefined();
  });
});

describe("settings", () => {
  it.each<[string, object, string]>([
    ["neither app nor apps", { issuers: [{ issuer: "https://a.example" }] }, "never chooses"],
    [
      "two issuers without a name",
      {
        issuers: [
          { issuer: "https://a.example", app: "a" },
          { issuer: "https://b.example", app: "a" },
        ],
      },
      "must differ",
    ],
    [
      "a symmetric algorithm",
      { issuers: [{ issuer: "https://a.example", app: "a", algorithms: ["HS256"] }] },
      "one of",
    ],
    ["a resource with a query", { resource: "https://a.example/?x", issuers: [] }, "without query"],
  ])("%s is refused", (_, value, why) => {
    const read = readOAuthSettings({ resource: RESOURCE, ...value });
    expect(read.ok ? "" : read.problems.map(({ message }) => message).join()).toContain(why);
  });
});
