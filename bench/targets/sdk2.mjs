// The official SDK v2: a server that validates nothing, records nothing and only echoes.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { NodeStreamableHTTPServerTransport } from "@modelcontextprotocol/node";
import { Server } from "@modelcontextprotocol/server";
import { ready } from "./child.mjs";

const inputSchema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
const sessions = new Map();

async function open() {
  const server = new Server({ name: "sdk2", version: "1.0.0" }, { capabilities: { tools: {} } });
  server.setRequestHandler("tools/list", () => ({ tools: [{ name: "append", inputSchema }] }));
  server.setRequestHandler("tools/call", (request) => ({
    content: [{ type: "text", text: request.params.arguments.text }],
  }));
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    enableJsonResponse: true,
    onsessioninitialized: (id) => void sessions.set(id, transport),
  });
  await server.connect(transport);
  return transport;
}

const http = createServer(async (request, response) => {
  const transport = sessions.get(request.headers["mcp-session-id"]) ?? (await open());
  await transport.handleRequest(request, response);
});
http.keepAliveTimeout = 120_000;
http.listen(0, "127.0.0.1", () => ready(`http://127.0.0.1:${http.address().port}/mcp`));
