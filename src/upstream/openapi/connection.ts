// An HTTP API with an OpenAPI document, as a connection to a server: its operations are tools, a call is one HTTP request.
// Everything that holds for other servers (turns, limits, charges, pins) holds for it by the same code.

import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import {
  Charge,
  Fault,
  isJsonObject,
  type JsonObject,
  MODERN,
  nextSlice,
  parsedBytes,
  parseStrict,
  valuesIn,
} from "../../mcp/index.js";
import {
  asServerFault,
  boundedText,
  type ConnectionEvents,
  type Credentials,
  type Exchange,
  faultOfError,
  HttpClient,
  type HttpRequestLine,
  type SessionAgreement,
  type SessionAnswer,
  type SessionCall,
  serverUnavailable,
  timedOut,
} from "../../mcp/session/index.js";
import { type Dialer, sameOrigin } from "../dialer.js";
import type { OpenApiSource, UpstreamConnection, UpstreamContext } from "../types.js";
import { MAX_API_DOCUMENT_BYTES, parsedDocument } from "./document.js";
import { type ApiOperation, type OperationsRead, readOperations } from "./operations.js";
import { operationRequest } from "./request.js";

/** A document is read again after so long, when its tools are asked for or called. */
const FRESH_MS = 60_000;
const DOCUMENT_MS = 30_000;
const TOOLS_PER_PAGE = 50;
const MAX_REDIRECTS = 5;
const MAX_SHOWN = 100;

interface Read extends OperationsRead {
  /** Of the document's bytes: the same document is not parsed again. */
  readonly hash: string;
  readonly agreement: SessionAgreement;
}

interface Whole {
  readonly exchange: Exchange;
  readonly bytes: Buffer;
}

type Wait = Pick<SessionCall, "timeoutMs" | "cancel">;

export class OpenApiConnection implements UpstreamConnection {
  readonly #url: URL;
  readonly #source: OpenApiSource;
  readonly #dialer: Dialer;
  readonly #credentials: Credentials | undefined;
  readonly #context: UpstreamContext;
  readonly #events: ConnectionEvents;
  /** Of the definitions until they are listed, and from then on charged with the listing. */
  readonly #charge: Charge;
  #client: HttpClient | undefined;
  #read: Read | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isStale = false;
  #isClosed = false;

  constructor(
    url: URL,
    source: OpenApiSource,
    dialer: Dialer,
    credentials: Credentials | undefined,
    context: UpstreamContext,
    events: ConnectionEvents,
  ) {
    this.#url = url;
    this.#source = source;
    this.#dialer = dialer;
    this.#credentials = credentials;
    this.#context = context;
    this.#events = events;
    this.#charge = new Charge(context.budget);
  }

