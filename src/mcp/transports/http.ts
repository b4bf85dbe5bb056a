// HTTP, both sides.

export * from "./http-client.js";
export * from "./http-server.js";
