// One session with one MCP server: correlation of requests and answers, negotiation, both eras, every transport.

export { httpPortOf, PersistentPort } from "./client-transport.js";
export * from "./faults.js";
export { faultOfError, faultOfStatus } from "./faults.js";
export { HttpSessionConnection, type OpenPort } from "./http/connection.js";
export type { Exchange } from "./http/exchange.js";
export {
  addHeaders,
  HttpClient,
  type HttpPort,
  type HttpRequestLine,
  RESERVED_HEADERS,
  sendAndForget,
} from "./http/exchange.js";
export {
  type ClientInfo,
  cancellation,
  PROTOCOL_META,
  type SessionAgreement,
  type SessionTerms,
  SPOKEN,
  spoken,
} from "./negotiate.js";
export { ByteRate } from "./pending.js";
export { PersistentConnection } from "./persistent.js";
export { boundedText } from "./text.js";
export type { PersistentTransport, PersistentTransportEvents, UnsentLimit } from "./types.js";
export * from "./types.js";