  get agreement(): SessionAgreement {
    return (this.#read as Read).agreement;
  }

  /** Which operations are no tools, and why. */
  get notes(): string {
    const left = this.#read?.left.slice(0, MAX_SHOWN) ?? [];
    return left.map(({ operation, why }) => `${operation}: ${why}`).join("\n");
  }

  async open(): Promise<void> {
    this.#client = this.#openTo(this.#url, this.#context);
    await this.#readDocument();
  }

  async call(call: SessionCall): Promise<SessionAnswer> {
    const { server } = this.#context;
    try {
      if (this.#isClosed) throw serverUnavailable(server, "it has been stopped");
      if (call.method === "tools/list") return await this.#listed(call);
      if (call.method !== "tools/call") return failed(-32601, `there is no method \`${call.method}\``);
      const params = JSON.parse(call.params) as JsonObject;
      // INVARIANT: found before anything is awaited, so that it is of the listing that the call was checked against.
      const operation = this.#read?.operations.get(String(params.name));
      if (operation === undefined) return failed(-32602, `there is no tool \`${String(params.name).slice(0, 100)}\``);
      const args = isJsonObject(params.arguments) ? params.arguments : {};
      return resultOf(this.#resultOf(await this.#sent(operation, args, call), operation));
    } catch (error) {
      throw asServerFault(server, error, true);
    }
  }

  /** An API announces no changes. */
  listen(): Promise<SessionAnswer> {
    return Promise.resolve(failed(-32601, "there is nothing to listen to"));
  }

  batch(calls: readonly SessionCall[]): Promise<SessionAnswer>[] {
    return calls.map((call) => this.call(call));
  }

  async notify(): Promise<void> {}

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#charge.set(0);
    await this.#client?.close();
  }

  // ---- the document

  async #listed(call: SessionCall): Promise<SessionAnswer> {
    const { cursor = "0" } = JSON.parse(call.params) as { cursor?: string };
    const at = Number(cursor);
    // What is known stays good for calls: they go by our copy.
    if (at === 0 && this.#isStale) await this.#readDocument().catch(() => this.#waitForStale());
    const { operations } = this.#read as Read;
    const tools = [...operations.values()].slice(at, at + TOOLS_PER_PAGE).map(({ definition }) => definition);
    const isLast = at + TOOLS_PER_PAGE >= operations.size;
    const value = { tools, ...(isLast ? {} : { nextCursor: String(at + TOOLS_PER_PAGE) }) };
    const text = JSON.stringify(value);
    await nextSlice();
    if (isLast) this.#charge.set(0);
    return { kind: "result", text, value, values: valuesIn(text) };
  }

  async #readDocument(): Promise<void> {
    const { server, limits, budget } = this.#context;
    const held = new Charge(budget);
    try {
      const text = await this.#documentText();
      const hash = createHash("sha256").update(text).digest("base64");
      if (hash !== this.#read?.hash) {
        if (!held.set(parsedBytes(text.length, 0))) throw new TypeError("it is more than its application may keep");
        const { document, values } = await parsedDocument(text);
        if (!held.set(parsedBytes(text.length, values)))
          throw new TypeError("it is more than its application may keep");
        await nextSlice();
        const bounds = { maxOperations: limits.maxEntries, maxBytes: limits.maxCatalogueBytes };
        const read = await readOperations(document, this.#source.choice, bounds);
        held.set(0);
        if (!this.#charge.set(read.bytes)) throw new TypeError("its tools are more than its application may keep");
        const { title = server, version = "" } =
          isJsonObject(document) && isJsonObject(document.info) ? document.info : {};
        const serverInfo = { name: String(title).slice(0, 1_000), version: String(version).slice(0, 1_000) };
        const capabilities = { tools: {} };
        const agreement = { revision: MODERN, serverInfo, capabilities, instructions: undefined, result: {} };
        this.#read = { ...read, hash, agreement };
      }
      this.#waitForStale();
    } catch (error) {
      if (error instanceof Fault) throw error;
      throw serverUnavailable(server, `its OpenAPI document cannot be used: ${(error as Error).message}`);
    } finally {
      held.set(0);
    }
  }

  #waitForStale(): void {
    this.#isStale = false;
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#isStale = true;
      this.#events.disconnected(true);
    }, FRESH_MS).unref();
  }

  #openTo(url: URL, context: UpstreamContext): HttpClient {
    return new HttpClient(url, (to) => this.#dialer.connect(to), context);
  }

