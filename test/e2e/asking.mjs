// A stdio server of 2025-11-25 that asks while its calls run. What happens to it is written to the file it is given.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [file] = process.argv.slice(2);
const note = (line) => appendFileSync(file, `${line}\n`);
const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const questions = new Map();
const followed = new Set();
let asked = 0;

function ask(message) {
  const id = `s${asked++}`;
  write({ id, method: "elicitation/create", params: { message, requestedSchema: { type: "object", properties: {} } } });
  return new Promise((resolve) => questions.set(id, resolve));
}

async function callTool(id, { name, arguments: args = {}, _meta = {} }) {
  note(`call ${name}`);
  const progress = (n) =>
    write({ method: "notifications/progress", params: { progressToken: _meta.progressToken, progress: n } });
  switch (name) {
    case "ask": {
      progress(1);
      const first = await ask("first?");
      progress(2);
      if (args.hang) return note("hangs");
      write({ method: "notifications/message", params: { level: "warning", data: "between" } });
      const second = args.once ? { content: {} } : await ask("second?");
      progress(3);
      note("done ask");
      return write({
        id,
        result: { ...text("asked"), structuredContent: { first: first.content, second: second.content } },
      });
    }
    case "hang":
      return progress(1);
    case "touch":
      for (const uri of followed) write({ method: "notifications/resources/updated", params: { uri } });
      return write({ id, result: text("touched") });
    default:
      return write({ id, error: { code: -32602, message: `Unknown tool: ${name}` } });
  }
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { id, method, params = {}, result } = JSON.parse(line);
    if (method === undefined) return questions.get(id)?.(result ?? {});
    if (method === "notifications/cancelled") return note("cancelled");
    if (id === undefined) return undefined;
    const schema = { type: "object" };
    switch (method) {
      case "initialize": {
        const capabilities = { tools: {}, resources: { subscribe: true }, logging: {} };
        const { protocolVersion } = params;
        return write({ id, result: { protocolVersion, capabilities, serverInfo: { name: "asking", version: "1" } } });
      }
      case "tools/list":
        return write({
          id,
          result: { tools: ["ask", "hang", "touch"].map((name) => ({ name, inputSchema: schema })) },
        });
      case "resources/list":
        return write({ id, result: { resources: [{ uri: "note://one", name: "one" }] } });
      case "resources/subscribe":
        followed.add(params.uri);
        return write({ id, result: {} });
      case "resources/unsubscribe":
        followed.delete(params.uri);
        return write({ id, result: {} });
      case "logging/setLevel":
      case "ping":
        return write({ id, result: {} });
      case "tools/call":
        return void callTool(id, params);
      default:
        return write({ id, error: { code: -32601, message: "Method not found" } });
    }
  })
  .on("close", () => process.exit(0));
