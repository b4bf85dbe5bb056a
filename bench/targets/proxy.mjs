// The floor over HTTP: node:http in, undici out, bytes unread.
import { createServer } from "node:http";
import { Pool } from "undici";
import { ready } from "./child.mjs";

const downstream = new URL(process.env.DOWNSTREAM);
const pool = new Pool(downstream.origin, { connections: 128, pipelining: 1 });
const HOP = new Set(["host", "connection", "content-length", "transfer-encoding", "keep-alive"]);
const passed = (headers) => Object.fromEntries(Object.entries(headers).filter(([name]) => !HOP.has(name)));
const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", async () => {
    const { url: path, method, headers } = request;
    const sent = await pool.request({ path, method, headers: passed(headers), body: Buffer.concat(chunks) });
    const body = Buffer.from(await sent.body.arrayBuffer());
    response.writeHead(sent.statusCode, { ...passed(sent.headers), "content-length": body.length });
    response.end(body);
  });
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () => ready(`http://127.0.0.1:${server.address().port}/mcp`));
