// One request and its answer on a connection of its own.

import { connect } from "node:net";
import WebSocket from "ws";

/** One JSON-RPC request as a line. */
export async function overTcp(url: string, message: object): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname === "0.0.0.0" ? "127.0.0.1" : hostname);
  try {
    return await new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.once("data", (data) => resolve(data.toString("utf8")));
      socket.write(`${JSON.stringify(message)}\n`);
    });
  } finally {
    socket.destroy();
  }
}

/** One JSON-RPC request as a frame. */
export async function overWebSocket(url: string, message: object): Promise<string> {
  const socket = new WebSocket(url.replace("0.0.0.0", "127.0.0.1"), "mcp");
  try {
    return await new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.on("message", (data) => resolve(String(data)));
      socket.on("open", () => socket.send(JSON.stringify(message)));
    });
  } finally {
    socket.terminate();
  }
}
