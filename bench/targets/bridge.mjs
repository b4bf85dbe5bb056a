// The floor over stdio: node:http in, one child, ids made its own and put back.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { join } from "node:path";
import { ready } from "./child.mjs";

const child = spawn(process.execPath, [join(import.meta.dirname, "echo.mjs"), "--stdio"], {
  stdio: ["pipe", "pipe", "inherit"],
});
const waiting = new Map();
let next = 1;
let unread = "";
let unsent = "";
const put = (line) => {
  if (unsent === "") {
    setImmediate(() => {
      child.stdin.write(unsent);
      unsent = "";
    });
  }
  unsent += line;
};
child.stdout.setEncoding("utf8").on("data", (chunk) => {
  const lines = (unread + chunk).split("\n");
  unread = lines.pop();
  for (const line of lines) {
    const message = JSON.parse(line);
    const asked = waiting.get(message.id);
    if (!asked) continue;
    waiting.delete(message.id);
    message.id = asked.id;
    const body = JSON.stringify(message);
    const length = Buffer.byteLength(body);
    asked.response.writeHead(200, { "content-type": "application/json", "content-length": length });
    asked.response.end(body);
  }
});
const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const message = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    if (message.id === undefined) {
      put(`${JSON.stringify(message)}\n`);
      response.writeHead(202, { "content-length": 0 }).end();
      return;
    }
    const id = next++;
    waiting.set(id, { id: message.id, response });
    message.id = id;
    put(`${JSON.stringify(message)}\n`);
  });
});
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1", () =>
  ready(`http://127.0.0.1:${server.address().port}/mcp`, { stop: async () => void child.kill() }),
);
