// Tokens that are bound to a key, at a gateway whose issuer makes no others. Everything that can be stolen on the way
// (the token, a proof, a whole request) is used again in every way, and nothing of it has an effect.

import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { readOAuthSettings } from "../../src/auth/index.js";
import { type ConnectOptions, connect } from "../../src/mcp/client/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { downstreamOAuth, storedGrants } from "../../src/runtime/oauth/downstream.js";
import { type AuthorizationServer, authorizationServer, MACHINE } from "./authorization-server.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";
import { type Proved, type Prover, prover } from "./prover.js";

const POLICY = "permit (principal, action, resource);";
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};

let issuer: AuthorizationServer;
let downstream: Counting;
let gateway: Deployment;
let replica: Deployment;
let street: Street;
let owner: Prover;
let thief: Prover;
let token: string;

/** Between callers and the gateway, under the gateway's public address: whoever stands here sees every request. */
interface Street {
  readonly url: string;
  readonly seen: { method: string; path: string; headers: string[]; body: string }[];
  leadsTo(url: string): void;
  close(): void;
}

async function openStreet(): Promise<Street> {
  const seen: Street["seen"] = [];
  let port = 0;
  const http: Server = createServer(async (req: IncomingMessage, res) => {
    let body = "";
    for await (const chunk of req) body += String(chunk);
    const { method = "", url: path = "", rawHeaders: headers } = req;
    seen.push({ method, path, headers, body });
    const onward = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(res);
    });
    res.on("close", () => onward.destroy());
    onward.on("error", () => res.destroy());
    onward.end(body);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    seen,
    leadsTo: (url) => {
      port = Number(new URL(url).port);
    },
    close: () => {
      http.close();
      http.closeAllConnections();
    },
  };
}

beforeAll(async () => {
  [issuer, downstream, street, owner, thief] = await Promise.all([
    authorizationServer({ scopes: ["notes:read", "notes:write"] }),
    counting("shop"),
    openStreet(),
    prover(),
    prover(),
  ]);
  const read = readOAuthSettings({
    resource: `${street.url}/mcp`,
    issuers: [
      {
        issuer: issuer.issuer,
        app: "shop",
        dpop: "required",
        scopes: { "notes:read": ["*.read"], "notes:write": ["*.write"] },
      },
    ],
  });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const identity = keysOrLocal({ localApp: "local", isLoopback: true, oauth: read.settings });
  gateway = await deploy(POLICY, { identity, websocket: { host: "127.0.0.1", port: 0 } });
  const sealKey = `file:${join(gateway.dir, "seal.key")}`;
  replica = await deploy(POLICY, { identity, sealKey, storage: `sqlite:${join(gateway.dir, "portcullis.db")}` });
  street.leadsTo(gateway.url);
  await gateway.put("shop", { servers: { notes: { url: downstream.url, prefix: "notes", noGuardrail: ["*"] } } });
  token = await boundToken(owner);
});

afterAll(async () => {
  street?.close();
  await replica?.close();
  await gateway?.close();
  await Promise.all([issuer?.close(), downstream?.close()]);
});

async function boundToken(holder: Prover, scope = "notes:read notes:write"): Promise<string> {
  const url = `${issuer.issuer}/token`;
  const response = await fetch(url, {
    method: "POST",
    headers: {
      authorization: `Basic ${Buffer.from(`${MACHINE.id}:${MACHINE.secret}`).toString("base64")}`,
      dpop: await holder.prove({ method: "POST", url }),
    },
    body: new URLSearchParams({ grant_type: "client_credentials", resource: `${street.url}/mcp`, scope }),
  });
  const { access_token: made, token_type: type } = (await response.json()) as Record<string, string>;
  expect(type).toBe("DPoP");
  return made as string;
}

interface Answer {
  readonly status: number | undefined;
  readonly authenticate: string | null | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: it is read field by field
  readonly body: any;
}

type Headers = Record<string, string>;

const CALL = {
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: { name: "notes.write", arguments: {}, _meta: META },
};

interface Door {
  readonly name: string;
  /** What a proof for it names. */
  readonly at: () => Proved;
  /** Calls notes.write. */
  readonly send: (headers: Headers, more?: object) => Promise<Answer>;
}

async function post(url: string, headers: Headers, body: object): Promise<Answer> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify(body),
  });
  const { status } = response;
  return { status, authenticate: response.headers.get("www-authenticate"), body: await response.json() };
}

const MODERN = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "notes.write" };

