// The far end for bench/upstream.mjs: an MCP server that does nothing but echo, on stdio or, with a port, on HTTP.
import http from "node:http";

const MODERN = "2026-07-28";
const done = (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`;

function answer(message) {
  const { id, method, params } = message;
  if (id === undefined) return undefined;
  switch (method) {
    case "server/discover":
      return done(
        id,
        JSON.stringify({ supportedVersions: [MODERN], capabilities: { tools: {} }, resultType: "complete" }),
      );
    case "tools/call":
      return done(
        id,
        `{"content":[{"type":"text","text":${JSON.stringify(params.arguments?.text ?? "")}}],"resultType":"complete"}`,
      );
    default:
      return `{"jsonrpc":"2.0","id":${id},"error":{"code":-32601,"message":"Method not found"}}`;
  }
}

if (process.argv[2] === "http") {
  const server = http.createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const text = answer(JSON.parse(body));
      response.writeHead(200, ["Content-Type", "application/json", "Content-Length", Buffer.byteLength(text)]);
      response.end(text);
    });
  });
  server.keepAliveTimeout = 600_000;
  server.listen(0, "127.0.0.1", () => process.send({ port: server.address().port }));
} else {
  let held = "";
  process.stdin.setEncoding("utf8").on("data", (chunk) => {
    const lines = (held + chunk).split("\n");
    held = lines.pop();
    let out = "";
    for (const line of lines) {
      const text = line === "" ? undefined : answer(JSON.parse(line));
      if (text !== undefined) out += `${text}\n`;
    }
    if (out !== "") process.stdout.write(out);
  });
}
