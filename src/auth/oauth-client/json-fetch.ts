// What is read from an authorization server: JSON objects of bounded size, in bounded time, from where we may ask.

import { isJsonObject, type JsonObject } from "../../mcp/index.js";

export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

const MAX_ANSWER_BYTES = 256 * 1024;
const ANSWER_MS = 20_000;

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** Tokens and keys travel by TLS; only on this machine plain HTTP will do. */
export function safeUrl(text: unknown, what: string): URL {
  if (typeof text !== "string" || text.length > 4096 || !URL.canParse(text)) {
    throw new OAuthError("OAUTH_METADATA", `${what} is not a valid address`);
  }
  const url = new URL(text);
  const isSafe = url.protocol === "https:" || (url.protocol === "http:" && LOOPBACK.test(url.hostname));
  if (!isSafe || url.username !== "" || url.password !== "") {
    throw new OAuthError("OAUTH_METADATA", `${what} must be an https address without a password, not ${url.origin}`);
  }
  return url;
}

export interface JsonAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Undefined when the body is not a JSON object. */
  readonly body: JsonObject | undefined;
}

export async function fetchJson(fetch: Fetch, url: URL, init: RequestInit = {}): Promise<JsonAnswer> {
  const headers = new Headers(init.headers);
  headers.set("accept", "application/json");
  const response = await fetch(url, { ...init, headers, signal: AbortSignal.timeout(ANSWER_MS) });
  return { status: response.status, headers: response.headers, body: parsed(await boundedText(response, url)) };
}

async function boundedText(response: Response, url: URL): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) return Buffer.concat(chunks).toString("utf8");
    bytes += part.value.byteLength;
    if (bytes > MAX_ANSWER_BYTES) {
      await reader?.cancel();
      throw new OAuthError("OAUTH_METADATA", `${url.origin} answered with more than ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(part.value);
  }
}

function parsed(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Something between us and an authorization server went wrong. Messages hold no token and no secret. */
export class OAuthError extends Error {
  readonly code: OAuthErrorCode;
  constructor(code: OAuthErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "OAuthError";
    this.code = code;
  }
}

export type OAuthErrorCode =
  /** An address that may not be used, or metadata that is missing, malformed or of another issuer. */
  | "OAUTH_METADATA"
  /** No way to be known as a client there. */
  | "OAUTH_REGISTRATION"
  /** The answer to an authorization request is not ours, or says no. */
  | "OAUTH_AUTHORIZATION"
  /** The token endpoint refused. */
  | "OAUTH_TOKEN"
  /** A person has to log in. */
  | "OAUTH_LOGIN_NEEDED";
