// What stands in the head of a request, as undici likes it: names and values in one flat list.

import { MODERN } from "../../index.js";
import type { SessionCall } from "../types.js";

const PLAIN = /^[\x20-\x7e]+$/;
const ENCODED = /^=\?base64\?.*\?=$/;

/** A value as it may stand on the wire: itself when it is plain, otherwise its UTF-8 bytes in base64. */
export function headerValue(value: string): string {
  if (PLAIN.test(value) && value === value.trim() && !ENCODED.test(value)) return value;
  return `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/** What a call may not say in a header of its own: it is ours, HTTP's, or the credential's. */
const RESERVED: ReadonlySet<string> = new Set([
  "accept",
  "authorization",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "cookie",
  "dpop",
  "host",
  "last-event-id",
  "mcp-method",
  "mcp-name",
  "mcp-protocol-version",
  "mcp-session-id",
  "origin",
  "proxy-authorization",
  "te",
  "transfer-encoding",
  "upgrade",
]);

export function addHeaders(list: string[], headers: Readonly<Record<string, string>> | undefined): void {
  for (const name in headers) list.push(name, headers[name] as string);
}

export function addCallHeaders(list: string[], call: SessionCall, isModern: boolean): void {
  if (isModern) {
    list.push("mcp-protocol-version", MODERN.name, "mcp-method", call.method);
    if (call.name !== undefined) list.push("mcp-name", headerValue(call.name));
  }
  for (const name in call.headers) {
    if (!RESERVED.has(name.toLowerCase())) list.push(name, headerValue(call.headers[name] as string));
  }
}
