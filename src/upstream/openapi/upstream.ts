// An HTTP API with an OpenAPI document, as an upstream server: its operations are tools, a call is one HTTP request.

import { readFile, stat } from "node:fs/promises";
import { parse as parseYaml } from "yaml";
import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { serverUnavailable, timedOut, tooLarge } from "../../mcp/session/index.js";
import { definitionChanged } from "../connect.js";
import { createOutbound, type Dialer } from "../dialer.js";
import { definitionHashOf } from "../pins/definition.js";
import {
  type Catalogue,
  type Credentials,
  DEFAULT_UPSTREAM_LIMITS,
  type Upstream,
  type UpstreamAnswer,
  type UpstreamCall,
  type UpstreamCounts,
} from "../types.js";
import { type ApiOperation, type OperationChoice, type OperationsRead, readOperations } from "./operations.js";
import { operationRequest } from "./request.js";

export interface OpenApiTarget {
  readonly name: string;
  /** Below which the operations are. */
  readonly url: string;
  /** An address, or an absolute path. */
  readonly document: string;
  readonly choice: OperationChoice;
  readonly credentials?: Credentials | undefined;
  readonly dialer: Dialer;
}

const MAX_DOCUMENT_BYTES = 32 * 1024 * 1024;
const DOCUMENT_MS = 30_000;
/** A document that was read so recently is not read again. */
const FRESH_MS = 60_000;
const REVISION = "2026-07-28";

export function createOpenApiUpstream(options: OpenApiTarget): Upstream {
  return new OpenApiUpstream(options);
}

interface Read extends OperationsRead {
  readonly catalogue: Catalogue;
  readonly hashes: ReadonlyMap<string, string>;
  readonly at: number;
}

