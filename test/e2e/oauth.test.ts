// OAuth tokens at the door: what is right gets in with what its scopes open, everything else has no effect downstream.

import { createHmac, createPublicKey } from "node:crypto";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readOAuthSettings } from "../../src/auth/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { type AuthorizationServer, authorizationServer } from "./authorization-server.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";
import { type OwnIssuer, ownIssuer } from "./own-issuer.js";

const RESOURCE = "https://gateway.example/mcp";
const METADATA = "https://gateway.example/.well-known/oauth-protected-resource/mcp";
// biome-ignore format: one line a kind of key
const PROOF_ALGORITHMS = [
  "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
  "ES256", "ES384", "ES512",
  "EdDSA", "Ed25519",
];
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};

let issuer: AuthorizationServer;
let own: OwnIssuer;
let stranger: OwnIssuer;
let downstream: Counting;
let other: Counting;
let gateway: Deployment;

beforeAll(async () => {
  [issuer, own, stranger, downstream, other] = await Promise.all([
    authorizationServer({ scopes: ["notes:read", "notes:write"] }),
    ownIssuer(),
    ownIssuer(),
    counting("shop"),
    counting("bank"),
  ]);
  const read = readOAuthSettings({
    resource: RESOURCE,
    issuers: [
      {
        issuer: issuer.issuer,
        apps: { claim: "client_id", values: { machine: "shop" } },
        scopes: { "notes:read": ["*.read"], "notes:write": ["*.write"] },
      },
      {
        issuer: own.issuer,
        name: "own",
        app: "shop",
        perMinute: 50,
        introspection: { clientId: "gateway", clientSecret: "a secret: 100%" },
      },
    ],
  });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  gateway = await deploy("permit (principal, action, resource);", {
    identity: keysOrLocal({ localApp: "local", isLoopback: true, oauth: read.settings }),
  });
  const server = (url: string) => ({ servers: { notes: { url, prefix: "notes", noGuardrail: ["*"] } } });
  await gateway.put("shop", server(downstream.url));
  await gateway.put("bank", server(other.url));
});

afterAll(async () => {
  await gateway?.close();
  await Promise.all([issuer, own, stranger, downstream, other].map((each) => each?.close()));
});

interface Answer {
  readonly status: number;
  readonly authenticate: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: it is read field by field
  readonly body: any;
}

async function ask(authorization: string | undefined, method: string, params: object = {}): Promise<Answer> {
  const name: Record<string, string> = "name" in params ? { "mcp-name": String(params.name) } : {};
  const response = await fetch(gateway.url, {
    method: "POST",
    headers: {
      ...(authorization === undefined ? {} : { authorization }),
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...name,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: META } }),
  });
  const text = await response.text();
  const body = text.startsWith("{") ? JSON.parse(text) : text;
  return { status: response.status, authenticate: response.headers.get("www-authenticate"), body };
}

const call = (token: string, tool = "notes.read"): Promise<Answer> =>
  ask(`Bearer ${token}`, "tools/call", { name: tool, arguments: {} });

const seconds = (): number => Math.floor(Date.now() / 1_000);
const good = (more: Record<string, unknown> = {}): Record<string, unknown> => ({
  iss: own.issuer,
  aud: RESOURCE,
  sub: "alice",
  client_id: "agent-1",
  scope: "mcp:tools",
  iat: seconds(),
  exp: seconds() + 300,
  ...more,
});

