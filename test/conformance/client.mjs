#!/usr/bin/env node
// The client that the MCP conformance suite drives: it is started with the URL of a scenario's server as the last
// argument and does what the scenario named in the environment needs done. It says nothing of revisions: finding out
// what the server speaks is part of what is tested.

const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

const accept = (_params, { withDefaults }) => ({ action: "accept", content: withDefaults() });

const handlers = {
  elicitation: accept,
  sampling: () => ({ role: "assistant", content: { type: "text", text: "42" }, model: "none", stopReason: "endTurn" }),
  roots: [{ uri: "file:///project", name: "project" }],
};

const scenarios = {
  initialize: (client) => client.listTools(),

  async tools_call(client) {
    await client.listTools();
    await client.callTool("add_numbers", { a: 5, b: 3 });
  },

  async "elicitation-sep1034-client-defaults"(client) {
    await client.listTools();
    await client.callTool("test_client_elicitation_defaults");
  },

  async "sse-retry"(client) {
    await client.listTools();
    await client.callTool("test_reconnection");
  },

  "request-metadata": (client) => client.listTools(),

  async "sep-2322-client-request-state"(client) {
    await client.listTools();
    await Promise.all([
      client.callTool("test_mrtr_echo_state"),
      client.callTool("test_mrtr_unrelated"),
      client.callTool("test_mrtr_no_state"),
    ]);
    await client.callTool("test_mrtr_no_result_type");
  },

  async "http-standard-headers"(client) {
    for (const tool of await client.listTools()) await client.callTool(tool.name);
    for (const resource of await client.listResources()) await client.readResource(resource.uri);
    for (const prompt of await client.listPrompts()) await client.getPrompt(prompt.name);
  },

  async "http-custom-headers"(client) {
    await client.listTools();
    for (const call of context.toolCalls) await client.callTool(call.name, call.arguments);
  },

  async "http-invalid-tool-headers"(client) {
    for (const tool of await client.listTools()) {
      const fields = Object.keys(tool.inputSchema.properties ?? {});
      await client.callTool(tool.name, Object.fromEntries(fields.map((field) => [field, "value"])));
    }
  },

  "json-schema-ref-no-deref": (client) => client.listTools(),

  async "json-schema-2020-12-preservation"(client) {
    const tools = await client.listTools();
    const focal = tools.find((tool) => tool.name === "json_schema_2020_12_tool");
    await client.callTool("json_schema_echo", { schema: focal.inputSchema });
  },
};

/** Whom a registered client is registered with, as the person who configures it would know. */
async function issuerAt(server) {
  const { origin, pathname } = new URL(server);
  for (const path of [pathname, ""]) {
    const response = await fetch(`${origin}/.well-known/oauth-protected-resource${path}`);
    if (response.ok) return (await response.json()).authorization_servers[0];
  }
  return origin;
}

/** Every scenario about OAuth is the same to us: connect, list, call. What is right follows from what the server says. */
const oauth = {
  async run(client) {
    await client.listTools();
    await client.callTool("test-tool");
  },
  auth: {
    redirectUri: "http://localhost:3000/callback",
    clientMetadataUrl: "https://conformance-test.local/client-metadata.json",
    clientName: "portcullis",
    // The person, who agrees at once.
    authorize: async (url) => (await fetch(url, { redirect: "manual" })).headers.get("location"),
    ...(context.client_id ? { clientId: context.client_id } : {}),
    ...(context.client_secret ? { clientSecret: context.client_secret } : {}),
    ...(context.client_id ? { issuer: context.issuer ?? (await issuerAt(url)) } : {}),
    ...(context.private_key_pem
      ? { privateKey: { pem: context.private_key_pem, algorithm: context.signing_algorithm } }
      : {}),
    ...(scenario.startsWith("auth/client-credentials") ? { grant: "client_credentials" } : {}),
    ...(context.valid_jwt ? { grant: "assertion", assertion: async () => context.valid_jwt } : {}),
    ...(context.idp_id_token
      ? {
          grant: "assertion",
          enterprise: {
            tokenEndpoint: context.idp_token_endpoint,
            clientId: context.idp_client_id,
            idToken: () => context.idp_id_token,
          },
        }
      : {}),
  },
};

const isOAuth = scenario.startsWith("auth/");
const run = isOAuth ? oauth.run : scenarios[scenario];
if (!run) {
  console.error(`this client does not play the scenario \`${scenario}\``);
  process.exit(1);
}
// Only now: the suite starts a process for every scenario at once.
const { connect } = await import("../../dist/mcp/client/index.js");
// The suite keeps both cores busy with its own servers, so lists get more than their two seconds.
const client = await connect(url, {
  handlers,
  timeouts: { discoveryMs: 25_000 },
  ...(isOAuth ? { auth: oauth.auth } : {}),
});
try {
  await run(client);
} finally {
  await client.close();
}
