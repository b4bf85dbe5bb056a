// What a tool is to the other modules. A handler never sees the transport: it gets arguments that were validated
// and hashed, and a context through which everything it asks for passes the same gate.

import type { JsonSchema, Problem, Validation } from "../../schema/index.js";
import type { JsonObject, JsonValue } from "../index.js";

export type { JsonSchema, Problem, Validation };

export interface Annotations {
  audience?: ("user" | "assistant")[];
  priority?: number;
  lastModified?: string;
}

interface Extra {
  annotations?: Annotations;
  _meta?: JsonObject;
}
export interface TextContent extends Extra {
  type: "text";
  text: string;
}
export interface ImageContent extends Extra {
  type: "image";
  data: string;
  mimeType: string;
}
export interface AudioContent extends Extra {
  type: "audio";
  data: string;
  mimeType: string;
}
export interface ResourceContents {
  uri: string;
  mimeType?: string;
  text?: string;
  blob?: string;
  _meta?: JsonObject;
}
export interface EmbeddedResource extends Extra {
  type: "resource";
  resource: ResourceContents;
}
export interface ResourceLink extends Extra {
  type: "resource_link";
  uri: string;
  name: string;
  title?: string;
  description?: string;
  mimeType?: string;
  size?: number;
}
export type ContentBlock = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink;

export interface ToolResult {
  content: ContentBlock[];
  isError?: boolean;
  structuredContent?: JsonValue;
  _meta?: JsonObject;
  [extra: string]: unknown;
}

/** The wire form of a tool, as `tools/list` shows it. */
export interface ToolDefinition {
  name: string;
  title?: string;
  description?: string;
  inputSchema: JsonSchema;
  outputSchema?: JsonSchema;
  annotations?: JsonObject;
  icons?: JsonValue;
  _meta?: JsonObject;
  [extra: string]: unknown;
}

export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

/** A question to the person or model behind the client. */
export type InputRequest =
  | { method: "elicitation/create"; params: JsonObject }
  | { method: "sampling/createMessage"; params: JsonObject }
  | { method: "roots/list"; params?: JsonObject };

export interface CallContext {
  readonly signal: AbortSignal;
  readonly traceId: string;
  readonly app: string;
  readonly agent: string;
  /** The forwarded `_meta` of the request (without the protocol's own keys). */
  readonly meta: JsonObject;
  /** What the client said it can do; ask only for what is in here. */
  readonly clientCapabilities: JsonObject;
  progress(progress: number, total?: number, message?: string): void;
  log(level: LogLevel, data: JsonValue, logger?: string): void;
  /**
   * Streams a part of a large output; parts are joined into the result in order. Resolves when the reader has
   * caught up, so a handler that awaits it never fills memory.
   */
  write(part: string | ContentBlock): Promise<void>;
  /** Calls another tool of the same server, as the same caller, through the same gate. */
  call(tool: string, args: JsonObject): Promise<ToolResult>;
  /**
   * Asks the client. Where the revision has no server-to-client requests the call is answered `input_required`
   * and the handler runs again from its start when the answers are there: do nothing lasting before asking.
   */
  ask(requests: Readonly<Record<string, InputRequest>>): Promise<Record<string, JsonObject>>;
  elicit(key: string, params: JsonObject): Promise<JsonObject>;
  sample(key: string, params: JsonObject): Promise<JsonObject>;
  listRoots(key?: string): Promise<JsonObject>;
  /** Asks with a state of the handler's own, which travels sealed with the question and comes back as `state`. */
  askWith(requests: Readonly<Record<string, InputRequest>>, state: JsonValue): Promise<Record<string, JsonObject>>;
  readonly state: JsonValue | undefined;
}

/** What a handler may return: a string or content for short, a whole result when it wants every field. */
export type HandlerResult =
  | string
  | ContentBlock
  | ContentBlock[]
  | ToolResult
  | { structuredContent: JsonValue }
  | undefined;