/** Messages on one connection, each with its answer. */
async function overWebSocket(headers: Headers, messages: readonly object[]): Promise<Answer[]> {
  const ws = new WebSocket(gateway.runtime.listeners[1]?.url as string, ["mcp"], { headers });
  const answers: Answer[] = [];
  const upgraded = new Promise<IncomingMessage | undefined>((resolve, reject) => {
    ws.once("open", () => resolve(undefined));
    ws.once("unexpected-response", (_request, response) => resolve(response));
    ws.once("error", reject);
  });
  const refusal = await upgraded;
  if (refusal) {
    let body = "";
    for await (const piece of refusal) body += piece;
    const { statusCode: status, headers: answered } = refusal;
    return [{ status, authenticate: answered["www-authenticate"], body: JSON.parse(body) }];
  }
  for (const message of messages) {
    const answered = new Promise<string>((resolve) => ws.once("message", (data) => resolve(String(data))));
    ws.send(JSON.stringify(message));
    answers.push({ status: undefined, authenticate: undefined, body: JSON.parse(await answered) });
  }
  ws.close();
  return answers;
}

const DOORS: readonly Door[] = [
  {
    name: "POST /mcp",
    at: () => ({ method: "POST", url: `${street.url}/mcp` }),
    send: (headers, more = {}) => post(gateway.url, { ...MODERN, ...headers }, { ...CALL, ...more }),
  },
  {
    name: "POST /tools/{name}",
    at: () => ({ method: "POST", url: `${street.url}/tools/notes.write` }),
    send: (headers) => post(new URL("/tools/notes.write", gateway.url).href, headers, {}),
  },
  {
    name: "WebSocket",
    at: () => ({ method: "GET", url: `${street.url}/mcp` }),
    send: async (headers, more = {}) => (await overWebSocket(headers, [{ ...CALL, ...more }]))[0] as Answer,
  },
];

/** The refusal, by the door's own means, and not one call downstream. */
async function refused(work: () => Promise<Answer>, error: string, why: string): Promise<void> {
  const before = downstream.calls.length;
  const { status, authenticate, body } = await work();
  expect(status ?? 401).toBe(401);
  const data = body.error.data ?? body.error;
  expect(data).toMatchObject({ error_type: "AuthenticationError", code: "UNAUTHENTICATED", retryable: false });
  expect(data.reason).toContain(why);
  expect(data.suggestions).toHaveLength(1);
  if (authenticate !== undefined) {
    expect(authenticate).toMatch(/^DPoP /);
    expect(authenticate).toContain(`resource_metadata="${street.url}/.well-known/oauth-protected-resource/mcp"`);
    expect(authenticate).toContain(`error="${error}"`);
    expect(authenticate).toMatch(/algs="[^"]*\bES256\b[^"]*"/);
  }
  expect(downstream.calls.length).toBe(before);
}

describe.each(DOORS.map((door) => [door.name, door] as const))("over %s a bound token", (_, door) => {
  const now = (): number => Math.floor(Date.now() / 1_000);
  const dpop = async (
    by: Prover,
    claims: Record<string, unknown> = {},
    of: Partial<Proved> = {},
  ): Promise<Headers> => ({
    authorization: `DPoP ${token}`,
    dpop: await by.prove({ ...door.at(), token, ...of }, claims),
  });

  it("a bound token is accepted with its owner's proof", async () => {
    const before = downstream.calls.length;
    const { body } = await door.send(await dpop(owner));
    expect(JSON.stringify(body)).toContain("shop wrote nothing");
    expect(downstream.calls.length).toBe(before + 1);
  });

  it.each<[string, () => Promise<Headers>, string, string]>([
    ["as a bearer token", async () => ({ authorization: `Bearer ${token}` }), "invalid_token", "bound to a key"],
    [
      "as a bearer token with the owner's proof",
      async () => ({ ...(await dpop(owner)), authorization: `Bearer ${token}` }),
      "invalid_token",
      "bound to a key",
    ],
    ["without a proof", async () => ({ authorization: `DPoP ${token}` }), "invalid_dpop_proof", "is missing"],
    ["with a proof by the thief's own key", () => dpop(thief), "invalid_token", "another key"],
    [
      "with a proof for another path",
      () => dpop(owner, {}, { url: `${street.url}/tools/notes.read` }),
      "invalid_dpop_proof",
      "another address",
    ],
    ["with a proof for another method", () => dpop(owner, { htm: "DELETE" }), "invalid_dpop_proof", "another method"],
    [
      "with a proof for another token",
      async () => dpop(owner, {}, { token: await boundToken(owner, "notes:read") }),
      "invalid_dpop_proof",
      "not the hash of this token",
    ],
    ["with an old proof", () => dpop(owner, { iat: now() - 65 }), "invalid_dpop_proof", "older than 60 s"],
    ["with a proof from the future", () => dpop(owner, { iat: now() + 65 }), "invalid_dpop_proof", "in the future"],
    [
      "with two proofs",
      async () => ({ ...(await dpop(owner)), dpop: `${(await dpop(owner)).dpop}, ${(await dpop(owner)).dpop}` }),
      "invalid_dpop_proof",
      "there once",
    ],
  ])("a stolen bound token is refused %s [H4 L9]", async (_, headers, error, why) => {
    const made = await headers();
    await refused(() => door.send(made), error, why);
  });

  it("a replayed proof of a bound token is refused at every replica [L9]", async () => {
    const headers = await dpop(owner);
    expect(JSON.stringify((await door.send(headers)).body)).toContain("shop wrote nothing");
    await refused(() => door.send(headers), "invalid_dpop_proof", "was used before");
    // The same proof names the same address wherever it arrives.
    if (door.name !== "POST /mcp") return;
    await refused(() => post(replica.url, { ...MODERN, ...headers }, CALL), "invalid_dpop_proof", "was used before");
    const fresh = await dpop(owner);
    expect((await post(replica.url, { ...MODERN, ...fresh }, CALL)).status).toBe(200);
    await refused(() => door.send(fresh), "invalid_dpop_proof", "was used before");
  });
});