describe("a caller without a token", () => {
  it("a caller without a token is told where to get one", async () => {
    const { status, authenticate, body } = await ask(undefined, "tools/list");
    expect(status).toBe(401);
    const told = `resource_metadata="${METADATA}", scope="notes:read mcp:tools"`;
    expect(authenticate).toBe(`Bearer ${told}, DPoP ${told}, algs="${PROOF_ALGORITHMS.join(" ")}"`);
    expect(body.error.data).toMatchObject({ error_type: "AuthenticationError", code: "UNAUTHENTICATED" });
  });

  it.each(["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])(
    "a caller without a token reads the metadata at %s",
    async (path) => {
      const response = await fetch(new URL(path, gateway.url));
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({
        resource: RESOURCE,
        authorization_servers: [issuer.issuer, own.issuer],
        scopes_supported: ["notes:read", "notes:write", "mcp:tools"],
        bearer_methods_supported: ["header"],
        dpop_signing_alg_values_supported: PROOF_ALGORITHMS,
      });
    },
  );

  it("a caller without a token reaches no other path", async () => {
    const response = await fetch(new URL("/.well-known/oauth-protected-resource/other", gateway.url));
    expect(response.status).not.toBe(200);
  });
});

describe("a token of a real authorization server", () => {
  it("a token grants what its scopes grant, and the record names its client [H4 L9]", async () => {
    const token = await issuer.token(RESOURCE, "notes:read");
    const before = downstream.calls.length;
    const { status, body } = await call(token);
    expect(status).toBe(200);
    expect(body.result.content[0].text).toBe("shop says nothing");
    expect(downstream.calls.length).toBe(before + 1);
    const { body: listed } = await ask(`Bearer ${token}`, "tools/list");
    expect(listed.result.tools.map((tool: { name: string }) => tool.name)).toEqual(["notes.read"]);
  });

  it("a token with too little scope is answered with the scope that is missing, and nothing runs [L9]", async () => {
    const before = downstream.calls.length;
    const { status, authenticate, body } = await call(await issuer.token(RESOURCE, "notes:read"), "notes.write");
    expect(status).toBe(403);
    expect(authenticate).toBe(
      `Bearer resource_metadata="${METADATA}", error="insufficient_scope", ` +
        'error_description="the tool needs more scope", scope="notes:read notes:write"',
    );
    expect(body.error.data).toMatchObject({ error_type: "AuthorizationError", required_scope: "notes:write" });
    expect(downstream.calls.length).toBe(before);
    expect((await call(await issuer.token(RESOURCE, "notes:read notes:write"), "notes.write")).status).toBe(200);
  });

  it("a token for another audience is refused [L9]", async () => {
    await refused(await issuer.token("https://elsewhere.example/mcp", "notes:read"), "for another audience");
  });

  it("a token of a client that is mapped to no application is refused", async () => {
    await refused(await issuer.token(RESOURCE, "notes:read", "other-machine"), "for no application here");
  });
});

/** 401, the error object, the pointer, and not one call downstream. */
async function refused(token: string, why: string): Promise<void> {
  const before = [downstream.calls.length, other.calls.length];
  const { status, authenticate, body } = await call(token);
  expect(status).toBe(401);
  expect(body.error.data).toMatchObject({ error_type: "AuthenticationError", code: "UNAUTHENTICATED" });
  expect(body.error.data.reason).toContain(why);
  expect(authenticate).toContain(`resource_metadata="${METADATA}"`);
  expect([downstream.calls.length, other.calls.length]).toEqual(before);
}

const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

describe("a token that is wrong", () => {
  it("an invalid token is distinguished from a valid one", async () => {
    const { status, body } = await call(await own.sign(good()));
    expect(status).toBe(200);
    expect(body.result.content[0].text).toBe("shop says nothing");
  });

  it.each<[string, () => Promise<string>, string]>([
    ["expired", () => own.sign(good({ exp: seconds() - 120 })), "has expired"],
    ["not valid yet", () => own.sign(good({ nbf: seconds() + 600 })), "not valid yet"],
    ["without an end", () => own.sign(good({ exp: undefined })), "`exp`"],
    ["without an audience", () => own.sign(good({ aud: undefined })), "another audience"],
    ["for another audience", () => own.sign(good({ aud: "https://gateway.example/other" })), "another audience"],
    ["for a prefix of our audience", () => own.sign(good({ aud: "https://gateway.example/" })), "another audience"],
    ["of another issuer", () => stranger.sign(good({ iss: stranger.issuer })), "issuer is not known"],
    ["of another issuer in our issuer's name", () => stranger.sign(good()), "signature"],
    ["without a signature", async () => `${b64({ alg: "none", typ: "at+jwt" })}.${b64(good())}.`, "`alg`"],
    ["of algorithm nOnE", async () => `${b64({ alg: "nOnE" })}.${b64(good())}.`, "`alg`"],
    ["whose signature was cut off", async () => (await own.sign(good())).replace(/\.[^.]*$/, "."), "signature"],
    [
      "whose claims were changed",
      async () => {
        const [head, , signature] = (await own.sign(good({ scope: "" }))).split(".");
        return `${head}.${b64(good())}.${signature}`;
      },
      "signature",
    ],
    [
      "signed by HMAC with our public key as the secret",
      async () => {
        const pem = createPublicKey({ key: own.jwks.keys[0] as never, format: "jwk" }).export({
          type: "spki",
          format: "pem",
        });
        const text = `${b64({ alg: "HS256", kid: "first", typ: "at+jwt" })}.${b64(good())}`;
        return `${text}.${createHmac("sha256", pem).update(text).digest("base64url")}`;
      },
      "`alg`",
    ],
    ["naming a key that is a path", () => own.sign(good(), { kid: "../../../dev/null" }), "signature"],
    ["naming a key that is SQL", () => own.sign(good(), { kid: "x' OR '1'='1" }), "signature"],
    [
      "that brings its own key along",
      async () => {
        const { privateKey, publicKey } = await generateKeyPair("ES256");
        const jwk = await exportJWK(publicKey);
        return new SignJWT(good())
          .setProtectedHeader({ alg: "ES256", kid: "first", typ: "at+jwt", jwk })
          .sign(privateKey);
      },
      "signature",
    ],
    [
      "that says where its keys are",
      () => stranger.sign(good(), { jku: `${stranger.issuer}/keys`, x5u: `${stranger.issuer}/keys`, kid: "first" }),
      "signature",
    ],
    ["of another kind", () => own.sign(good(), { typ: "logout+jwt" }), "not an access token"],
    ["that is no token", async () => "a.b.c", "malformed"],
    ["without a subject", () => own.sign(good({ sub: undefined })), "`sub`"],
    ["that is nothing at all", async () => "nothing", "missing, wrong, expired or revoked"],
    ["that is too long", () => own.sign(good({ pad: "x".repeat(8_192) })), "missing, wrong, expired or revoked"],
  ])("a token %s is refused without effect [L9]", async (_, make, why) => {
    await refused(await make(), why);
    expect(stranger.asked).toEqual([]);
  });

  it("an invalid token is refused by every endpoint that accepts tokens", async () => {
    const token = await own.sign(good({ exp: seconds() - 120 }));
    const before = downstream.calls.length;
    const plain = await fetch(new URL("/tools/notes.read", gateway.url), {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: "{}",
    });
    expect(plain.status).toBe(401);
    expect(plain.headers.get("www-authenticate")).toContain('error="invalid_token"');
    expect(downstream.calls.length).toBe(before);
  });
});

describe("an application", () => {
  it("the application of a token is never the caller's choice [H4 L9]", async () => {
    const before = other.calls.length;
    for (const claim of ["app", "azp", "application", "tenant"]) {
      const { body } = await call(await own.sign(good({ [claim]: "bank" })));
      expect(body.result?.content[0].text, JSON.stringify(body)).toBe("shop says nothing");
    }
    expect(other.calls.length).toBe(before);
  });
});

describe("people who use the same client", () => {
  it("users of the same client do not share a session, even when one knows the other's id", async () => {
    const [alice, bob] = await Promise.all([own.sign(good({ sub: "alice" })), own.sign(good({ sub: "bob" }))]);
    const say = (token: string, method: string, session?: string): Promise<Response> =>
      fetch(gateway.url, {
        method: "POST",
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...(session === undefined ? {} : { "mcp-session-id": session }),
        },
        body: JSON.stringify({
          jsonrpc: "2.0",
          ...(method.startsWith("notifications/") ? {} : { id: 1 }),
          method,
          params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test", version: "1" } },
        }),
      });
    const session = (await say(alice, "initialize")).headers.get("mcp-session-id") as string;
    await say(alice, "notifications/initialized", session);
    expect((await say(alice, "tools/list", session)).status).toBe(200);
    expect((await say(bob, "tools/list", session)).status).toBe(404);
    expect((await say(bob, "tools/list", "no-such-session")).status).toBe(404);
    // A fresh token of the same person goes on.
    expect((await say(await own.sign(good({ sub: "alice", jti: "2" })), "tools/list", session)).status).toBe(200);
  });
});

