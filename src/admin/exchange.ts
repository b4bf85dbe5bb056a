// One HTTP exchange of the admin port: JSON in, JSON out, nothing cached, nothing framed, nothing sniffed.

import type { IncomingMessage, ServerResponse } from "node:http";
import { errorData, Fault, httpStatus, isJsonObject, type JsonObject, parseStrict } from "../mcp/index.js";

const HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

const MAX_DEPTH = 8;

export function sendText(
  response: ServerResponse,
  status: number,
  type: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  const length = { "content-type": type, "content-length": String(Buffer.byteLength(text)) };
  response.writeHead(status, { ...HEADERS, ...headers, ...length });
  response.end(text);
}

export function sendJson(response: ServerResponse, status: number, body: object): void {
  sendText(response, status, "application/json", `${JSON.stringify(body)}\n`);
}

/** The error object of the house. `status` where HTTP has a better word than the error table. */
export function sendFault(response: ServerResponse, fault: Fault, traceId: string, status = httpStatus(fault)): void {
  if (status === 401) response.setHeader("www-authenticate", 'Bearer realm="portcullis admin"');
  const waitMs = fault.detail.extra?.retry_after_ms;
  if (typeof waitMs === "number") response.setHeader("retry-after", String(Math.ceil(waitMs / 1000)));
  // What is left of a body that was not read ends with the connection.
  response.setHeader("connection", "close");
  sendJson(response, status, { error: errorData(fault, traceId) });
}

/** The body as a strict JSON object; an empty body is an empty object. */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<JsonObject> {
  const type = request.headers["content-type"] ?? "";
  // A form or a plain text is what a page can send without being asked; JSON is not.
  if (!/^application\/json\s*(;\s*charset=utf-8\s*)?$/i.test(type)) {
    throw new Fault("InvalidRequest", "the body must be JSON", {
      field: "Content-Type",
      suggestions: ["Send Content-Type: application/json"],
    });
  }
  const text = decode(await readBody(request, maxBytes));
  if (text === "") return {};
  let value: unknown;
  try {
    value = parseStrict(text, MAX_DEPTH);
  } catch (error) {
    throw new Fault("ParseError", (error as Error).message);
  }
  if (!isJsonObject(value)) throw new Fault("InvalidParams", "the body must be a JSON object");
  return value;
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) throw new Fault("TooLarge", `the body is over ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function decode(body: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    throw new Fault("ParseError", "the body is not UTF-8");
  }
}
