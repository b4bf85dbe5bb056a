// One session with one MCP server: correlation of requests and answers, negotiation, both eras, every transport.

export { type ClientInfo, PROTOCOL_META, type SessionAgreement, SPOKEN, spoken } from "./negotiate.js";
export { httpPortOf, PersistentPort } from "./client-transport.js";
export * from "./faults.js";
export {
  HttpClient,
  type HttpPort,
  type HttpRequestLine,
  isType,
  RESERVED_HEADERS,
  sendAndForget,
} from "./http/exchange.js";
export { HttpSessionConnection, type OpenPort } from "./http/connection.js";
export type { Exchange } from "./http/exchange.js";
export { addHeaders } from "./http/exchange.js";
export { faultOfError, faultOfStatus } from "./faults.js";
export { cancellation, type SessionTerms } from "./negotiate.js";
export { boundedText } from "./text.js";
export { PersistentConnection } from "./persistent.js";
export { ByteRate } from "./pending.js";
export type { PersistentTransport, PersistentTransportEvents, UnsentLimit } from "./types.js";
export * from "./types.js";