describe("a bound token", () => {
  it("a bound token is refused in a request's own field", async () => {
    for (const door of DOORS.filter(({ name }) => !name.includes("tools"))) {
      await refused(() => door.send({}, { auth: { type: "bearer", token } }), "invalid_token", "bound to a key");
    }
  });

  it("a bound token without a proof is refused for lists, descriptions, streams and session ends", async () => {
    const other = await owner.prove({ method: "POST", url: `${street.url}/mcp`, token });
    const headers = { authorization: `DPoP ${token}`, dpop: other, "mcp-session-id": "x", accept: "text/event-stream" };
    for (const [method, path] of [
      ["GET", "/openapi.json"],
      ["GET", "/mcp"],
      ["DELETE", "/mcp"],
    ] as const) {
      const response = await fetch(new URL(path, gateway.url), { method, headers });
      expect([method, path, response.status]).toEqual([method, path, 401]);
      const dpop = await owner.prove({ method, url: `${street.url}${path}`, token });
      const right = await fetch(new URL(path, gateway.url), { method, headers: { ...headers, dpop } });
      expect([method, path, right.status]).toEqual([method, path, path === "/mcp" ? 404 : 200]);
    }
  });

  it("a bound token is refused with two proof headers that are both valid", async () => {
    const at = { method: "POST", url: `${street.url}/mcp`, token };
    const headers = {
      ...MODERN,
      authorization: `DPoP ${token}`,
      dpop: [await owner.prove(at), await owner.prove(at)],
      "content-type": "application/json",
    };
    const before = downstream.calls.length;
    const status = await new Promise((resolve, reject) => {
      const sent = request(gateway.url, { method: "POST", headers }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      });
      sent.on("error", reject);
      sent.end(JSON.stringify(CALL));
    });
    expect(status).toBe(401);
    expect(downstream.calls.length).toBe(before);
  });

  it("a bound token needs one proof for a batch", async () => {
    let session: Headers = {};
    const say = async (body: object): Promise<Response> => {
      const response = await fetch(gateway.url, {
        method: "POST",
        headers: {
          authorization: `DPoP ${token}`,
          dpop: await owner.prove({ method: "POST", url: `${street.url}/mcp`, token }),
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...session,
        },
        body: JSON.stringify(body),
      });
      const id = response.headers.get("mcp-session-id");
      if (id !== null) session = { "mcp-session-id": id };
      return response;
    };
    const clientInfo = { name: "test", version: "1" };
    const params = { protocolVersion: "2025-03-26", capabilities: {}, clientInfo };
    await say({ jsonrpc: "2.0", id: 1, method: "initialize", params });
    await say({ jsonrpc: "2.0", method: "notifications/initialized" });
    const before = downstream.calls.length;
    const calls = [2, 3].map((id) => ({ ...CALL, id, params: { name: "notes.write", arguments: {} } }));
    const answers = (await (await say(calls)).json()) as object[];
    expect(answers).toHaveLength(2);
    for (const answer of answers) expect(JSON.stringify(answer)).toContain("shop wrote nothing");
    expect(downstream.calls.length).toBe(before + 2);
  });

  it("a bound token needs one proof for a connection, whatever is sent on it", async () => {
    const dpop = await owner.prove({ method: "GET", url: `${street.url.replace("http", "ws")}/mcp`, token });
    const headers = { authorization: `DPoP ${token}`, dpop };
    const answers = await overWebSocket(
      headers,
      [1, 2, 3].map((id) => ({ ...CALL, id })),
    );
    for (const { body } of answers) expect(JSON.stringify(body)).toContain("shop wrote nothing");
  });
});

