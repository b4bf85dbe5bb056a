// Runs a tool in this process, for the code that registered it: validation, time limit, output check. There is no caller
// and no policy here; a registry that is served is called through the gate by `Server.invoke`.

import { randomBytes } from "node:crypto";
import { Fault, type JsonObject, type JsonValue } from "../index.js";
import { text } from "./content.js";
import { validationFault } from "./problems.js";
import type { CallContext, ContentBlock, Tool, ToolResult } from "./types.js";

const MAX_DEPTH = 8;
const MAX_WRITTEN_CHARS = 4 * 1024 * 1024;
const DEFAULT_TIMEOUT_MS = 30_000;

export interface InvokeOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

/** Resolves with the tool's result, `isError` included. Throws a `Fault` for everything else. */
export async function invokeTool(
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
