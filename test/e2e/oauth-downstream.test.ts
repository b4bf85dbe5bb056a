// The gateway as an OAuth client: towards a server behind it that takes tokens of a real authorization server and
// nothing else. That server is a gateway as well, so what reached it, and as whom, is on record.

import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { readOAuthSettings } from "../../src/auth/index.js";
import { OAuthClient } from "../../src/auth/oauth-client/index.js";
import { addAppCommands } from "../../src/cli/commands/app.js";
import { connect } from "../../src/mcp/client/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { downstreamOAuth, storedGrants } from "../../src/runtime/oauth/downstream.js";
import { type AuthorizationServer, authorizationServer, MACHINE } from "./authorization-server.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = "permit (principal, action, resource);";

let issuer: AuthorizationServer;
let tools: Counting;
let behind: Deployment;
let front: Deployment;

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

beforeAll(async () => {
  const [publicPort, port] = [await freePort(), await freePort()];
  const publicUrl = `http://127.0.0.1:${publicPort}`;
  issuer = await authorizationServer({ scopes: ["notes:read", "notes:write"], registration: true });
  tools = await counting("core");
  const read = readOAuthSettings({
    resource: `http://127.0.0.1:${port}/mcp`,
    issuers: [{ issuer: issuer.issuer, app: "core", scopes: { "notes:read": ["*.read"], "notes:write": ["*.write"] } }],
  });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  behind = await deploy(POLICY, {
    http: { host: "127.0.0.1", port },
    identity: keysOrLocal({ localApp: "local", isLoopback: true, oauth: read.settings }),
  });
  await behind.put("core", { servers: { notes: { url: tools.url, prefix: "notes", noGuardrail: ["*"] } } });
  front = await deploy(POLICY, {
    http: { host: "127.0.0.1", port: publicPort },
    identity: keysOrLocal({ localApp: "local", isLoopback: false, publicUrl }),
    oauthClient: downstreamOAuth({ allow: ["127.0.0.1"], publicUrl }),
  });
  process.env.TEST_MACHINE_SECRET = MACHINE.secret;
});

afterAll(async () => {
  await front?.close();
  await behind?.close();
  await Promise.all([tools?.close(), issuer?.close()]);
});

const entry = (auth: object) => ({
  servers: { core: { url: behind.url, prefix: "far", noGuardrail: ["*"], auth: { type: "oauth" as const, ...auth } } },
});

/** Goes where a browser would go, with its cookies, until somebody takes the code, or up to this address. */
async function browse(start: string, until?: string): Promise<string> {
  const cookies = new Map<string, string>();
  let url = start;
  for (let hops = 0; hops < 20; hops++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      cookies.set(name, value);
    }
    const next = response.headers.get("location");
    if (next === null) return url;
    url = new URL(next, url).href;
    if (until !== undefined && url.startsWith(until)) return url;
  }
  throw new Error("the browser was sent around in circles");
}

/** `portcullis app login …`, with a person who agrees. */
async function login(...args: string[]): Promise<string> {
  const program = new Command("portcullis").option("--json").option("--dir <folder>").exitOverride();
  addAppCommands(program);
  const { write } = process.stderr;
  const out = process.stdout.write;
  let said = "";
  const take = (text: string | Uint8Array): boolean => {
    said += String(text);
    const [, url] = /\n {2}(http\S+)\n/.exec(said) ?? [];
    if (url !== undefined && String(text).includes(url)) void browse(url);
    return true;
  };
  process.stderr.write = take as typeof write;
  process.stdout.write = take as typeof write;
  try {
    const command = ["app", "login", ...args, "--allow-private", "127.0.0.1"];
    await program.parseAsync(["node", "portcullis", "--json", "--dir", front.dir, ...command]);
  } finally {
    process.stderr.write = write;
    process.stdout.write = out;
  }
  return said;
}

let asClient: Awaited<ReturnType<Deployment["client"]>> | undefined;
afterEach(() => asClient?.close());

async function call(app: string, tool: string) {
  asClient = await front.client(await front.key(app, `agent-${Math.random()}`));
  return asClient.callTool(tool, {}).then(
    (result) => JSON.stringify(result),
    (error: Error) => error.message,
  );
}

async function bytesOf(deployment: Deployment): Promise<string> {
  return ["portcullis.db", "portcullis.db-wal"]
    .map((file) => readFileSync(join(deployment.dir, file), "latin1"))
    .join("");
}

describe("a machine's own token", () => {
  it("a machine token is obtained by client credentials, for its server alone, and stored encrypted", async () => {
    const scopes = ["notes:read"];
    const machine = { clientId: MACHINE.id, clientSecret: "${env:TEST_MACHINE_SECRET}" };
    await front.put("shop", entry({ ...machine, issuer: issuer.issuer, scopes }));
    await expect.poll(() => call("shop", "far.notes.read")).toContain("core says nothing");
    expect(issuer.tokenRequests[0]?.get("grant_type")).toBe("client_credentials");
    expect(issuer.tokenRequests[0]?.get("resource")).toBe(behind.url);
    const kept = await storedGrants(front.runtime.storage, front.runtime.sealer, {
      app: "shop",
      server: "core",
      user: "",
    }).load();
    const token = kept?.grant.accessToken as string;
    expect(token.split(".")).toHaveLength(3);
    const raw = await bytesOf(front);
    expect(raw).not.toContain(token);
    expect(raw).not.toContain(MACHINE.secret);
  });

  it("a caller's key is never forwarded to an upstream server", async () => {
    const key = await front.key("shop", "caller");
    const direct = await behind.post(key, { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} });
    expect(direct.status).toBe(401);
    const client = await front.client(key);
    expect(JSON.stringify(await client.callTool("far.notes.read", {}))).toContain("core says nothing");
    await client.close();
  });
});

