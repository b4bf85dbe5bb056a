// The server behind: as little MCP as a call needs. `echo.mjs` listens on HTTP and tells its parent where; with
// `--stdio` it speaks lines.
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const TOOL = {
  name: "append",
  description: "Appends a text; what it does cannot be taken back",
  inputSchema: { type: "object", properties: { text: { type: "string", maxLength: 10_000 } }, required: ["text"] },
};

const FILLERS = Array.from({ length: Number(process.env.TOOLS ?? 0) }, (_, i) => ({
  name: `filler_${i}`,
  description: `Filler tool number ${i}: looks a record up by its identifier and returns the matching fields as text.`,
  inputSchema: {
    type: "object",
    properties: {
      id: { type: "string", description: "Record identifier" },
      limit: { type: "integer", minimum: 1, maximum: 100 },
      fields: { type: "array", items: { type: "string" } },
    },
    required: ["id"],
  },
}));

function answer({ id, method, params }) {
  switch (method) {
    case "initialize":
      return {
        jsonrpc: "2.0",
        id,
        result: {
          protocolVersion: params.protocolVersion,
          capabilities: { tools: {} },
          serverInfo: { name: "echo", version: "1" },
        },
      };
    case "tools/list":
      return { jsonrpc: "2.0", id, result: { tools: [TOOL, ...FILLERS] } };
    case "tools/call":
      return { jsonrpc: "2.0", id, result: { content: [{ type: "text", text: params.arguments.text }] } };
    default:
      return id === undefined
        ? undefined
        : { jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } };
  }
}

if (process.argv.includes("--stdio")) {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const said = answer(JSON.parse(line));
    if (said) process.stdout.write(`${JSON.stringify(said)}\n`);
  });
} else {
  const server = createServer((request, response) => {
    if (request.method !== "POST") return response.writeHead(405, { "content-length": 0 }).end();
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const message = JSON.parse(Buffer.concat(chunks).toString("utf8"));
      const said = answer(message);
      if (!said) return response.writeHead(202, { "content-length": 0 }).end();
      const body = Buffer.from(JSON.stringify(said));
      const session = message.method === "initialize" ? { "mcp-session-id": "one" } : {};
      response.writeHead(200, { "content-type": "application/json", "content-length": body.length, ...session });
      response.end(body);
    });
  });
  server.keepAliveTimeout = 120_000;
  server.listen(0, "127.0.0.1", () => process.send({ url: `http://127.0.0.1:${server.address().port}/mcp` }));
}
