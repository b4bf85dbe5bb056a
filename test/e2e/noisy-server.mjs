// The server of the noisy application, on stdio and written by hand: it changes thousands of tools without pause, sends
// answers byte by byte, and says much before it answers.
import { createInterface } from "node:readline";

const TOOLS = 10_000;
let version = 0;
let isChanging = false;
let hasMany = false;
/** One answer after the other: bytes of two would be no message. */
let dripping = Promise.resolve();

const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const schema = { type: "object" };
const own = ["read", "pay", "chatty", "drip", "huge", "grow", "change", "slow", "values", "weigh", "flood"];
/** Looks at every property of an object hundreds of times. */
const costly = { ...schema, allOf: Array(500).fill({ additionalProperties: true }), unevaluatedProperties: false };
/** For so long a flood lasts. */
const FLOOD_MS = 1_000;
const SLOW_MS = 2_000;
const WEIGH_MS = 3_000;
/** Empty arrays in each of the definitions that weigh much: about ten times as much in memory as in the text. */
const EMPTY_ARRAYS = 100_000;
let isWeighing = false;

function tools(cursor) {
  const start = Number(cursor ?? 0);
  const listed = start === 0 ? own.map((name) => ({ name, description: name, inputSchema: schema })) : [];
  if (start === 0) listed.push({ name: "check", description: "check", inputSchema: costly });
  if (isWeighing) {
    listed.push({ name: `heavy-${start}`, inputSchema: { ...schema, default: empty(EMPTY_ARRAYS) } });
    return start < 90 ? { tools: listed, nextCursor: String(start + 1) } : { tools: listed };
  }
  if (!hasMany) return { tools: listed };
  for (let i = start; i < Math.min(TOOLS, start + 1_000); i++) {
    listed.push({ name: `tool-${i}`, description: `version ${version}`, inputSchema: schema });
  }
  return start + 1_000 < TOOLS ? { tools: listed, nextCursor: String(start + 1_000) } : { tools: listed };
}

function empty(number) {
  return Array.from({ length: number }, () => []);
}

const many = empty(190_000);
const large = JSON.stringify({ method: "notifications/noise", params: { noise: empty(190_000) } });

/** What a server writes that answers nothing, by where it writes it. */
const floods = {
  stderr: [process.stderr, Buffer.alloc(1024 * 1024, "e\n")],
  "blank lines": [process.stdout, Buffer.alloc(1024 * 1024, "\n")],
  "a line without end": [process.stdout, Buffer.alloc(1024 * 1024, "x")],
  "large notifications": [process.stdout, Buffer.from(`{"jsonrpc":"2.0",${large.slice(1)}\n`)],
  "small notifications": [
    process.stdout,
    Buffer.from(`${JSON.stringify({ jsonrpc: "2.0", method: "notifications/noise" })}\n`.repeat(5_000)),
  ],
};

async function flood(kind) {
  const [output, bytes] = floods[kind];
  const until = Date.now() + FLOOD_MS;
  while (Date.now() < until) {
    if (!output.write(bytes)) await new Promise((resolve) => output.once("drain", resolve));
  }
  if (output === process.stdout) output.write("\n");
}

async function drip(id) {
  const text = `${JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "x".repeat(500) }] } })}\n`;
  for (const character of text) {
    process.stdout.write(character);
    await new Promise(setImmediate);
  }
}

async function call(id, { name, arguments: args, _meta }) {
  if (name === "flood") {
    // Answered first: the rest of a flood on stdout may be cut off with the connection.
    write({ id, result: { content: [] } });
    return flood(args.kind);
  }
  if (name === "slow") await new Promise((resolve) => setTimeout(resolve, SLOW_MS));
  if (name === "values") return write({ id, result: { content: [], structuredContent: { many } } });
  if (name === "weigh" && !isWeighing) {
    isWeighing = true;
    write({ method: "notifications/tools/list_changed" });
    setTimeout(() => {
      isWeighing = false;
      write({ method: "notifications/tools/list_changed" });
    }, WEIGH_MS);
  }
  if (name === "drip") {
    dripping = dripping.then(() => drip(id));
    return dripping;
  }
  if (name === "chatty" && _meta?.progressToken !== undefined) {
    const params = { progressToken: _meta.progressToken, progress: 1, message: "m".repeat(200_000) };
    write({ method: "notifications/progress", params });
  }
  if (name === "grow" && !hasMany) {
    hasMany = true;
    write({ method: "notifications/tools/list_changed" });
  }
  if (name === "change" && !isChanging) {
    hasMany = isChanging = true;
    setInterval(() => {
      version++;
      write({ method: "notifications/tools/list_changed" });
    }, 100);
  }
  const text = name === "huge" || name === "chatty" ? "h".repeat(900_000) : "read";
  write({ id, result: { content: [{ type: "text", text }] } });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    const capabilities = { tools: { listChanged: true } };
    const serverInfo = { name: "noisy", version: "1" };
    write({ id, result: { protocolVersion: "2025-11-25", capabilities, serverInfo } });
  } else if (method === "tools/list") write({ id, result: tools(params?.cursor) });
  else if (method === "tools/call") void call(id, params);
  else if (id !== undefined) write({ id, error: { code: -32601, message: "no such method" } });
}
