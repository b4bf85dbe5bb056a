// A server's definition, built step by step. It only says what is offered; the gateway decides and runs.

import { DefinitionError, frozenJson } from "../../schema/index.js";
import { Fault, type JsonObject, type JsonValue } from "../index.js";
import { type Catalog, type CatalogOptions, catalog, type OpenApiOptions, openApi } from "./catalog.js";
import { resourceContents, text } from "./content.js";
import { ToolRegistry } from "./registry.js";
import {
  type ArgumentsOf,
  defineTool,
  type Handler,
  type ReturnOf,
  type SchemaLike,
  type ToolOptions,
} from "./tool.js";
import type {
  CallContext,
  Completer,
  ContentBlock,
  Implementation,
  ListChange,
  Prompt,
  PromptDefinition,
  Resource,
  ResourceContents,
  ResourceDefinition,
  ResourceTemplate,
  ResourceTemplateDefinition,
  ServerDefinition,
  Tool,
} from "./types.js";
import { UriTemplate } from "./uri-template.js";

export interface ServerOptions {
  name: string;
  version?: string;
  title?: string;
  instructions?: string;
  /** Tools, resources, templates and prompts, each at most this many. */
  maxEntries?: number;
  /** More fields of MCP's `Implementation`, such as `websiteUrl` or `icons`. */
  [extra: string]: unknown;
}

export type ResourceBody = string | Uint8Array | ResourceContents | ResourceContents[];
type Read = { contents: ResourceContents[]; _meta?: JsonObject };

export type ResourceOptions = Omit<ResourceDefinition, "uri" | "name">;
export interface TemplateOptions extends Omit<ResourceTemplateDefinition, "uriTemplate" | "name"> {
  complete?: Completer | Completions;
}
export interface PromptOptions extends Pick<PromptDefinition, "title" | "icons" | "_meta"> {
  complete?: Completer | Completions;
}

/** Suggestions for one argument or variable by name. */
export type Completions = Readonly<
  Record<string, (value: string, others: Record<string, string>) => readonly string[] | Promise<readonly string[]>>
>;

export type PromptArguments = Readonly<Record<string, { title?: string; description?: string; required?: boolean }>>;
type PromptValues<P extends PromptArguments> = {
  [K in keyof P as P[K] extends { required: true } ? K : never]: string;
} & { [K in keyof P as P[K] extends { required: true } ? never : K]?: string };

type PromptMessage = { role: "user" | "assistant"; content: ContentBlock };
export type PromptBody = string | PromptMessage[] | { description?: string; messages: PromptMessage[] };

type Maybe<T> = T | Promise<T>;

export function defineServer(nameOrOptions: string | ServerOptions): ServerBuilder {
  return new ServerBuilder(nameOrOptions);
}

/** Fluent: every method returns the builder. It is itself the live `ServerDefinition`. */
export class ServerBuilder implements ServerDefinition {
  readonly info: Implementation;
  readonly instructions?: string;
  readonly #registry: ToolRegistry;
  readonly #resources = new Map<string, Resource>();
  readonly #templates: ResourceTemplate[] = [];
  readonly #prompts = new Map<string, Prompt>();
  readonly #listeners = new Set<(change: ListChange) => void>();
  readonly #maxEntries: number;

  constructor(nameOrOptions: string | ServerOptions) {
    const options: ServerOptions = typeof nameOrOptions === "string" ? { name: nameOrOptions } : nameOrOptions;
    const { instructions, maxEntries = 10_000, version = "0.0.0", ...info } = options;
    if (typeof info.name !== "string" || info.name === "") throw new DefinitionError("a server needs a name");
    this.info = frozenJson<Implementation>({ ...info, version }, "the server's description");
    if (instructions !== undefined) this.instructions = instructions;
    this.#maxEntries = maxEntries;
    this.#registry = new ToolRegistry({ maxTools: this.#maxEntries });
  }