describe("a person's login", () => {
  it("a call that needs a login names the command for it", async () => {
    await front.put("desk", entry({ per: "user" }));
    const before = tools.calls.length;
    await login("desk", "core", "--scope", "notes:read");
    await expect.poll(() => call("desk", "far.notes.read")).toContain("app login desk core --user '!agent-");
    expect(tools.calls.length).toBe(before);
  });

  it("the login of a user is not that of an agent with the same name", async () => {
    await login("desk", "core", "--scope", "notes:read", "--user", "alice");
    await login("desk", "core", "--scope", "notes:read", "--user", "!bob");
    const before = tools.calls.length;
    const alice = await front.client(await front.key("desk", "alice"));
    expect(JSON.stringify(await alice.callTool("far.notes.read", {}))).toContain("--user '!alice'");
    expect(tools.calls.length).toBe(before);
    const bob = await front.client(await front.key("desk", "bob"));
    expect(JSON.stringify(await bob.callTool("far.notes.read", {}))).toContain("core says nothing");
    await Promise.all([alice.close(), bob.close()]);
  });

  it("a login registers the client, returns with a code, and then the application may call", async () => {
    await front.put("blog", entry({}));
    const said = await login("blog", "core", "--scope", "notes:read");
    expect(said).toContain('"renews": true');
    await expect.poll(() => call("blog", "far.notes.read")).toContain("core says nothing");
    const code = issuer.tokenRequests.find((request) => request.get("grant_type") === "authorization_code");
    expect(code?.get("resource")).toBe(behind.url);
    expect(code?.get("code_verifier")).toMatch(/^[\w-]{43}$/);
  });

  it("a login does not cover more than was consented to, and names what is missing", async () => {
    const before = tools.calls.length;
    expect(await call("blog", "far.notes.write")).not.toContain("wrote");
    expect(tools.calls.length).toBe(before);
    await login("blog", "core", "--scope", "notes:read", "notes:write");
    await expect.poll(() => call("blog", "far.notes.write")).toContain("core wrote nothing");
  });

  it("a token is refreshed once by several replicas, though each sees it expire", async () => {
    const { storage, sealer } = front.runtime;
    const store = storedGrants(storage, sealer, { app: "blog", server: "core", user: "" });
    const kept = await store.load();
    await store.save({ ...(kept?.grant as never as object), expiresAt: Date.now() - 1 } as never, kept?.version ?? 0);
    const count = (): number =>
      issuer.tokenRequests.filter((request) => request.get("grant_type") === "refresh_token").length;
    const before = count();
    const replicas = Array.from(
      { length: 4 },
      () => new OAuthClient({ url: new URL(behind.url), fetch, identity: {}, store, grant: "code" }),
    );
    const headers = await Promise.all(replicas.map((replica) => replica.headers()));
    expect(count()).toBe(before + 1);
    expect(new Set(headers.map((each) => each.authorization)).size).toBe(1);
    expect(headers[0]?.authorization).not.toBe(`Bearer ${kept?.grant.accessToken}`);
    const after = await store.load();
    expect(after?.grant.refreshToken).not.toBe(kept?.grant.refreshToken);
  });

  it("a login is not used at another address", async () => {
    const { storage, sealer } = front.runtime;
    const store = storedGrants(storage, sealer, { app: "blog", server: "core", user: "" });
    const right = new OAuthClient({ url: new URL(behind.url), fetch, identity: {}, store, grant: "code" });
    expect(await right.headers()).toHaveProperty("authorization");
    for (const url of [
      "http://127.0.0.1:1/mcp",
      behind.url.replace("/mcp", "/mcp2"),
      behind.url.replace("127.0.0.1", "localhost"),
    ]) {
      const client = new OAuthClient({ url: new URL(url), fetch, identity: {}, store, grant: "code" });
      expect(await client.headers()).toEqual({});
    }
  });
});

describe("our client", () => {
  it("the client logs in at the configured server, and requests more scope when a tool needs it", async () => {
    const redirectUri = "http://127.0.0.1:1/callback";
    const logins: string[] = [];
    const client = await connect(behind.url, {
      auth: {
        redirectUri,
        authorize: (url) => {
          logins.push(url.searchParams.get("scope") ?? "");
          return browse(url.href, redirectUri);
        },
      },
      timeouts: { discoveryMs: 20_000 },
    });
    expect((await client.listTools()).map((tool) => tool.name)).toEqual(["notes.read"]);
    expect(JSON.stringify(await client.callTool("notes.read", {}))).toContain("core says nothing");
    expect(JSON.stringify(await client.callTool("notes.write", {}))).toContain("core wrote nothing");
    expect(logins).toEqual(["notes:read offline_access", "notes:read offline_access notes:write"]);
    await client.close();
  });
});

it("a gateway with a public address serves its client metadata to authorization servers", async () => {
  const url = new URL("/oauth/client.json", front.url).href;
  const response = await fetch(url);
  expect(await response.json()).toMatchObject({
    client_id: url,
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1/callback", "http://localhost/callback"],
  });
});