class OpenApiUpstream implements Upstream {
  readonly name: string;
  readonly #options: OpenApiTarget;
  readonly #outbound: ReturnType<typeof createOutbound>;
  readonly #counts: UpstreamCounts = {
    calls: 0,
    results: 0,
    errors: 0,
    failures: 0,
    timeouts: 0,
    cancelled: 0,
    refused: 0,
    strayAnswers: 0,
    malformed: 0,
    refusedMessages: 0,
  };
  #read: Read | undefined;
  #reading: Promise<Read> | undefined;
  #inFlight = 0;
  #lastError: { at: number; message: string } | undefined;
  #isClosed = false;

  constructor(options: OpenApiTarget) {
    this.name = options.name;
    this.#options = options;
    this.#outbound = createOutbound(options.dialer);
  }

  get state() {
    if (this.#isClosed) return "stopped" as const;
    return this.#read === undefined
      ? this.#lastError === undefined
        ? ("idle" as const)
        : ("failed" as const)
      : ("ready" as const);
  }
  get revision(): string {
    return REVISION;
  }

  async start(): Promise<void> {
    await this.#ready();
  }

  async catalogue(): Promise<Catalogue> {
    if (this.#read !== undefined && performance.now() - this.#read.at > FRESH_MS) this.#read = undefined;
    return (await this.#ready()).catalogue;
  }

  async request(call: UpstreamCall): Promise<UpstreamAnswer> {
    this.#counts.calls++;
    this.#inFlight++;
    try {
      const answer = await this.#answered(call);
      this.#counts[answer.kind === "error" ? "errors" : "results"]++;
      return answer;
    } catch (error) {
      const fault =
        error instanceof Fault ? error : serverUnavailable(this.name, (error as Error).message, { cause: error });
      if (call.cancel?.fault !== undefined) this.#counts.cancelled++;
      else if (fault.type === "ToolTimeout") this.#counts.timeouts++;
      else this.#counts.failures++;
      this.#lastError = { at: Date.now(), message: fault.message };
      throw fault;
    } finally {
      this.#inFlight--;
    }
  }

  watch(): Promise<never> {
    return Promise.reject(new Fault("MethodNotFound", `server \`${this.name}\` has no resources`));
  }

  /** An API announces no changes. */
  onChange(): () => void {
    return () => {};
  }

  health(): ReturnType<Upstream["health"]> {
    return {
      state: this.state,
      transport: "http",
      revision: REVISION,
      circuit: "closed",
      retryAt: undefined,
      inFlight: this.#inFlight,
      queued: 0,
      counts: { ...this.#counts },
      restarts: 0,
      lastError: this.#lastError,
      stderr: (this.#read?.left ?? [])
        .slice(0, MAX_SHOWN)
        .map(({ operation, why }) => `${operation}: ${why}`)
        .join("\n"),
      pid: undefined,
      containment: undefined,
      sandbox: undefined,
    };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#outbound.close();
  }

  #ready(): Promise<Read> {
    if (this.#isClosed) return Promise.reject(serverUnavailable(this.name, "it has been stopped"));
    if (this.#read !== undefined) return Promise.resolve(this.#read);
    this.#reading ??= this.#readDocument().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readDocument(): Promise<Read> {
    try {
      const document = parsed(await this.#documentText());
      const { operations, left } = readOperations(document, this.#options.choice);
      const { title = this.name, version = "" } =
        isJsonObject(document) && isJsonObject(document.info) ? document.info : {};
      const tools = [...operations.values()].map(({ definition }) => definition);
      const catalogue: Catalogue = {
        revision: REVISION,
        serverInfo: { name: String(title), version: String(version) },
        instructions: undefined,
        capabilities: { tools: {} },
        tools,
        resources: [],
        resourceTemplates: [],
        prompts: [],
      };
      const hashes = new Map([...operations].map(([name, { definition }]) => [name, definitionHashOf(definition)]));
      this.#read = { operations, left, catalogue, hashes, at: performance.now() };
      return this.#read;
    } catch (error) {
      const fault =
        error instanceof Fault
          ? error
          : serverUnavailable(this.name, `its OpenAPI document cannot be used: ${(error as Error).message}`);
      this.#lastError = { at: Date.now(), message: fault.message };
      throw fault;
    }
  }

  async #documentText(): Promise<string> {
    const { document } = this.#options;
    if (!/^https?:/.test(document)) {
      if ((await stat(document)).size > MAX_DOCUMENT_BYTES)
        throw new TypeError(`it has more than ${MAX_DOCUMENT_BYTES} bytes`);
      return readFile(document, "utf8");
    }
    const response = await this.#outbound.fetch(document, { signal: AbortSignal.timeout(DOCUMENT_MS) });
    if (!response.ok) throw new TypeError(`${response.status} at its address`);
    const bytes = await bodyWithin(response, MAX_DOCUMENT_BYTES);
    if (bytes === undefined) throw new TypeError(`it has more than ${MAX_DOCUMENT_BYTES} bytes`);
    return bytes.toString("utf8");
  }

  async #answered(call: UpstreamCall): Promise<UpstreamAnswer> {
    if (call.method !== "tools/call") return failed(-32601, `there is no method \`${call.method}\``);
    const { operations, hashes } = await this.#ready();
    const params = JSON.parse(call.params) as JsonObject;
    const name = String(params.name);
    const operation = operations.get(name);
    const { expects } = call;
    const isOther =
      expects !== undefined && expects !== "any" && hashes.get(name) !== definitionHashOf(expects.definition);
    if (operation === undefined || isOther) throw definitionChanged(this.name, "tool", name, operation === undefined);
    const args = isJsonObject(params.arguments) ? params.arguments : {};
    const response = await this.#sent(operation, args, call);
    return resultOf(await this.#resultOf(response, operation));
  }

  async #sent(operation: ApiOperation, args: JsonObject, call: UpstreamCall): Promise<Response> {
    const { url, method, headers, body } = operationRequest(operation, new URL(this.#options.url), args);
    const stop = new AbortController();
    call.cancel?.onAbort((fault) => stop.abort(fault));
    const signal =
      call.timeoutMs === 0 ? stop.signal : AbortSignal.any([stop.signal, AbortSignal.timeout(call.timeoutMs)]);
    const { credentials } = this.#options;
    const send = async (): Promise<Response> => {
      const own = (await credentials?.headers("POST", url.pathname)) ?? {};
      // INVARIANT: the gateway's credential takes the place of anything that an argument named.
      return this.#outbound.fetch(url, {
        method,
        headers: { ...headers, ...own },
        ...(body === undefined ? {} : { body }),
        signal,
      });
    };
    try {
      const response = await send();
      if (response.status !== 401 && response.status !== 403) return response;
      const wwwAuthenticate = response.headers.get("www-authenticate") ?? undefined;
      const dpopNonce = response.headers.get("dpop-nonce") ?? undefined;
      const isRetried = await credentials?.refused?.({ status: response.status, wwwAuthenticate, dpopNonce });
      if (isRetried !== true) return response;
      await response.body?.cancel();
      return await send();
    } catch (error) {
      if (call.cancel?.fault !== undefined) throw call.cancel.fault;
      if ((error as Error).name === "TimeoutError") throw timedOut(this.name, call.method, call.name, call.timeoutMs);
      throw error;
    }
  }

  async #resultOf(response: Response, operation: ApiOperation): Promise<JsonObject> {
    const { maxMessageBytes } = DEFAULT_UPSTREAM_LIMITS;
    const bytes = await bodyWithin(response, maxMessageBytes);
    if (bytes === undefined) throw tooLarge(this.name, `the answer has more than ${maxMessageBytes} bytes`, true);
    const type = response.headers.get("content-type") ?? "";
    const status = { type: "text", text: `HTTP ${response.status}` } as const;
    const isError = response.status >= 400;
    if (bytes.length === 0) return { content: [status], ...(isError ? { isError } : {}) };
    if (type.startsWith("image/") && !type.includes("svg")) {
      return { content: [{ type: "image", mimeType: type, data: bytes.toString("base64") }] };
    }
    const isText = type === "" || /json|text|xml|yaml|javascript|urlencoded/.test(type);
    const blob = { uri: `${this.#options.url}${operation.path}`, mimeType: type, blob: "" };
    if (!isText) return { content: [{ type: "resource", resource: { ...blob, blob: bytes.toString("base64") } }] };
    const text = bytes.toString("utf8");
    const value = /json/.test(type) ? jsonIn(text) : undefined;
    return {
      content: [...(isError ? [status] : []), { type: "text", text }],
      ...(isJsonObject(value) && !isError ? { structuredContent: value } : {}),
      ...(isError ? { isError } : {}),
    };
  }
}

const MAX_SHOWN = 100;

function resultOf(value: JsonObject): UpstreamAnswer {
  const complete = { resultType: "complete", ...value };
  return { kind: "result", text: JSON.stringify(complete), value: complete };
}

function failed(code: number, message: string): UpstreamAnswer {
  const error = { code, message };
  return { kind: "error", text: JSON.stringify(error), error };
}

function parsed(text: string): JsonValue {
  // A document with aliases to aliases would grow without end.
  return (/^\s*\{/.test(text) ? JSON.parse(text) : parseYaml(text, { maxAliasCount: 1_000 })) as JsonValue;
}

function jsonIn(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}

/** Undefined when there is more. */
async function bodyWithin(response: Response, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