  get tools(): ReadonlyMap<string, Tool> {
    return this.#registry.tools;
  }
  get resources(): ReadonlyMap<string, Resource> {
    return this.#resources;
  }
  get templates(): readonly ResourceTemplate[] {
    return this.#templates;
  }
  get prompts(): ReadonlyMap<string, Prompt> {
    return this.#prompts;
  }

  /** Adds a tool made by `defineTool` or `composeTools`, or defines one in place. */
  tool(defined: Tool): this;
  tool<const S extends SchemaLike, const O extends SchemaLike | undefined = undefined>(
    name: string,
    description: string,
    schema: S,
    handler: Handler<ArgumentsOf<S>, ReturnOf<S, O>>,
    options?: ToolOptions<ArgumentsOf<S>, O>,
  ): this;
  tool<S extends SchemaLike, O extends SchemaLike | undefined>(
    first: Tool | string,
    description?: string,
    schema?: S,
    handler?: Handler<ArgumentsOf<S>, ReturnOf<S, O>>,
    options?: ToolOptions<ArgumentsOf<S>, O>,
  ): this {
    const tool =
      typeof first === "string"
        ? defineTool<S, O>({
            ...(options as ToolOptions<ArgumentsOf<S>, O>),
            name: first,
            description: description as string,
            input: schema as S,
            handler: handler as Handler<ArgumentsOf<S>, ReturnOf<S, O>>,
          })
        : first;
    this.#registry.register(tool);
    return this.#say({ kind: "tools" });
  }

