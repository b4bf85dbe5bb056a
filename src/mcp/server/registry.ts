// Tools by name and by tag.

import { randomBytes } from "node:crypto";
import { DefinitionError } from "../../schema/index.js";
import { Fault, type JsonObject, type JsonValue } from "../index.js";
import { type Catalog, type CatalogOptions, catalog } from "./catalog.js";
import { text } from "./content.js";
import { checkToolName } from "./tool.js";
import type { CallContext, ContentBlock, Tool, ToolResult } from "./types.js";
import { validationFault } from "./validators.js";

export class ToolRegistry {
  readonly #tools = new Map<string, Tool>();
  readonly #maxTools: number;

  constructor({ maxTools = 10_000 }: { maxTools?: number } = {}) {
    this.#maxTools = maxTools;
  }

  /** The live view: what is registered or removed later shows up in it. */
  get tools(): ReadonlyMap<string, Tool> {
    return this.#tools;
  }

  register(...tools: readonly Tool[]): this {
    for (const tool of tools) {
      const { name } = tool.definition;
      checkToolName(name);
      if (this.#tools.has(name)) throw new DefinitionError(`a tool named \`${name}\` is registered already`);
      if (this.#tools.size >= this.#maxTools) {
        throw new DefinitionError(`there are ${this.#maxTools} tools already; raise \`maxTools\` to register more`);
      }
      this.#tools.set(name, tool);
    }
    return this;
  }

  get(name: string): Tool | undefined {
    return this.#tools.get(name);
  }

  remove(name: string): boolean {
    return this.#tools.delete(name);
  }

  list(): Tool[] {
    return [...this.#tools.values()];
  }

  byTag(tag: string): Tool[] {
    return this.list().filter((tool) => tool.tags.includes(tag));
  }

  /**
   * Validates `input` and runs the tool in this process. The caller is the code that holds the registry, so no policy
   * applies. A registry that is served is called with `Server.invoke`, which passes the gate.
   */
  invoke(name: string, input: JsonObject, options?: InvokeOptions): Promise<ToolResult> {
    return invokeTool((other) => this.#tools.get(other), name, input, options);
  }

  catalog(options?: CatalogOptions): Catalog {
    return catalog(this.list(), options);
  }
}

const MAX_DEPTH = 8;
const MAX_WRITTEN_CHARS = 4 * 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 30_000;

export interface InvokeOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

/** Resolves with the tool's result, `isError` included. Throws a `Fault` for everything else. */
async function invokeTool(
  find: (name: string) => Tool | undefined,
  name: string,
  input: JsonObject,
  { signal }: InvokeOptions = {},
  depth = 0,
): Promise<ToolResult> {
  if (depth > MAX_DEPTH) throw new Fault("TooMany", `nested call depth exceeds ${MAX_DEPTH}`);
  const tool = find(name);
  if (tool === undefined) throw new Fault("ToolNotFound", `unknown tool \`${name}\``, { extra: { tool_name: name } });
  // A copy: the handler receives the values that were validated.
  const args = structuredClone(input);
  const validation = await tool.validate(args);
  if (!validation.ok) throw validationFault(name, validation);
  const written: ContentBlock[] = [];
  const result = await withinTime(tool, signal, (stop) =>
    tool.run(
      args,
      contextFor(stop, written, (inner, innerArgs) => invokeTool(find, inner, innerArgs, { signal: stop }, depth + 1)),
    ),
  );
  if (result.isError !== true) await checkOutput(tool, result.structuredContent);
  return written.length === 0 ? result : { ...result, content: [...written, ...result.content] };
}

async function withinTime(
  tool: Tool,
  signal: AbortSignal | undefined,
  run: (stop: AbortSignal) => Promise<ToolResult>,
): Promise<ToolResult> {
  const { name } = tool.definition;
  const timeoutMs = tool.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const controller = new AbortController();
  const cancel = (): void => controller.abort(new Fault("Cancelled", `the call of \`${name}\` was cancelled`));
  if (signal?.aborted) cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  const timer = setTimeout(() => {
    controller.abort(
      new Fault("ToolTimeout", `\`${name}\` did not finish within ${timeoutMs} ms and was stopped`, {
        extra: { tool_name: name, timeout_ms: timeoutMs },
      }),
    );
  }, timeoutMs);
  try {
    controller.signal.throwIfAborted();
    return await Promise.race([
      run(controller.signal),
      new Promise<never>((_resolve, reject) => {
        controller.signal.addEventListener("abort", () => reject(controller.signal.reason), { once: true });
      }),
    ]);
  } catch (error) {
    if (error instanceof Fault) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new Fault("ToolExecution", message === "" ? "the tool failed without a message" : message, { cause: error });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", cancel);
  }
}

async function checkOutput(tool: Tool, value: JsonValue | undefined): Promise<void> {
  const checked = await tool.validateOutput(value);
  if (checked.ok) return;
  const [first] = checked.problems;
  const reason = `the result of \`${tool.definition.name}\` does not match its output schema: ${first?.message ?? ""}`;
  throw new Fault("OutputInvalid", reason, { field: first?.path ?? "" });
}

function contextFor(signal: AbortSignal, written: ContentBlock[], call: CallContext["call"]): CallContext {
  let chars = 0;
  const ask = (): Promise<never> =>
    Promise.reject(new Fault("MissingCapability", "this call has no client that could be asked"));
  return {
    signal,
    traceId: randomBytes(16).toString("hex"),
    app: "local",
    agent: "local",
    meta: {},
    clientCapabilities: {},
    state: undefined,
    progress: () => {},
    log: () => {},
    async write(part) {
      signal.throwIfAborted();
      const block = typeof part === "string" ? text(part) : part;
      chars += JSON.stringify(block).length;
      if (chars > MAX_WRITTEN_CHARS) {
        throw new Fault("ToolExecution", `the output is longer than ${MAX_WRITTEN_CHARS} characters`);
      }
      written.push(block);
    },
    call,
    ask,
    askWith: ask,
    elicit: ask,
    sample: ask,
    listRoots: ask,
  };
}