describe("an issuer whose tokens have to be bound", () => {
  it("an issuer that requires bound tokens is described as such, and a caller without a proof gets an error that says so", async () => {
    const metadata = await fetch(`${street.url}/.well-known/oauth-protected-resource/mcp`);
    expect(await metadata.json()).toMatchObject({
      dpop_bound_access_tokens_required: true,
      dpop_signing_alg_values_supported: expect.arrayContaining(["ES256", "Ed25519"]),
    });
    const { status, authenticate } = await post(gateway.url, MODERN, CALL);
    expect(status).toBe(401);
    expect(authenticate).toMatch(/^DPoP resource_metadata="[^"]+", scope="notes:read", algs="[^"]+"$/);
  });

  it("an unbound token of an issuer that requires bound tokens is refused", async () => {
    const unbound = await issuer.token(`${street.url}/mcp`, "notes:write");
    const work = () => post(gateway.url, { ...MODERN, authorization: `Bearer ${unbound}` }, CALL);
    await refused(work, "invalid_token", "not bound to a key");
  });
});

describe("our client", () => {
  const machine = { grant: "client_credentials", clientId: MACHINE.id, clientSecret: MACHINE.secret } as const;
  const header = (headers: string[], name: string): string | undefined => {
    const at = headers.findIndex((each, i) => i % 2 === 0 && each.toLowerCase() === name);
    return at === -1 ? undefined : headers[at + 1];
  };

  it.each<ConnectOptions["revision"]>(["2026-07-28", "2025-11-25"])(
    "the client proves every request of revision %s separately, and an observed proof cannot be used [L9]",
    async (revision) => {
      const from = street.seen.length;
      const auth = { ...machine, issuer: issuer.issuer };
      const client = await connect(`${street.url}/mcp`, { auth, ...(revision === undefined ? {} : { revision }) });
      expect(JSON.stringify(await client.callTool("notes.read", {}))).toContain("shop says nothing");
      // More scope is asked for on the way, and the new token is bound as well.
      expect(JSON.stringify(await client.callTool("notes.write", {}))).toContain("shop wrote nothing");
      await client.close();
      const seen = street.seen.slice(from).filter(({ path }) => path === "/mcp");
      const sent = seen.filter(({ headers }) => header(headers, "authorization") !== undefined);
      for (const { headers } of sent) expect(header(headers, "authorization")).toMatch(/^DPoP /);
      const proofs = sent.map(({ headers }) => header(headers, "dpop"));
      expect(new Set(proofs).size).toBe(sent.length);
      const methods = new Set(sent.map(({ method }) => method));
      expect([...methods].sort()).toEqual(revision === "2025-11-25" ? ["DELETE", "GET", "POST"] : ["POST"]);

      const before = downstream.calls.length;
      for (const { method, path, headers, body } of sent) {
        const { port } = new URL(gateway.url);
        const status = await new Promise<number | undefined>((resolve, reject) => {
          const again = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
            answer.resume();
            resolve(answer.statusCode);
          });
          again.on("error", reject);
          again.end(body);
        });
        expect(status).toBe(401);
      }
      expect(downstream.calls.length).toBe(before);
    },
  );

  it("a gateway that calls another gateway binds its token, and stores the key encrypted", async () => {
    process.env.TEST_MACHINE_SECRET = MACHINE.secret;
    const front = await deploy(POLICY, { oauthClient: downstreamOAuth({ allow: ["127.0.0.1"] }) });
    try {
      const machine = { clientId: MACHINE.id, clientSecret: "${env:TEST_MACHINE_SECRET}", issuer: issuer.issuer };
      const oauth = { type: "oauth", ...machine } as const;
      const url = `${street.url}/mcp`;
      await front.put("blog", { servers: { core: { url, prefix: "far", noGuardrail: ["*"], auth: oauth } } });
      const client = await front.client(await front.key("blog", "writer"));
      await expect
        .poll(async () => JSON.stringify(await client.callTool("far.notes.read", {}).catch(String)), {
          timeout: 10_000,
        })
        .toContain("shop says nothing");
      const from = street.seen.length;
      await Promise.all([1, 2, 3].map(() => client.callTool("far.notes.read", {})));
      await client.close();
      const proofs = street.seen.slice(from).map(({ headers }) => header(headers, "dpop"));
      expect(proofs.length).toBeGreaterThanOrEqual(3);
      expect(new Set(proofs).size).toBe(proofs.length);
      const { storage, sealer } = front.runtime;
      const kept = await storedGrants(storage, sealer, { app: "blog", server: "core", user: "" }).load();
      expect(kept?.grant.proofKey?.d).toMatch(/^[\w-]{43}$/);
      const stolen = { ...MODERN, authorization: `Bearer ${kept?.grant.accessToken}` };
      await refused(() => post(gateway.url, stolen, CALL), "invalid_token", "bound to a key");
    } finally {
      await front.close();
    }
  });
});
