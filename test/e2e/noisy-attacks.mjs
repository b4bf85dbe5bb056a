// One attack on a gateway, in a process of its own: node noisy-attacks.mjs '{"attack":…}'. It writes what the gateway
// answered, by status, when its time is over.
import { connect } from "node:net";
import { Agent, request } from "undici";

const { attack, url, admin, websocket, key, seconds = 0, scale = 1 } = JSON.parse(process.argv[2]);
const until = Date.now() + seconds * 1_000;
const statuses = {};
const count = (status) => {
  statuses[status] = (statuses[status] ?? 0) + 1;
};
const dispatcher = new Agent({ connections: 256, pipelining: 1 });
const at = url === undefined ? undefined : new URL(url);
const bearer = { authorization: `Bearer ${key}` };
const json = { "content-type": "application/json", accept: "application/json, text/event-stream" };

async function send(method, path, headers, body) {
  try {
    const answer = await request(new URL(path, url), { method, dispatcher, headers, body });
    await answer.body.dump({ limit: 16 * 1024 * 1024 });
    count(answer.statusCode);
    return answer.headers;
  } catch (error) {
    count(error.code ?? "error");
    return {};
  }
}

async function loop(concurrency, run) {
  const one = async () => {
    for (let i = 0; Date.now() < until; i++) {
      await run(i);
      // An attack need not keep this machine's cores from what it measures.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await Promise.all(Array.from({ length: concurrency }, one));
}

const post = (body, headers = bearer) => send("POST", "/mcp", { ...json, ...headers }, body);
const call = (name, args, more = {}, headers = {}) =>
  post(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args, ...more } }), {
    ...bearer,
    ...headers,
  });

/** Holds so many sockets open that each wrote something, and opens those again that were closed. */
async function hold(number, target, write) {
  const open = () => {
    if (Date.now() >= until) return;
    const socket = connect(Number(target.port), target.hostname, () => write(socket));
    socket.on("error", () => {});
    socket.on("close", () => {
      count("closed");
      setTimeout(open, 50);
    });
    sockets.add(socket);
  };
  const sockets = new Set();
  for (let i = 0; i < number; i++) {
    open();
    if (i % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, until - Date.now())));
  count("held");
}

async function initialize(capabilities = {}) {
  const params = { protocolVersion: "2025-11-25", capabilities, clientInfo: { name: "noisy", version: "1" } };
  const headers = await post(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params }));
  return headers["mcp-session-id"];
}

const nested = `{"jsonrpc":"2.0","id":1,"method":"x","auth":1,"params":{"a":[${"[],".repeat(1_200_000)}0]}}`;
const head = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;

