// WebSocket, both sides.

export * from "./websocket-client.js";
export * from "./websocket-server.js";