  resource(
    uri: string,
    name: string,
    read: ResourceBody | ((uri: string, context: CallContext) => Maybe<ResourceBody | Read>),
    options: ResourceOptions = {},
  ): this {
    checkUri(uri);
    if (this.#resources.has(uri)) throw new DefinitionError(`a resource \`${uri}\` is offered already`);
    this.#checkRoom(this.#resources.size, "resources");
    const definition = frozenJson({ uri, name, ...options }, `resource \`${uri}\``);
    this.#resources.set(uri, {
      definition,
      read: async (asked, context) =>
        toContents(asked, typeof read === "function" ? await read(asked, context) : read, definition.mimeType),
    });
    return this.#say({ kind: "resources" });
  }

  template(
    uriTemplate: string,
    name: string,
    read: (uri: string, variables: Record<string, string>, context: CallContext) => Maybe<ResourceBody | Read>,
    options: TemplateOptions = {},
  ): this {
    const { complete, ...rest } = options;
    const template = new UriTemplate(uriTemplate);
    if (this.#templates.some((other) => other.definition.uriTemplate === uriTemplate)) {
      throw new DefinitionError(`a resource template \`${uriTemplate}\` is offered already`);
    }
    this.#checkRoom(this.#templates.length, "resource templates");
    const definition = frozenJson({ uriTemplate, name, ...rest }, `resource template \`${uriTemplate}\``);
    this.#templates.push({
      definition,
      match: (uri) => template.match(uri),
      read: async (uri, variables, context) =>
        toContents(uri, await read(uri, variables, context), definition.mimeType),
      ...(complete === undefined ? {} : { complete: toCompleter(complete) }),
    });
    return this.#say({ kind: "resources" });
  }

  prompt<const P extends PromptArguments>(
    name: string,
    description: string,
    args: P,
    get: (values: PromptValues<P>, context: CallContext) => Maybe<PromptBody>,
    options: PromptOptions = {},
  ): this {
    if (name === "") throw new DefinitionError("a prompt needs a name");
    if (this.#prompts.has(name)) throw new DefinitionError(`a prompt \`${name}\` is offered already`);
    this.#checkRoom(this.#prompts.size, "prompts");
    const { complete, ...rest } = options;
    const list = Object.entries(args).map(([argument, about]) => ({ name: argument, ...about }));
    const definition: PromptDefinition = frozenJson(
      { name, description, ...(list.length === 0 ? {} : { arguments: list }), ...rest },
      `prompt \`${name}\``,
    );
    this.#prompts.set(name, {
      definition,
      get: async (values, context) => {
        checkPromptValues(definition, values);
        return toPrompt(await get(values as PromptValues<P>, context));
      },
      ...(complete === undefined ? {} : { complete: toCompleter(complete) }),
    });
    return this.#say({ kind: "prompts" });
  }

  removeTool(name: string): this {
    return this.#registry.remove(name) ? this.#say({ kind: "tools" }) : this;
  }
  removeResource(uri: string): this {
    return this.#resources.delete(uri) ? this.#say({ kind: "resources" }) : this;
  }
  removeTemplate(uriTemplate: string): this {
    const index = this.#templates.findIndex((template) => template.definition.uriTemplate === uriTemplate);
    if (index === -1) return this;
    this.#templates.splice(index, 1);
    return this.#say({ kind: "resources" });
  }
  removePrompt(name: string): this {
    return this.#prompts.delete(name) ? this.#say({ kind: "prompts" }) : this;
  }

  /** Says that the content behind a URI is not what it was. */
  changed(uri: string): this {
    return this.#say({ kind: "resource", uri });
  }

  onChange(listener: (change: ListChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  catalog(options: CatalogOptions = {}): Catalog {
    return catalog(this.#registry.list(), { version: this.info.version, ...options });
  }

  openApi(options: OpenApiOptions = {}): JsonObject {
    const { name, title, version } = this.info;
    return openApi(this.#registry.list(), { title: title ?? name, version, ...options });
  }

  #say(change: ListChange): this {
    for (const listener of this.#listeners) listener(change);
    return this;
  }

  #checkRoom(size: number, what: string): void {
    if (size >= this.#maxEntries) {
      throw new DefinitionError(`there are ${size} ${what} already; raise \`maxEntries\` to offer more`);
    }
  }
}

function checkUri(uri: string): void {
  if (!URL.canParse(uri))
    throw new DefinitionError(`resource \`${uri}\`: the URI must be absolute, like file:///notes.txt`);
}

function toContents(uri: string, body: ResourceBody | Read, mimeType: string | undefined): Read {
  if (typeof body === "string" || body instanceof Uint8Array)
    return { contents: [resourceContents(uri, body, mimeType)] };
  if (Array.isArray(body)) return { contents: body };
  return "contents" in body ? body : { contents: [body] };
}

function checkPromptValues(definition: PromptDefinition, values: Record<string, JsonValue>): void {
  const declared = definition.arguments ?? [];
  for (const { name, required } of declared) {
    if (required !== true || Object.hasOwn(values, name)) continue;
    throw new Fault("InvalidParams", `prompt \`${definition.name}\` needs the argument \`${name}\``, { field: name });
  }
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === "string" && declared.some((argument) => argument.name === name)) continue;
    const reason = typeof value === "string" ? "is not one of its arguments" : "must be a string";
    throw new Fault("InvalidParams", `prompt \`${definition.name}\`: \`${name}\` ${reason}`, { field: name });
  }
}

function toPrompt(body: PromptBody): { description?: string; messages: PromptMessage[] } {
  if (typeof body === "string") return { messages: [{ role: "user", content: text(body) }] };
  return Array.isArray(body) ? { messages: body } : body;
}

/** MCP allows at most 100 values in one answer. */
const MAX_COMPLETIONS = 100;

function toCompleter(complete: Completer | Completions): Completer {
  if (typeof complete === "function") return complete;
  return async ({ name, value }, context) => {
    const suggest = Object.hasOwn(complete, name) ? complete[name] : undefined;
    const all = suggest === undefined ? [] : await suggest(value, context.arguments ?? {});
    return { values: all.slice(0, MAX_COMPLETIONS), total: all.length, hasMore: all.length > MAX_COMPLETIONS };
  };
}