function upgrade(more) {
  return (
    `GET /mcp HTTP/1.1\r\nHost: localhost\r\n${more}Connection: Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
  );
}

/** A small frame of a client, with a mask of zeros. */
function frame(first, text) {
  return Buffer.concat([Buffer.from([first, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
}

/** Sends the same bytes again and again. */
function pour(socket, bytes) {
  const more = () => {
    while (Date.now() < until && !socket.destroyed && socket.write(bytes)) {}
  };
  socket.on("drain", more);
  more();
}

const floodOf = (kind) => loop(2, () => send("POST", "/tools/flood", { ...json, ...bearer }, JSON.stringify({ kind })));

const attacks = {
  "bodies without a credential": () => loop(16, () => post(nested, {})),
  "bodies with a wrong credential": () => loop(16, () => post(nested, { authorization: "Bearer wrong" })),
  "bodies of a million values": () => loop(8, () => post(nested)),
  "calls with a million values": () => {
    const values = `[${"0,".repeat(1_500_000)}0]`;
    const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"a":${values}}}}`;
    return loop(8, () => post(call));
  },
  "calls with keys in another order": () => {
    const keys = Array.from({ length: 90_000 }, (_, i) => `"${(i * 7919) % 90_001}": ${i}`).join(", ");
    return loop(8, () => send("POST", "/tools/read", { ...json, ...bearer }, `{${keys}}`));
  },
  "arguments that take long to check": () => {
    const many = JSON.stringify(Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`p${i}`, 1])));
    return loop(8, () => send("POST", "/tools/check", { ...json, ...bearer }, many));
  },
  "capabilities of megabytes": () => {
    const capabilities = { experimental: { x: "c".repeat(3_000_000) } };
    return loop(4, () => initialize(capabilities));
  },
  "ended event streams": () =>
    loop(8, async () => {
      const session = await initialize();
      if (session === undefined) return;
      const headers = { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
      await post(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }), { ...bearer, ...headers });
      for (let i = 0; i < 8; i++) await call("chatty", {}, { _meta: { progressToken: "t" } }, headers);
    }),
  "answers that are not read": () =>
    hold(200, at, (socket) => {
      const body = JSON.stringify({});
      const line = `POST /tools/huge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n`;
      socket.pause();
      socket.write(`${line}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    }),
  "unfinished bodies": () =>
    hold(Math.round(10_000 * scale), at, (socket) => {
      socket.write(`${head}Authorization: Bearer ${key}\r\nContent-Length: 4000000\r\n\r\n${"[".repeat(20_000)}`);
    }),
  "unfinished bodies without a credential": () =>
    hold(Math.round(10_000 * scale), at, (socket) => socket.write(`${head}Content-Length: 60000\r\n\r\n[`)),
  "unfinished WebSocket frames": () =>
    hold(Math.round(400 * scale), new URL(websocket), (socket) => {
      socket.write(upgrade(`Authorization: Bearer ${key}\r\n`));
      const unfinished = Buffer.alloc(14 + 3_000_000);
      unfinished[0] = 0x81;
      unfinished[1] = 0xff;
      unfinished.writeBigUInt64BE(4_000_000n, 2);
      socket.write(unfinished);
    }),
  "bodies in chunks of one byte": () =>
    hold(100, at, (socket) => {
      socket.write(`${head}Authorization: Bearer ${key}\r\nTransfer-Encoding: chunked\r\n\r\n`);
      pour(socket, "1\r\n[\r\n".repeat(2_000));
    }),
  "requests sent ahead": () =>
    hold(50, at, (socket) => {
      socket.resume();
      pour(socket, `${head}Authorization: Bearer ${key}\r\nContent-Length: 2\r\n\r\n{}`.repeat(100));
    }),
  "pings on WebSockets": () =>
    hold(50, new URL(websocket), (socket) => {
      socket.resume();
      socket.write(upgrade(`Authorization: Bearer ${key}\r\n`));
      pour(socket, Buffer.concat(Array.from({ length: 500 }, () => frame(0x89, "p".repeat(100)))));
    }),
  "fragments on WebSockets": () =>
    hold(50, new URL(websocket), (socket) => {
      socket.resume();
      socket.write(upgrade(`Authorization: Bearer ${key}\r\n`));
      socket.write(frame(0x01, "["));
      pour(socket, Buffer.concat(Array.from({ length: 2_000 }, () => frame(0x00, "["))));
    }),
  "messages without a credential on WebSockets": () =>
    hold(50, new URL(websocket), (socket) => {
      socket.resume();
      socket.write(upgrade(""));
      const message = frame(0x81, JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }));
      pour(socket, Buffer.concat(Array.from({ length: 500 }, () => message)));
    }),
  "idle sockets at the admin port": () => hold(300, new URL(admin), () => {}),
  "floods of metrics without a credential": () =>
    loop(64, async () => {
      const answer = await request(new URL("/metrics", admin), { dispatcher }).catch(() => undefined);
      await answer?.body.dump();
      count(answer?.statusCode ?? "error");
    }),
  "answers byte by byte": () => loop(8, () => send("POST", "/tools/drip", { ...json, ...bearer }, "{}")),
  "floods of tools and documents": () =>
    loop(32, (i) =>
      i % 2 === 0
        ? send("GET", "/openapi.json", bearer)
        : send("POST", "/tools/read", { ...json, ...bearer }, JSON.stringify({ text: "x" })),
    ),
  "floods of approvals": () =>
    loop(8, (i) =>
      send(
        "POST",
        "/tools/pay",
        { ...json, ...bearer },
        JSON.stringify({ text: `${process.pid}-${i}-${Math.random()}` }),
      ),
    ),
  "denied calls with names of a megabyte": () => {
    const long = "n".repeat(1_000_000);
    return loop(8, (i) => call(`${long}${i}`, {}));
  },
  "lists of thousands of tools": async () => {
    const session = await initialize();
    const headers = { ...bearer, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
    await post(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }), headers);
    await send("POST", "/tools/grow", { ...json, ...bearer }, "{}");
    const list = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    await loop(4, (i) => (i % 2 === 0 ? send("GET", "/openapi.json", bearer) : post(list, headers)));
  },
  "calls that wait with thousands of values each": () => {
    const values = `[${"[],".repeat(24_000)}0]`;
    const body = `{"a":${values}}`;
    return loop(256, () => send("POST", "/tools/slow", { ...json, ...bearer }, body));
  },
  "results of hundreds of thousands of values": () =>
    loop(16, () => send("POST", "/tools/values", { ...json, ...bearer }, "{}")),
  "a server that floods stderr": () => floodOf("stderr"),
  "a server that writes blank lines": () => floodOf("blank lines"),
  "a server that writes a line without end": () => floodOf("a line without end"),
  "a server that writes large notifications": () => floodOf("large notifications"),
  "a server that writes small notifications": () => floodOf("small notifications"),
  "lists of millions of values": async () => {
    await send("POST", "/tools/weigh", { ...json, ...bearer }, "{}");
    await loop(2, () => send("POST", "/tools/read", { ...json, ...bearer }, "{}"));
  },
  "thousands of changing tools": async () => {
    await send("POST", "/tools/change", { ...json, ...bearer }, "{}");
    await loop(2, () => send("POST", "/tools/read", { ...json, ...bearer }, "{}"));
  },
};

if (attack === undefined) console.log(JSON.stringify(Object.keys(attacks)));
else {
  await attacks[attack]();
  console.log(JSON.stringify(statuses));
  process.exit(0);
}
