// Transports: how texts travel. One interface, five ways; what a text means is decided elsewhere.

export { ByteStore } from "./bytes.js";
export { Connections, type Evictable } from "./connections.js";
export type { TransportErrorKind } from "./error.js";
export * from "./http.js";
export * from "./memory.js";
export { loadPool } from "./pool.js";
export { SseReader } from "./sse.js";
export * from "./stdio.js";
export * from "./tcp.js";
export * from "./types.js";
export * from "./websocket.js";
