// What an agent of one application can try against another: to see, call, read, guess or approve anything of it.

import fc from "fast-check";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

export const MARK = "0f-the-0ther-application";

const POLICY = `
permit (principal, action, resource);
@id("ask-first") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"shop.write", resource) unless { context.approved };
`;

export interface Scene {
  readonly deployment: Deployment;
  readonly own: Counting;
  readonly foreign: Counting;
  readonly attacker: string;
  /** What an attacker could have got hold of: names, ids, addresses of the other application. */
  readonly loot: Loot;
  close(): Promise<void>;
}

interface Loot {
  readonly tools: readonly string[];
  readonly uris: readonly string[];
  readonly session: string;
  readonly challenge: string;
  readonly keys: readonly string[];
}

export async function setScene(): Promise<Scene> {
  const deployment = await deploy(POLICY, { limits: { refusalsPerMinute: 1_000_000 } });
  const own = await counting("own-application");
  const foreign = await counting(MARK);
  const shared = { permissions: ["core.*"] };
  const server = (url: string) => ({ url, noGuardrail: ["*"] });
  await deployment.put("blog", {
    ...shared,
    servers: { shop: server(own.url), extra: { ...server(own.url), prefix: "extra" } },
    config: { colour: "blue" },
  });
  await deployment.put("store", {
    ...shared,
    servers: { shop: server(foreign.url), vault: { ...server(foreign.url), prefix: "vault" } },
    config: { colour: MARK, only: MARK },
  });
  const attacker = await deployment.key("blog", "attacker");
  const victim = await deployment.key("store", "keeper");
  const loot = await victimsLife(deployment, victim);
  foreign.calls.length = 0;
  return {
    deployment,
    own,
    foreign,
    attacker,
    loot,
    close: async () => {
      await deployment.close();
      await Promise.all([own.close(), foreign.close()]);
    },
  };
}

/** The other application is in use: it has a session, a value, a definition file and a call that waits. */
async function victimsLife(deployment: Deployment, victim: string): Promise<Loot> {
  const client = await deployment.client(victim);
  await client.callTool("core.state.setRuntimeValue", { key: "of-the-store", value: MARK });
  await client.callTool("core.state.setDefinitionFileContent", { path: "store.yaml", content: MARK });
  const tools = (await client.listTools()).map((tool) => tool.name);
  const uris = (await client.listResources()).map((resource) => resource.uri);
  const wait = { "portcullis/challengeWaitMs": 0 };
  await client.callTool("shop.write", { text: "x" }, { meta: wait }).catch(() => {});
  await client.close();
  const [challenge] = await deployment.runtime.storage.challenges.list(10);
  const begun = await fetch(deployment.url, {
    method: "POST",
    headers: {
      authorization: `Bearer ${victim}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "v", version: "1" } },
    }),
  });
  const session = begun.headers.get("mcp-session-id") as string;
  await begun.text();
  await deployment.post(victim, { jsonrpc: "2.0", method: "notifications/initialized" }, { "mcp-session-id": session });
  return { tools, uris, session, challenge: challenge?.id as string, keys: ["of-the-store", "store.yaml", "only"] };
}

/** An answer may repeat what was asked; that the attacker knew already. */
export function withoutEcho(text: string, body: object): string {
  const { params } = body as { params?: { uri?: string } };
  return params?.uri === undefined ? text : text.replaceAll(JSON.stringify(params.uri).slice(1, -1), "URI");
}

export interface Attempt {
  readonly body: object;
  readonly headers: Record<string, string>;
}

const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
  "io.modelcontextprotocol/clientInfo": { name: "attacker", version: "1" },
};

function modern(method: string, params: Record<string, unknown>, name?: string): Attempt {
  return {
    body: { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: META } },
    headers: {
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(name === undefined || !/^[\x21-\x7e]+$/.test(name) ? {} : { "mcp-name": name }),
    },
  };
}

/** Names of the other application, as they are and as somebody might bend them. */
function bent(names: readonly string[]): fc.Arbitrary<string> {
  const bends: ((name: string) => string)[] = [
    (name) => name,
    (name) => name.toUpperCase(),
    (name) => `store.${name}`,
    (name) => `store/${name}`,
    (name) => `../store/${name}`,
    (name) => name.replace(/\./g, "_"),
    (name) => `${name}\u200b`,
    (name) => encodeURIComponent(name),
    (name) => name.replace("+", "%2b"),
    (name) => `${name}#store`,
    (name) => `blog+${name}`,
  ];
  return fc.tuple(fc.constantFrom(...names), fc.constantFrom(...bends)).map(([name, bend]) => bend(name));
}

export function attempts({ loot }: Scene): fc.Arbitrary<Attempt> {
  const foreignTools = loot.tools.filter((name) => name.startsWith("vault."));
  const tool = bent(foreignTools);
  const uri = bent(loot.uris.filter((name) => name.startsWith("vault+")));
  const key = bent(loot.keys);
  const revision = fc.constantFrom("2025-11-25", "2025-06-18");
  return fc.oneof(
    tool.map((name) => modern("tools/call", { name, arguments: { text: "x" } }, name)),
    tool.map((name) => modern("tools/validate", { name, arguments: {} }, name)),
    uri.map((name) => modern("resources/read", { uri: name }, name)),
    bent(["vault.ask"]).map((name) => modern("prompts/get", { name, arguments: {} }, name)),
    fc
      .constantFrom("tools/list", "resources/list", "resources/templates/list", "prompts/list")
      .map((m) => modern(m, {})),
    key.map((name) =>
      modern(
        "tools/call",
        { name: "core.state.getRuntimeValue", arguments: { key: name } },
        "core.state.getRuntimeValue",
      ),
    ),
    key.map((path) =>
      modern(
        "tools/call",
        { name: "core.state.getDefinitionFileContent", arguments: { path } },
        "core.state.getDefinitionFileContent",
      ),
    ),
    fc
      .constantFrom("only", "store.only", "../store/only", "servers", "__proto__", "constructor")
      .map((name) =>
        modern(
          "tools/call",
          { name: "core.framework.getConfigValue", arguments: { key: name } },
          "core.framework.getConfigValue",
        ),
      ),
    fc.tuple(revision, tool).map(([version, name]) => ({
      body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: {} } },
      headers: { "mcp-session-id": loot.session, "mcp-protocol-version": version },
    })),
    revision.map((version) => ({
      body: { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} },
      headers: { "mcp-session-id": loot.session, "mcp-protocol-version": version },
    })),
    fc
      .base64String({ minLength: 20, maxLength: 200 })
      .map((state) =>
        modern(
          "tools/call",
          { name: "shop.read", arguments: {}, requestState: state, inputResponses: {} },
          "shop.read",
        ),
      ),
    fc
      .constantFrom("store", "store/keeper", "~gateway")
      .map((app) => modern("tools/call", { name: "vault.read", arguments: {}, app, auth: { app } }, "vault.read")),
  );
}