describe("keys and limits", () => {
  it("a stream ends when the token that opened it expires", async () => {
    const exp = seconds() + 5;
    const listening = await ask(`Bearer ${await own.sign(good({ exp }))}`, "subscriptions/listen", {
      notifications: { toolsListChanged: true },
    });
    // The answer is whole: the stream has ended.
    expect([listening.status, String(listening.body)]).toEqual([200, expect.stringContaining("acknowledged")]);
    expect(seconds()).toBeGreaterThanOrEqual(exp);
  });

  it("a revoked token is refused where tokens are introspected", async () => {
    const token = await own.sign(good({ jti: "to be revoked" }));
    own.revoked.add(token);
    await refused(token, "was revoked");
  });

  it("an API key continues to work beside OAuth", async () => {
    const key = await gateway.key("bank", "bot");
    const { body } = await call(key);
    expect(body.result?.content[0].text, JSON.stringify(body)).toBe("bank says nothing");
  });

  it("a token over its limit is answered with Retry-After, and a new token does not reset the limit [H11]", async () => {
    const before = downstream.calls.length;
    let refusal: Answer | undefined;
    let ran = 0;
    for (; ran < 300 && refusal === undefined; ran++) {
      const answer = await call(await own.sign(good({ jti: String(ran), sub: "bob" })));
      if (answer.status !== 200 || answer.body.result?.isError) refusal = answer;
    }
    expect(ran).toBeGreaterThan(50);
    expect(JSON.stringify(refusal?.body)).toContain("RATE_LIMITED");
    expect(downstream.calls.length).toBe(before + ran - 1);
    expect((await call(await own.sign(good({ sub: "carol" })))).status).toBe(200);
  });
});
