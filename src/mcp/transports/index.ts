// Transports: how texts travel. One interface, five ways; the handler decides what a text means.

export { ByteStore } from "./bytes.js";
export { Connections, type Evictable } from "./connections.js";
export * from "./http.js";
export * from "./memory.js";
export { SseReader } from "./sse.js";
export * from "./stdio.js";
export * from "./tcp.js";
export * from "./types.js";
export * from "./websocket.js";