/** A tool that can run here. `validate` may be asynchronous (a pattern in a bounded worker, a custom validator). */
export interface Tool {
  readonly definition: ToolDefinition;
  /** SHA-256, in hex, over the definition as JSON with sorted keys; a permit is bound to it. */
  readonly definitionHash: string;
  validate(args: JsonObject): Validation | Promise<Validation>;
  /** Checks structured content against the output schema; ok when there is none. */
  validateOutput(value: JsonValue | undefined): Validation | Promise<Validation>;
  run(args: JsonObject, context: CallContext): Promise<ToolResult>;
  /** Said by the author: read-only or idempotent, a guardrail callback would add nothing. */
  readonly noGuardrailRequired: boolean;
  readonly timeoutMs?: number;
  readonly tags: readonly string[];
  readonly metadata: { category?: string; version?: string; deprecated?: boolean; author?: string };
}

export interface ResourceDefinition {
  uri: string;
  name: string;
  title?: string;
  description?: string;
  mimeType?: string;
  size?: number;
  annotations?: Annotations;
  _meta?: JsonObject;
}
export interface ResourceTemplateDefinition {
  uriTemplate: string;
  name: string;
  title?: string;
  description?: string;
  mimeType?: string;
  _meta?: JsonObject;
}
export interface Resource {
  readonly definition: ResourceDefinition;
  read(uri: string, context: CallContext): Promise<{ contents: ResourceContents[]; _meta?: JsonObject }>;
}
export interface ResourceTemplate {
  readonly definition: ResourceTemplateDefinition;
  /** Variables of the URI, or undefined when it does not match. */
  match(uri: string): Record<string, string> | undefined;
  read(
    uri: string,
    variables: Record<string, string>,
    context: CallContext,
  ): Promise<{ contents: ResourceContents[]; _meta?: JsonObject }>;
  complete?: Completer;
}
export interface PromptDefinition {
  name: string;
  title?: string;
  description?: string;
  arguments?: { name: string; title?: string; description?: string; required?: boolean }[];
  icons?: JsonValue;
  _meta?: JsonObject;
}
export interface Prompt {
  readonly definition: PromptDefinition;
  get(
    args: Record<string, string>,
    context: CallContext,
  ): Promise<{ description?: string; messages: { role: "user" | "assistant"; content: ContentBlock }[] }>;
  complete?: Completer;
}
export type Completer = (
  argument: { name: string; value: string },
  context: { arguments?: Record<string, string> },
) =>
  | Promise<{ values: string[]; total?: number; hasMore?: boolean }>
  | { values: string[]; total?: number; hasMore?: boolean };

export interface Implementation {
  name: string;
  version: string;
  title?: string;
  [extra: string]: unknown;
}

/** Everything a server offers. Made by `createServer`; the gateway reads it and never writes it. */
export interface ServerDefinition {
  readonly info: Implementation;
  readonly instructions?: string | undefined;
  /** Where it stands for several servers: the instructions of each, with what they are about. */
  readonly instructionParts?: readonly InstructionPart[];
  readonly tools: ReadonlyMap<string, Tool>;
  readonly resources: ReadonlyMap<string, Resource>;
  readonly templates: readonly ResourceTemplate[];
  readonly prompts: ReadonlyMap<string, Prompt>;
  /** Other names that tools are called by, for clients that cannot take the full ones. A tool's own name comes first. */
  readonly aliases?: ReadonlyMap<string, string>;
  /** The name that lists show for a tool: its own, or an alias. */
  shownName?(name: string): string;
  /** Whether `tools/list` shows tools to search with in place of every tool. */
  isSearched?(): boolean;
  /** A resource that is not in the list and may be there all the same. */
  resourceAt?(uri: string): Resource | undefined;
  /** Asks to hear (by `onChange`) when this resource changes; ends by the function it gives. */
  follow?(uri: string): () => void;
  /** Called whenever a tool, resource or prompt is added or removed, or a resource's content changed. */
  onChange(listener: (change: ListChange) => void): () => void;
}

/** The instructions of one server and what it offers: a caller that reaches nothing of it does not see them. */
export interface InstructionPart {
  readonly instructions: string;
  readonly tools: readonly Tool[] | ReadonlyMap<string, Tool>;
  readonly resources: readonly Resource[] | ReadonlyMap<string, Resource>;
  readonly templates: readonly ResourceTemplate[];
  readonly prompts: readonly Prompt[] | ReadonlyMap<string, Prompt>;
}

export type ListChange = { kind: "tools" | "resources" | "prompts" } | { kind: "resource"; uri: string };
