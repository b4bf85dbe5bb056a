// What one application has: its own tools and those of its downstream servers, under the names its callers use.

import { inSlices, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import {
  type ListChange,
  type CompiledDefinition,
  compileDefinition,
  definitionHash,
  type Implementation,
  type InstructionPart,
  type Prompt,
  type PromptDefinition,
  type Resource,
  type ResourceDefinition,
  type ResourceTemplate,
  type ResourceTemplateDefinition,
  type ServerDefinition,
  type Tool,
  type ToolDefinition,
  UriTemplate,
} from "../../mcp/server/index.js";
import type { Catalogue, ExpectedDefinition } from "../../upstream/index.js";
import type { Relayed } from "../../pipeline/index.js";
import { withoutOwnMeta } from "./answers.js";
import { MAX_SHORT, type ShortNames, shortNamesOf } from "./names.js";
import { type HeadersFor, type RelayUpstream, relayPrompt, relayResource, relayTool } from "./relay.js";

/** What the operator says of a server's tools. */
export interface ServerTerms {
  readonly timeoutMs?: number | undefined;
  noGuardrail(rawName: string): boolean;
  readOnly(rawName: string): boolean;
  /** Names that lead to this server from elsewhere: the full name for callers, the server's own name for it. */
  routes: readonly { readonly prefix: string; readonly strip: boolean }[];
}

interface Section extends InstructionPart {
  readonly link: RelayUpstream;
  readonly tools: Tool[];
  readonly resources: Resource[];
  readonly templates: ResourceTemplate[];
  readonly prompts: Prompt[];
  readonly instructions: string;
  readonly readOnly: readonly string[];
  /** The operator routes prefixes to this server, so that its own names decide nothing. */
  readonly isRouted: boolean;
}

export type RelayedTool = Tool & { readonly relayed: Relayed };

/** MCP's rule for the name of a tool; anything else could pass for something it is not. */
const ROUTED_NAME = /^[A-Za-z0-9_./-]{1,128}$/;
/** `core.*` is left to the gateway's own tools and to servers that the operator routes it to. */
const TOOL_NAME = /^(?!core\.)[A-Za-z0-9_./-]{1,128}$/;

/** A server in this process, such as a module of `portcullis serve MODULE`. */
export interface InProcessServer {
  readonly server: ServerDefinition;
  /** Tools that the operator declared read-only. */
  readonly readOnlyTools?: readonly string[] | undefined;
}

export class AppCatalogue implements ServerDefinition {
  readonly info: Implementation;
  readonly tools = new Map<string, Tool>();
  readonly resources = new Map<string, Resource>();
  readonly prompts = new Map<string, Prompt>();
  readonly aliases = new Map<string, string>();
  readonly readOnlyTools = new Set<string>();
  templates: ResourceTemplate[] = [];
  instructionParts: readonly InstructionPart[] = [];
  /** Set by whoever holds the connections. */
  follow: (uri: string) => () => void = () => () => {};
  /** Why something a server offers is not here. */
  readonly left: { readonly server: string; readonly name: string; readonly why: string }[] = [];
  #local: readonly Tool[];
  readonly #inProcess: InProcessServer | undefined;
  readonly #stop: () => void;
  /** By a tool's name: what clients that take no dots or long names see. */
  readonly #shown = new Map<string, string>();
  readonly #sections = new Map<string, Section>();
  readonly #listeners = new Set<(change: ListChange) => void>();
  #shortNames: boolean;

  constructor(info: Implementation, local: readonly Tool[], shortNames = false, inProcess?: InProcessServer) {
    this.info = inProcess?.server.info ?? info;
    this.#local = local;
    this.#shortNames = shortNames;
    this.#inProcess = inProcess;
    this.#rebuild();
    this.#stop =
      inProcess?.server.onChange((change) => {
        if (change.kind !== "resource") this.#rebuild();
        this.announce(change);
      }) ?? (() => {});
  }

  close(): void {
    this.#stop();
  }

  onChange(listener: (change: ListChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  announce(change: ListChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  /** Made in slices; `isWanted` says in the end whether the server is still one of the application's. */
  async put(link: RelayUpstream, offered: Catalogue, terms: ServerTerms, isWanted: () => boolean): Promise<void> {
    const section = await sectionOf(link, offered, terms);
    if (!isWanted()) return;
    this.#sections.set(link.server, section);
    this.#changed();
  }

  setLocal(tools: readonly Tool[]): void {
    this.#local = tools;
    this.#changed();
  }

  /** Whether lists show names without dots; callers are notified when it changes. */
  setShortNames(isShort: boolean): void {
    if (this.#shortNames === isShort) return;
    this.#shortNames = isShort;
    this.#changed();
  }

  remove(server: string): void {
    if (this.#sections.delete(server)) this.#changed();
  }

  resourceAt(uri: string): Resource | undefined {
    const own = this.#inProcess?.server.resourceAt?.(uri);
    if (own) return own;
    for (const { link } of this.#sections.values()) {
      const raw = link.namespace.rawUri(uri);
      if (raw !== undefined && raw !== "") return resourceOf(link, { uri: raw, name: raw });
    }
    return undefined;
  }

  /** Which server a resource is of, to follow its changes. */
  ownerOf(uri: string): { link: RelayUpstream; raw: string } | undefined {
    for (const { link } of this.#sections.values()) {
      const raw = link.namespace.rawUri(uri);
      if (raw !== undefined) return { link, raw };
    }
    return undefined;
  }

  #changed(): void {
    this.#rebuild();
    for (const kind of ["tools", "resources", "prompts"] as const) this.announce({ kind });
  }

  #rebuild(): void {
    this.left.length = 0;
    for (const map of [this.tools, this.resources, this.prompts, this.aliases]) map.clear();
    this.readOnlyTools.clear();
    this.templates = [];
    for (const tool of this.#local) this.tools.set(tool.definition.name, tool);
    this.#addInProcess();
    // In the order of their names, so that every replica settles a clash the same way. Those that keys registered come
    // last: they take no name from a server of the operator's.
    const sections = [...this.#sections.values()].sort(
      (a, b) => Number(a.link.isRegistered) - Number(b.link.isRegistered) || (a.link.server < b.link.server ? -1 : 1),
    );
    for (const section of sections) {
      const { server } = section.link;
      const allowed = section.isRouted ? ROUTED_NAME : TOOL_NAME;
      this.#add(server, section.tools, this.tools, (tool) => tool.definition.name, allowed);
      this.#add(server, section.prompts, this.prompts, (prompt) => prompt.definition.name);
      this.#add(server, section.resources, this.resources, (resource) => resource.definition.uri);
      this.templates.push(...section.templates);
      for (const name of section.readOnly) this.readOnlyTools.add(name);
    }
    const parts: readonly InstructionPart[] = this.#inProcess
      ? [inProcessPart(this.#inProcess), ...sections]
      : sections;
    this.instructionParts = parts.filter(({ instructions }) => instructions !== "");
    this.#addAliases();
  }

  #addInProcess(): void {
    if (!this.#inProcess) return;
    const { server, readOnlyTools = [] } = this.#inProcess;
    const { name } = server.info;
    this.#add(name, [...server.tools.values()], this.tools, (tool) => tool.definition.name);
    this.#add(name, [...server.prompts.values()], this.prompts, (prompt) => prompt.definition.name);
    this.#add(name, [...server.resources.values()], this.resources, (resource) => resource.definition.uri);
    this.templates.push(...server.templates);
    for (const tool of readOnlyTools) this.readOnlyTools.add(tool);
  }

  /** The readable alias belongs to a tool only while no other tool has it, as its name or its alias. */
  #addAliases(): void {
    const claims = new Map<string, number>();
    for (const [name, tool] of this.tools) {
      const { readable } = shortOf(tool);
      if (readable !== name) claims.set(readable, (claims.get(readable) ?? 0) + 1);
    }
    this.#shown.clear();
    for (const [name, tool] of this.tools) {
      const { readable, hashed } = shortOf(tool);
      if (readable === name) continue;
      // The hashed alias is reserved: a tool with that name is not reached by it, nor hidden behind it.
      if (this.tools.delete(hashed))
        this.left.push({ server: "", name: hashed, why: "its name is an alias of another" });
      this.aliases.set(hashed, name);
      const isFree = claims.get(readable) === 1 && !this.tools.has(readable);
      if (isFree) this.aliases.set(readable, name);
      this.#shown.set(name, isFree ? readable : hashed);
    }
  }

  #add<T>(
    server: string,
    things: readonly T[],
    into: Map<string, T>,
    name: (thing: T) => string,
    allowed?: RegExp,
  ): void {
    for (const thing of things) {
      const called = name(thing);
      const why = refusal(called, into, allowed);
      if (why === "") into.set(called, thing);
      else this.left.push({ server, name: called.slice(0, 256), why });
    }
  }

  /** The name that lists show for a tool. */
  shownName(name: string): string {
    return this.#shortNames || name.length > MAX_SHORT ? (this.#shown.get(name) ?? name) : name;
  }
}

function refusal(name: string, taken: ReadonlyMap<string, unknown>, allowed: RegExp | undefined): string {
  if (allowed && !allowed.test(name)) {
    return name.startsWith("core.") ? "core.* needs a route of the operator" : "not a name MCP allows";
  }
  return taken.has(name) ? "the name is taken" : "";
}

async function sectionOf(link: RelayUpstream, offered: Catalogue, terms: ServerTerms): Promise<Section> {
  const tools: Tool[] = [];
  const readOnly: string[] = [];
  const resources: Resource[] = [];
  const templates: ResourceTemplate[] = [];
  const prompts: Prompt[] = [];
  await inSlices(offered.tools, (definition) => {
    if (typeof definition.name !== "string" || !isJsonObject(definition.inputSchema)) return;
    for (const [canonical, raw] of namesOf(link, terms, definition.name)) {
      const tool = toolOf(link, definition, canonical, raw, terms);
      shortOf(tool);
      tools.push(tool);
      if (terms.readOnly(definition.name)) readOnly.push(canonical);
    }
  });
  await inSlices(offered.resources, (each) => {
    if (typeof each.uri === "string") resources.push(resourceOf(link, each as unknown as ResourceDefinition));
  });
  await inSlices(offered.resourceTemplates, (each) => {
    if (typeof each.uriTemplate !== "string") return;
    templates.push(...templateOf(link, each as unknown as ResourceTemplateDefinition));
  });
  await inSlices(offered.prompts, (each) => {
    if (typeof each.name === "string") prompts.push(promptOf(link, each as unknown as PromptDefinition));
  });
  const instructions = offered.instructions ? `# ${link.server}\n\n${offered.instructions}` : "";
  const isRouted = terms.routes.length > 0;
  return { link, tools, readOnly, resources, templates, prompts, instructions, isRouted };
}

/** Names are cut and hashed once for each tool, not each time the catalogue is put together. */
const shortNames = new WeakMap<Tool, ShortNames>();

function shortOf(tool: Tool): ShortNames {
  let short = shortNames.get(tool);
  if (short === undefined) {
    short = shortNamesOf(tool.definition.name);
    shortNames.set(tool, short);
  }
  return short;
}

function inProcessPart({ server }: InProcessServer): InstructionPart {
  const { instructions = "", tools, resources, templates, prompts } = server;
  return { instructions, tools, resources, templates, prompts };
}

/** Under its server's prefix, or under the routes that lead to the server. */
function namesOf(link: RelayUpstream, terms: ServerTerms, name: string): [string, string][] {
  if (terms.routes.length === 0) return [[link.namespace.name(name), name]];
  return terms.routes.flatMap(({ prefix, strip }): [string, string][] => {
    if (strip) return [[`${prefix}.${name}`, name]];
    return name.startsWith(`${prefix}.`) ? [[name, name]] : [];
  });
}

const VALID = { ok: true } as const;

function toolOf(
  link: RelayUpstream,
  offered: JsonObject,
  canonical: string,
  raw: string,
  terms: ServerTerms,
): RelayedTool {
  const definition = { ...withoutOwnMeta(offered), name: canonical } as unknown as ToolDefinition;
  // Servers may offer thousands; the schema of one is compiled when it is first called.
  let compiled: CompiledDefinition | undefined;
  let hash: string | undefined;
  const ready = (): CompiledDefinition => {
    compiled ??= compileDefinition(definition);
    return compiled;
  };
  return {
    definition,
    get definitionHash() {
      hash ??= definitionHash(definition);
      return hash;
    },
    validate: (args) => ready().validate(args),
    validateOutput: (value) => (definition.outputSchema === undefined ? VALID : ready().validateOutput(value)),
    run: () => Promise.reject(new Error("a relayed tool runs elsewhere")),
    noGuardrailRequired: terms.noGuardrail(raw),
    ...(terms.timeoutMs === undefined ? {} : { timeoutMs: terms.timeoutMs }),
    tags: hintTags(offered.annotations),
    metadata: {},
    relayed: relayTool({ link, expects: expecting("tool", raw, offered) }, raw, headersOf(offered.inputSchema)),
  };
}

/**
 * What a server declares about its tool, for rules: `resource.tags.contains("hint:readOnly")`. A server sets no other tag,
 * so that rules can tell its declarations from an operator's.
 */
function hintTags(annotations: JsonValue | undefined): string[] {
  if (!isJsonObject(annotations)) return [];
  const { readOnlyHint, destructiveHint } = annotations;
  return [
    ...(readOnlyHint === true ? ["hint:readOnly"] : readOnlyHint === false ? ["hint:writes"] : []),
    ...(destructiveHint === true ? ["hint:destructive"] : []),
  ];
}

/** What the server has to list for a call to be sent: the very definition that callers are shown. */
function expecting(kind: "tool" | "prompt" | "template", name: string, offered: object): ExpectedDefinition {
  return { kind, name, definition: offered as JsonObject };
}

/** `x-mcp-header` of the schema: which arguments 2026-07-28 also wants as HTTP headers. */
function headersOf(schema: JsonValue | undefined): HeadersFor | undefined {
  const properties = isJsonObject(schema) && isJsonObject(schema.properties) ? schema.properties : {};
  const mirrored = Object.entries(properties).flatMap(([name, property]): [string, string][] => {
    const label = isJsonObject(property) ? property["x-mcp-header"] : undefined;
    return typeof label === "string" && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/.test(label)
      ? [[name, `mcp-param-${label.toLowerCase()}`]]
      : [];
  });
  if (mirrored.length === 0) return undefined;
  return (args) =>
    Object.fromEntries(
      mirrored.flatMap(([name, header]): [string, string][] => {
        const value = args[name];
        const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
        return isPlain ? [[header, headerText(String(value))]] : [];
      }),
    );
}

/** Values that a header cannot hold travel as base64. */
function headerText(value: string): string {
  const isPlain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !/^=\?base64\?.*\?=$/s.test(value);
  return isPlain ? value : `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

function resourceOf(link: RelayUpstream, offered: ResourceDefinition): Resource & { readonly relayed: Relayed } {
  return {
    definition: { ...withoutOwnMeta(offered), uri: link.namespace.uri(offered.uri) },
    read: () => Promise.reject(new Error("a relayed resource is read elsewhere")),
    // Single resources are data of the server and not pinned.
    relayed: relayResource({ link, expects: "any" }, offered.uri),
  };
}

function templateOf(link: RelayUpstream, offered: ResourceTemplateDefinition): ResourceTemplate[] {
  let template: UriTemplate;
  try {
    template = new UriTemplate(offered.uriTemplate);
  } catch {
    // A template nobody can match; what it would name can still be read by its uri.
    return [];
  }
  const { namespace } = link;
  const matched: ResourceTemplate & { relayed: Relayed } = {
    definition: { ...withoutOwnMeta(offered), uriTemplate: namespace.uri(offered.uriTemplate) },
    match(uri) {
      const raw = namespace.rawUri(uri);
      return raw === undefined ? undefined : template.match(raw);
    },
    read: () => Promise.reject(new Error("a relayed resource is read elsewhere")),
    complete: nothing,
    // INVARIANT: reading goes by `resourceAt`, which knows the uri; this is for completion alone.
    relayed: relayResource({ link, expects: expecting("template", offered.uriTemplate, offered) }, offered.uriTemplate),
  };
  return [matched];
}

function promptOf(link: RelayUpstream, offered: PromptDefinition): Prompt & { readonly relayed: Relayed } {
  const { arguments: asked, ...rest } = withoutOwnMeta(offered);
  // A server may send anything; what is no list of arguments is none.
  const args = Array.isArray(asked) ? asked.filter((each) => isJsonObject(each) && typeof each.name === "string") : [];
  return {
    definition: {
      ...rest,
      ...(asked === undefined ? {} : { arguments: args }),
      name: link.namespace.name(offered.name),
    },
    get: () => Promise.reject(new Error("a relayed prompt is got elsewhere")),
    complete: nothing,
    relayed: relayPrompt({ link, expects: expecting("prompt", offered.name, offered) }, offered.name),
  };
}

/** Says that there are completions; the answers come from the server. */
const nothing = (): { values: string[] } => ({ values: [] });
