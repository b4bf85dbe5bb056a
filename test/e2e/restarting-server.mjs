// A stdio server that changes its tools when it is started again or told to. What reached it is written to a file, a
// line for each call: which start, which tool.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [dir, listDelayMs = "0"] = process.argv.slice(2);
const startsFile = join(dir, "starts");
const start = (existsSync(startsFile) ? Number(readFileSync(startsFile, "utf8")) : 0) + 1;
writeFileSync(startsFile, String(start));
let version = start;
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const schema = { type: "object" };
const tools = () => [
  {
    name: "send",
    description: version === 1 ? "Sends a note" : `Sends a note, changed (${version})`,
    inputSchema: schema,
  },
  { name: "steady", description: "Never changes", inputSchema: schema },
  { name: "exit", description: "Ends the process", inputSchema: schema },
  { name: "change", description: "Changes the definition of send", inputSchema: schema },
];
const prompts = () => [{ name: "ask", description: version === 1 ? "Asks" : "Asks for something else" }];

function answer({ id, method, params }) {
  switch (method) {
    case "initialize":
      return send({
        id,
        result: {
          protocolVersion: "2025-11-25",
          capabilities: { tools: { listChanged: true }, prompts: {}, resources: {} },
          serverInfo: { name: "restarting", version: "1" },
        },
      });
    case "tools/list":
      return setTimeout(() => send({ id, result: { tools: tools() } }), start > 1 ? Number(listDelayMs) : 0);
    case "prompts/list":
      return send({ id, result: { prompts: prompts() } });
    case "resources/list":
      return send({ id, result: { resources: [{ uri: "note://one", name: "one" }] } });
    case "tools/call": {
      appendFileSync(join(dir, "calls"), `${start} ${params.name}\n`);
      if (params.name === "change") {
        version++;
        send({ method: "notifications/tools/list_changed" });
      }
      send({ id, result: { content: [{ type: "text", text: `${start} ${params.name}` }] } });
      if (params.name === "exit") process.exit(0);
      return;
    }
    case "prompts/get":
    case "resources/read":
      appendFileSync(join(dir, "calls"), `${start} ${method}\n`);
      return send({
        id,
        result: method === "prompts/get" ? { messages: [] } : { contents: [{ uri: params.uri, text: "x" }] },
      });
    default:
      if (id !== undefined) send({ id, error: { code: -32601, message: "no such method" } });
  }
}

createInterface({ input: process.stdin }).on("line", (line) => answer(JSON.parse(line)));
