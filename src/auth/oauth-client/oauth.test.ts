// The client against servers that lie. One HTTP server plays resource and authorization server; each test changes a part.

import { createHash, generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { codeFrom, readChallenge } from "./authorization.js";
import { OAuthClient, type OAuthClientOptions } from "./client.js";
import { safeUrl } from "./json-fetch.js";
import { metadataUrls, type ServerMetadata } from "./metadata.js";
import { memoryGrants } from "./types.js";

type Answer = { status?: number; body?: unknown; location?: string };

let origin = "";
let asked: { path: string; body: string; authorization: string | undefined }[] = [];
let answers: Record<string, Answer | ((body: URLSearchParams) => Answer)> = {};
let stop: () => void = () => {};

beforeEach(async () => {
  const http = createServer((req, res) => {
    let body = "";
    req.on("data", (chunk) => {
      body += String(chunk);
    });
    req.on("end", () => {
      const path = req.url?.split("?")[0] as string;
      asked.push({ path, body, authorization: req.headers.authorization });
      const found = answers[path];
      const answer = typeof found === "function" ? found(new URLSearchParams(body)) : found;
      const headers = {
        "content-type": "application/json",
        ...(answer?.location ? { location: answer.location } : {}),
      };
      res.writeHead(answer?.status ?? (answer ? 200 : 404), headers);
      res.end(typeof answer?.body === "string" ? answer.body : JSON.stringify(answer?.body ?? {}));
    });
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  stop = () => {
    http.close();
    http.closeAllConnections();
  };
  asked = [];
  answers = {
    "/.well-known/oauth-protected-resource/mcp": {
      body: { resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: ["a", "b"] },
    },
    "/.well-known/oauth-authorization-server": { body: metadata() },
    "/register": { status: 201, body: { client_id: "registered" } },
    "/token": { body: { access_token: "first", token_type: "Bearer", expires_in: 3600, refresh_token: "r1" } },
  };
});
afterEach(() => stop());

const metadata = (): Record<string, unknown> => ({
  issuer: origin,
  authorization_endpoint: `${origin}/authorize`,
  token_endpoint: `${origin}/token`,
  registration_endpoint: `${origin}/register`,
  code_challenge_methods_supported: ["S256"],
});

/** A person whose browser brings back what the server says, here with changes. */
const person =
  (change: (answer: URL) => void = () => {}) =>
  async (url: URL): Promise<URL> => {
    const answer = new URL(url.searchParams.get("redirect_uri") as string);
    answer.searchParams.set("code", "the-code");
    answer.searchParams.set("state", url.searchParams.get("state") as string);
    change(answer);
    return answer;
  };

function client(more: Partial<OAuthClientOptions> = {}): OAuthClient {
  return new OAuthClient({
    url: new URL(`${origin}/mcp`),
    fetch,
    identity: {},
    store: memoryGrants(),
    grant: "code",
    redirectUri: "http://127.0.0.1:1/callback",
    authorize: person(),
    ...more,
  });
}

const unauthorized = { status: 401, wwwAuthenticate: undefined };
const paths = (): string[] => asked.map(({ path }) => path);

describe("an answer from the authorization server", () => {
  it("an answer from the authorization server is used when it is ours", async () => {
    const oauth = client();
    expect(await oauth.headers()).toEqual({});
    expect(await oauth.refused(unauthorized)).toBe(true);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer first" });
  });

  it.each<[string, (answer: URL) => void, string]>([
    ["carries another state", (url) => url.searchParams.set("state", "x".repeat(43)), "state"],
    ["carries no state", (url) => url.searchParams.delete("state"), "state"],
    ["names another issuer", (url) => url.searchParams.set("iss", "https://evil.example"), "issuer"],
    ["says no", (url) => url.searchParams.set("error", "access_denied"), "access_denied"],
    ["has no code", (url) => url.searchParams.delete("code"), "no code"],
  ])(
    "an answer from the authorization server is not used when it %s, and no code leaves us",
    async (_, change, why) => {
      await expect(client({ authorize: person(change) }).refused(unauthorized)).rejects.toThrow(why);
      expect(paths()).not.toContain("/token");
    },
  );

  it("an answer from the authorization server must name its issuer where the server says that it does", () => {
    const server = { issuer: "https://a.example", namesIssuer: true } as ServerMetadata;
    expect(() => codeFrom(new URLSearchParams("code=c&state=s"), "s", server)).toThrow("issuer");
    expect(() => codeFrom(new URLSearchParams("code=c&state=s&iss=https://a.example/"), "s", server)).toThrow("issuer");
    expect(codeFrom(new URLSearchParams("code=c&state=s&iss=https://a.example"), "s", server)).toBe("c");
  });
});

describe("metadata", () => {
  it.each<[string, () => void, string]>([
    [
      "of another resource",
      () => {
        answers["/.well-known/oauth-protected-resource/mcp"] = {
          body: { resource: "https://bank.example/mcp", authorization_servers: [origin] },
        };
      },
      "another resource",
    ],
    [
      "of a resource beside ours",
      () => {
        answers["/.well-known/oauth-protected-resource/mcp"] = {
          body: { resource: `${origin}/mc`, authorization_servers: [origin] },
        };
      },
      "another resource",
    ],
    [
      "of another issuer",
      () => {
        answers["/.well-known/oauth-authorization-server"] = { body: { ...metadata(), issuer: `${origin}/` } };
      },
      "not the issuer",
    ],
    [
      "without PKCE",
      () => {
        answers["/.well-known/oauth-authorization-server"] = {
          body: { ...metadata(), code_challenge_methods_supported: ["plain"] },
        };
      },
      "PKCE",
    ],
    [
      "with an endpoint in the clear",
      () => {
        answers["/.well-known/oauth-authorization-server"] = {
          body: { ...metadata(), token_endpoint: "http://tokens.example/token" },
        };
      },
      "https",
    ],
    [
      "that does not end",
      () => {
        answers["/.well-known/oauth-authorization-server"] = { body: { ...metadata(), pad: "x".repeat(300_000) } };
      },
      "more than",
    ],
  ])("%s is not used", async (_, change, why) => {
    change();
    await expect(client().refused(unauthorized)).rejects.toThrow(why);
    expect(paths()).not.toContain("/register");
    expect(paths()).not.toContain("/token");
  });

  it("metadata that a server points into the network behind us is not fetched", async () => {
    let hits = 0;
    const inside = createServer((_, res) => {
      hits++;
      res.end("{}");
    });
    await new Promise<void>((resolve) => inside.listen(0, "127.0.0.1", resolve));
    const { port } = inside.address() as AddressInfo;
    // The server itself was named by the operator; what it points to was not.
    const outbound = createOutbound(createDialer({ allow: [new URL(origin).host] }));
    for (const target of [
      `http://127.0.0.1:${port}/`,
      `http://localhost:${port}/x`,
      "http://[::1]:1/",
      "https://169.254.169.254/",
    ]) {
      const wwwAuthenticate = `Bearer resource_metadata="${target}"`;
      await expect(client({ fetch: outbound.fetch }).refused({ status: 401, wwwAuthenticate })).rejects.toThrow();
    }
    expect(hits).toBe(0);
    await outbound.close();
    inside.close();
  });

  it("metadata is looked for where the revisions say, by path first", () => {
    expect(metadataUrls(new URL("https://a.example/t/1")).map(({ href }) => href)).toEqual([
      "https://a.example/.well-known/oauth-authorization-server/t/1",
      "https://a.example/.well-known/openid-configuration/t/1",
      "https://a.example/t/1/.well-known/openid-configuration",
    ]);
  });

  it("metadata may not be at an address without TLS, except here", () => {
    for (const url of ["http://a.example", "ftp://a.example", "https://u:p@a.example", "file:///etc/passwd", "x", 7]) {
      expect(() => safeUrl(url, "it")).toThrow();
    }
    for (const url of ["https://a.example", "http://127.0.0.1:1", "http://localhost/x", "http://[::1]/"]) {
      expect(safeUrl(url, "it").href).toContain("://");
    }
  });
});

describe("tokens", () => {
  it.each<[string, Answer]>([
    ["is of another type", { body: { access_token: "t", token_type: "mac" } }],
    ["has a line break in it", { body: { access_token: "t\r\nx: y", token_type: "Bearer" } }],
    ["is too long", { body: { access_token: "t".repeat(20_000), token_type: "Bearer" } }],
    ["is not a string", { body: { access_token: 7, token_type: "Bearer" } }],
    ["comes with a redirect", { status: 307, location: "https://evil.example/token" }],
  ])("a token that %s is not used", async (_, answer) => {
    answers["/token"] = answer;
    const oauth = client();
    await expect(oauth.refused(unauthorized)).rejects.toMatchObject({ code: "OAUTH_TOKEN" });
    expect(await oauth.headers()).toEqual({});
  });

  it("tokens are renewed before they end, the refresh token changing with them", async () => {
    let clock = Date.now();
    const store = memoryGrants();
    const oauth = client({ now: () => clock, store });
    await oauth.refused(unauthorized);
    answers["/token"] = (body) =>
      body.get("refresh_token") === "r1"
        ? { body: { access_token: "second", token_type: "bearer", refresh_token: "r2" } }
        : { status: 400, body: { error: "invalid_grant" } };
    clock += 3_590_000;
    expect(await oauth.headers()).toEqual({ authorization: "Bearer second" });
    expect((await store.load())?.grant).toMatchObject({ refreshToken: "r2" });
    expect((await store.load())?.grant).not.toHaveProperty("expiresAt");
    expect(asked.at(-1)?.body).toContain(`resource=${encodeURIComponent(`${origin}/mcp`)}`);
  });

  it("tokens that cannot be renewed are got anew", async () => {
    const oauth = client();
    await oauth.refused(unauthorized);
    answers["/token"] = (body) =>
      body.get("grant_type") === "refresh_token"
        ? { status: 400, body: { error: "invalid_grant" } }
        : { body: { access_token: "third", token_type: "Bearer" } };
    expect(await oauth.refused({ ...unauthorized, sent: "Bearer first" })).toBe(true);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer third" });
  });

  it("tokens of a client that the issuer has forgotten are got by registering anew", async () => {
    const oauth = client();
    await oauth.refused(unauthorized);
    answers["/register"] = { status: 201, body: { client_id: "again" } };
    answers["/token"] = (body) =>
      body.get("client_id") === "again"
        ? { body: { access_token: "fourth", token_type: "Bearer" } }
        : { status: 401, body: { error: "invalid_client" } };
    expect(await oauth.refused({ ...unauthorized, sent: "Bearer first" })).toBe(true);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer fourth" });
  });

  it.each([429, 500, 503])("tokens are kept through a server's bad minute: HTTP %i", async (status) => {
    let clock = Date.now();
    const store = memoryGrants();
    const oauth = client({ now: () => clock, store });
    await oauth.refused(unauthorized);
    answers["/token"] = { status };
    clock += 3_590_000;
    expect(await oauth.headers()).toEqual({ authorization: "Bearer first" });
    expect((await store.load())?.grant).toMatchObject({ refreshToken: "r1" });
  });

  it("tokens of one issuer are not shown to another", async () => {
    const oauth = client();
    await oauth.refused(unauthorized);
    answers["/.well-known/oauth-protected-resource/mcp"] = {
      body: { resource: `${origin}/mcp`, authorization_servers: [`${origin}/new`] },
    };
    const moved = Object.fromEntries(
      Object.entries(metadata()).map(([key, value]) => [key, String(value).replace(origin, `${origin}/new`)]),
    );
    answers["/.well-known/oauth-authorization-server/new"] = {
      body: { ...moved, code_challenge_methods_supported: ["S256"] },
    };
    answers["/new/register"] = { status: 201, body: { client_id: "registered anew" } };
    answers["/new/token"] = { body: { access_token: "new", token_type: "Bearer" } };
    expect(await oauth.refused({ ...unauthorized, sent: "Bearer first" })).toBe(true);
    const said = asked.filter(({ path }) => path.startsWith("/new")).map(({ body }) => body);
    expect(said.join("\n")).not.toMatch(/r1|client_id=registered(&|$)/);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer new" });
  });

  it("tokens for many requests refused at once are got once", async () => {
    const oauth = client();
    expect(await Promise.all(Array.from({ length: 20 }, () => oauth.refused(unauthorized)))).not.toContain(false);
    expect(paths().filter((path) => path === "/token")).toHaveLength(1);
  });

  it("tokens with more scope are asked for together with what there was, and only once", async () => {
    const scopes: string[] = [];
    const authorize = person();
    const oauth = client({
      authorize: (url) => {
        scopes.push(url.searchParams.get("scope") ?? "");
        return authorize(url);
      },
    });
    await oauth.refused({ status: 401, wwwAuthenticate: 'Bearer scope="a"' });
    answers["/token"] = { body: { access_token: "more", token_type: "Bearer" } };
    const needs = { status: 403, wwwAuthenticate: 'Bearer error="insufficient_scope", scope="write"' };
    expect(await oauth.refused({ ...needs, sent: "Bearer first" })).toBe(true);
    expect(await oauth.refused({ ...needs, sent: "Bearer more" })).toBe(false);
    expect(await oauth.refused({ status: 403, wwwAuthenticate: "Bearer" })).toBe(false);
    expect(scopes).toEqual(["a", "a write"]);
  });

  it("fails without a request when a login is needed and no user is present", async () => {
    const { authorize: _, ...alone } = { authorize: undefined };
    const oauth = new OAuthClient({
      url: new URL(`${origin}/mcp`),
      fetch,
      identity: {},
      store: memoryGrants(),
      grant: "code",
      ...alone,
    });
    await expect(oauth.refused(unauthorized)).rejects.toMatchObject({ code: "OAUTH_LOGIN_NEEDED" });
    expect(paths()).not.toContain("/register");
  });
});

describe("a client that was registered beforehand", () => {
  const machine = (more: Partial<OAuthClientOptions> = {}): OAuthClient =>
    client({
      grant: "client_credentials",
      identity: { clientId: "ours", clientSecret: "s", issuer: origin },
      ...more,
    });

  it.each([{ clientId: "ours" }, { clientId: "ours", clientSecret: "s" }, { clientSecret: "s" }])(
    "a client that was registered beforehand is refused without the issuer that it is registered with, before a request is made (%j)",
    (identity) => {
      expect(() => client({ identity })).toThrow("`issuer` is missing");
      expect(asked).toEqual([]);
    },
  );

  it("requests no scope beyond the configured ones, and not again when the server wants more", async () => {
    const oauth = machine({ scopes: ["a"] });
    const wants = (scope: string, status: number) => ({
      status,
      wwwAuthenticate: `Bearer error="insufficient_scope", scope="${scope}"`,
    });
    expect(await oauth.refused(wants("a admin", 401))).toBe(true);
    expect(await oauth.refused({ ...wants("admin delete", 403), sent: "Bearer first" })).toBe(false);
    const scopes = asked
      .filter(({ path }) => path === "/token")
      .map(({ body }) => new URLSearchParams(body).get("scope"));
    expect(scopes).toEqual(["a"]);
  });

  it("sends no replaced secret: neither the old one, nor any once it has a private key", async () => {
    const store = memoryGrants();
    const identity = { clientId: "ours", issuer: origin };
    await machine({ store, identity: { ...identity, clientSecret: "leaked" } }).refused(unauthorized);
    const from = asked.length;
    const again = async (proof: Partial<OAuthClientOptions["identity"]>): Promise<void> => {
      const oauth = machine({ store, identity: { ...identity, ...proof } });
      await oauth.headers();
      await oauth.refused({ ...unauthorized, sent: "Bearer first" });
    };
    await again({ clientSecret: "new" });
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const pem = privateKey.export({ format: "pem", type: "pkcs8" }).toString();
    await again({ privateKey: { pem, algorithm: "ES256" } });
    const sent = asked.slice(from).filter(({ path }) => path === "/token");
    const basic = (secret: string): string => `Basic ${Buffer.from(`ours:${secret}`).toString("base64")}`;
    expect(sent.map(({ authorization }) => authorization)).toEqual([basic("new"), undefined]);
    expect(sent.map(({ body }) => body.includes("client_assertion="))).toEqual([false, true]);
  });
});

describe("an authorization endpoint at another origin than its issuer", () => {
  const answerFromOtherIssuer = (more: object = {}): void => {
    answers["/.well-known/oauth-authorization-server"] = {
      body: { ...metadata(), authorization_endpoint: "https://honest.example/authorize", ...more },
    };
  };

  it("an authorization endpoint at another origin than its issuer is not opened when only a server's metadata chose the issuer: the code would be another issuer's", async () => {
    answerFromOtherIssuer();
    let opened = 0;
    const authorize = async (url: URL): Promise<URL> => {
      opened++;
      return person()(url);
    };
    await expect(client({ authorize }).refused(unauthorized)).rejects.toThrow("set `issuer`");
    expect([opened, paths().filter((path) => /token|register/.test(path))]).toEqual([0, []]);
  });

  it("an authorization endpoint at another origin than its issuer is opened where answers name their issuer, or the issuer is configured", async () => {
    answerFromOtherIssuer({ authorization_response_iss_parameter_supported: true });
    const honest = person((url) => url.searchParams.set("iss", "https://honest.example"));
    await expect(client({ authorize: honest }).refused(unauthorized)).rejects.toThrow("issuer");
    expect(paths()).not.toContain("/token");
    answerFromOtherIssuer();
    expect(await client({ identity: { issuer: origin } }).refused(unauthorized)).toBe(true);
  });
});

describe("WWW-Authenticate", () => {
  it.each<[string | undefined, object]>([
    [undefined, {}],
    ["", {}],
    ["Basic realm=x", {}],
    ['Bearer realm="a, b", scope="x y"', { scope: "x y" }],
    ['Basic realm="Bearer scope=evil", bearer error=invalid_token,scope=z', { error: "invalid_token", scope: "z" }],
    ['Bearer resource_metadata="https://a/\\"b"', { resourceMetadata: 'https://a/"b' }],
    ["Bearer scope=first, scope=second", { scope: "first" }],
    [`Bearer ${"a=b,".repeat(50_000)}`, {}],
  ])("%j is understood", (header, expected) => {
    expect(readChallenge(header)).toEqual(expected);
  });
});

describe("tokens bound to a key", () => {
  const wants = { status: 401, wwwAuthenticate: "DPoP" };
  beforeEach(() => {
    answers["/.well-known/oauth-authorization-server"] = {
      body: { ...metadata(), dpop_signing_alg_values_supported: ["ES256"] },
    };
    answers["/token"] = { body: { access_token: "bound", token_type: "DPoP" } };
  });
  const claims = (proof: string | undefined): Record<string, unknown> =>
    JSON.parse(Buffer.from(proof?.split(".")[1] as string, "base64url").toString());

  it("tokens bound to a key come with a proof for each request, which tells nothing of the key", async () => {
    const store = memoryGrants();
    const oauth = client({ dpop: true, store });
    expect(await oauth.refused(wants)).toBe(true);
    const [post, get] = [await oauth.headers(), await oauth.headers("GET")];
    expect(post.authorization).toBe("DPoP bound");
    expect(claims(post.dpop)).toMatchObject({ htm: "POST", htu: `${origin}/mcp` });
    expect(claims(get.dpop).htm).toBe("GET");
    expect(claims(post.dpop).ath).toBe(createHash("sha256").update("bound").digest("base64url"));
    expect(claims((await oauth.headers("POST", "/messages?id=1")).dpop).htu).toBe(`${origin}/messages`);
    expect(claims(get.dpop).jti).not.toBe(claims(post.dpop).jti);
    const key = (await store.load())?.grant.proofKey;
    const head = Buffer.from(post.dpop?.split(".")[0] as string, "base64url").toString();
    expect(head).toContain('"jwk"');
    expect(key?.d).toMatch(/^[\w-]{43}$/);
    expect(head).not.toContain(key?.d);
  });

  it("tokens bound to a key are not exchanged for unbound ones on the way", async () => {
    answers["/token"] = { body: { access_token: "unbound", token_type: "Bearer" } };
    const oauth = client({ dpop: true });
    await expect(oauth.refused(wants)).rejects.toMatchObject({ code: "OAUTH_TOKEN" });
    expect(await oauth.headers()).toEqual({});
  });

  it("tokens bound to a key take up the server's nonce, once for each", async () => {
    const oauth = client({ dpop: true });
    await oauth.refused(wants);
    const again = { status: 401, wwwAuthenticate: 'DPoP error="use_dpop_nonce"', dpopNonce: "n1" };
    expect(await oauth.refused(again)).toBe(true);
    expect(claims((await oauth.headers()).dpop).nonce).toBe("n1");
    expect(await oauth.refused(again)).toBe(false);
  });

  it("tokens bound to a key outlive a proof that did not do: the same token goes with another", async () => {
    const oauth = client({ dpop: true });
    await oauth.refused(wants);
    const [first, before] = [await oauth.headers(), asked.length];
    const sent = first.authorization;
    expect(await oauth.refused({ status: 401, wwwAuthenticate: 'DPoP error="invalid_dpop_proof"', sent })).toBe(true);
    const second = await oauth.headers();
    expect(second.authorization).toBe(first.authorization);
    expect(claims(second.dpop).jti).not.toBe(claims(first.dpop).jti);
    expect(asked).toHaveLength(before);
  });

  it("tokens bound to a key are asked for anew where the old ones are not bound: refreshed, those would not be either", async () => {
    answers["/token"] = { body: { access_token: "plain", token_type: "Bearer", refresh_token: "r1" } };
    const oauth = client({ dpop: true });
    await oauth.refused(unauthorized);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer plain" });
    answers["/token"] = { body: { access_token: "bound", token_type: "DPoP" } };
    expect(await oauth.refused({ ...wants, sent: "Bearer plain" })).toBe(true);
    expect((await oauth.headers()).authorization).toBe("DPoP bound");
    const grants = asked.filter(({ path }) => path === "/token").map(({ body }) => new URLSearchParams(body));
    expect(grants.map((form) => form.get("grant_type"))).toEqual(["authorization_code", "authorization_code"]);
  });

  it.each<[string, object, (oauth: OAuthClient) => Promise<unknown>, string]>([
    [
      "are got where its description wants them",
      { dpop_bound_access_tokens_required: true },
      (c) => c.refused(unauthorized),
      "DPoP bound",
    ],
    [
      "are got by a login where they are taken",
      { dpop_signing_alg_values_supported: ["ES256"] },
      (c) => c.login(),
      "DPoP bound",
    ],
    [
      "are not got by a login where ours are not taken",
      { dpop_signing_alg_values_supported: ["PS256"] },
      (c) => c.login(),
      "Bearer plain",
    ],
    [
      "are not got where they are only taken",
      { dpop_signing_alg_values_supported: ["ES256"] },
      (c) => c.refused(unauthorized),
      "Bearer plain",
    ],
  ])("tokens bound to a key of a server %s", async (_, said, get, expected) => {
    const { body } = answers["/.well-known/oauth-protected-resource/mcp"] as { body: object };
    answers["/.well-known/oauth-protected-resource/mcp"] = { body: { ...body, ...said } };
    const type = expected.split(" ")[0];
    answers["/token"] = { body: { access_token: expected.split(" ")[1], token_type: type } };
    const oauth = client({ dpop: true });
    await get(oauth);
    expect((await oauth.headers()).authorization).toBe(expected);
  });

  it("tokens bound to a key are asked for only by who can prove them", async () => {
    answers["/token"] = { body: { access_token: "plain", token_type: "Bearer" } };
    const oauth = client();
    await oauth.refused(wants);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer plain" });
  });
});