  async #documentText(): Promise<string> {
    const { document } = this.#source;
    if (!/^https?:/.test(document)) {
      if ((await stat(document)).size > MAX_API_DOCUMENT_BYTES) throw tooLong();
      return readFile(document, "utf8");
    }
    const url = new URL(document);
    const { limits } = this.#context;
    const own = { ...limits, connections: 1, maxMessageBytes: MAX_API_DOCUMENT_BYTES };
    const client = this.#openTo(url, { ...this.#context, limits: own });
    try {
      const line = { method: "GET", path: url.pathname + url.search, headers: ["accept", "*/*"] };
      const wait = { timeoutMs: DOCUMENT_MS };
      const { exchange, bytes } = await this.#followed(client, url, line, wait, "the document");
      if (exchange.status >= 300) throw new TypeError(`${exchange.status} at its address`);
      return bytes.toString("utf8");
    } finally {
      await client.close();
    }
  }

  // ---- one call

  async #sent(operation: ApiOperation, args: JsonObject, call: SessionCall): Promise<Whole> {
    const { server, limits } = this.#context;
    const { url, method, headers, body } = await operationRequest(operation, this.#url, args);
    if (body !== undefined) boundedText(server, limits.maxMessageBytes, body);
    const path = url.pathname + url.search;
    const send = async (): Promise<Whole> => {
      const all = new Map(Object.entries(headers));
      // INVARIANT: the gateway's credential takes the place of anything that an argument named, in whatever case.
      for (const [name, value] of Object.entries((await this.#credentials?.headers(method, url.pathname)) ?? {})) {
        all.set(name.toLowerCase(), value);
      }
      const line = { method, path, headers: [...all].flat(), ...(body === undefined ? {} : { body }) };
      return this.#followed(this.#client as HttpClient, url, line, call, call.name ?? call.method);
    };
    const first = await send();
    const { status, headers: given } = first.exchange;
    if ((status !== 401 && status !== 403) || this.#credentials?.refused === undefined) return first;
    const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
    const wwwAuthenticate = text(given["www-authenticate"]);
    const isRetried = await this.#credentials.refused({
      status,
      wwwAuthenticate,
      dpopNonce: text(given["dpop-nonce"]),
    });
    if (!isRetried) return first;
    await this.#events.mayResend(call);
    return send();
  }

  /** Follows redirects within the origin, as browsers do: all but 307 and 308 turn a POST into a GET. */
  async #followed(client: HttpClient, from: URL, first: HttpRequestLine, wait: Wait, what: string): Promise<Whole> {
    const { server } = this.#context;
    const until = performance.now() + wait.timeoutMs;
    let url = from;
    let line = first;
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
      const timeoutMs = wait.timeoutMs === 0 ? 0 : Math.max(1, until - performance.now());
      const whole = await this.#exchanged(client, line, { ...wait, timeoutMs }, what);
      const { status, headers } = whole.exchange;
      if (status < 300 || status >= 400 || headers.location === undefined) return whole;
      url = sameOrigin(url, headers.location);
      const { body, ...rest } = line;
      const isSame = status === 307 || status === 308 || line.method === "GET" || line.method === "HEAD";
      line = {
        ...rest,
        path: url.pathname + url.search,
        ...(isSame ? { body } : { method: "GET" }),
      } as HttpRequestLine;
    }
    throw serverUnavailable(server, `it redirects more than ${MAX_REDIRECTS} times`);
  }

  #exchanged(client: HttpClient, line: HttpRequestLine, wait: Wait, what: string): Promise<Whole> {
    const { server } = this.#context;
    const { cancel, timeoutMs } = wait;
    return new Promise<Whole>((resolve, reject) => {
      if (cancel?.fault !== undefined) return reject(cancel.fault);
      let bytes: Buffer = Buffer.alloc(0);
      const exchange = client.send(line, {
        message: () => {},
        bytes: (all) => (bytes = all),
        done: (over, error) => {
          clearTimeout(timer);
          if (error === undefined) resolve({ exchange: over, bytes });
          else reject(faultOfError(server, over, error));
        },
      });
      const stop = (fault: Fault): void => {
        clearTimeout(timer);
        exchange.abort();
        reject(fault);
      };
      const late = (): void => stop(timedOut(server, "tools/call", what, Math.ceil(timeoutMs)));
      const timer = timeoutMs === 0 ? undefined : setTimeout(late, timeoutMs);
      cancel?.onAbort(stop);
    });
  }

  #resultOf({ exchange, bytes }: Whole, operation: ApiOperation): JsonObject {
    const { status, headers } = exchange;
    const type = headers["content-type"] ?? "";
    const said = { type: "text", text: `HTTP ${status}` } as const;
    const isError = status >= 400;
    if (bytes.length === 0) return { content: [said], ...(isError ? { isError } : {}) };
    if (type.startsWith("image/") && !type.includes("svg")) {
      return { content: [{ type: "image", mimeType: type, data: bytes.toString("base64") }] };
    }
    const isText = type === "" || /json|text|xml|yaml|javascript|urlencoded/.test(type);
    if (!isText) {
      // Callers do not read where the API is.
      const uri = `${encodeURIComponent(this.#context.server)}:${encodeURI(operation.path)}`;
      const resource = { uri, mimeType: type, blob: bytes.toString("base64") };
      return { content: [{ type: "resource", resource }] };
    }
    const text = bytes.toString("utf8");
    const value = /json/.test(type) && !isError ? objectIn(text) : undefined;
    return {
      content: [...(isError ? [said] : []), { type: "text", text }],
      ...(value === undefined ? {} : { structuredContent: value }),
      ...(isError ? { isError } : {}),
    };
  }
}

function tooLong(): TypeError {
  return new TypeError(`it has more than ${MAX_API_DOCUMENT_BYTES} bytes`);
}

function resultOf(value: JsonObject): SessionAnswer {
  const complete = { resultType: "complete", ...value };
  const text = JSON.stringify(complete);
  return { kind: "result", text, value: complete, values: valuesIn(text) };
}

function failed(code: number, message: string): SessionAnswer {
  const error = { code, message };
  return { kind: "error", text: JSON.stringify(error), error };
}

/** Undefined for everything that two parsers could read differently, and for what has too many values: it stays a text. */
function objectIn(text: string): JsonObject | undefined {
  try {
    const value = parseStrict(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
