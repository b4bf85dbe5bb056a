// What one upstream server offers, as the tools, resources and prompts of its application: under the names that callers use,
// and relayed to the server when they are called.

import { inSlices, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import {
  type CompiledDefinition,
  compileDefinition,
  definitionHash,
  type InstructionPart,
  type Prompt,
  type PromptDefinition,
  type Resource,
  type ResourceDefinition,
  type ResourceTemplate,
  type ResourceTemplateDefinition,
  type Tool,
  type ToolDefinition,
  UriTemplate,
} from "../../mcp/server/index.js";
import type { Relayed } from "../../pipeline/index.js";
import type { Catalogue, ExpectedDefinition } from "../../upstream/index.js";
import { withoutOwnMeta } from "./answers.js";
import { type ShortNames, shortNamesOf } from "./names.js";
import { type HeadersFor, type RelayUpstream, relayPrompt, relayResource, relayTool } from "./relay.js";

/** The operator's settings for a server's tools. */
export interface ServerTerms {
  readonly timeoutMs?: number | undefined;
  readonly validationTimeoutMs?: number | undefined;
  noGuardrail(rawName: string): boolean;
  readOnly(rawName: string): boolean;
  /** Prefixes that the operator routes to this server. */
  routes: readonly { readonly prefix: string; readonly strip: boolean }[];
}

export interface Section extends InstructionPart {
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

type RelayedTool = Tool & { readonly relayed: Relayed };

export async function sectionOf(link: RelayUpstream, offered: Catalogue, terms: ServerTerms): Promise<Section> {
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

export function shortOf(tool: Tool): ShortNames {
  let short = shortNames.get(tool);
  if (short === undefined) {
    short = shortNamesOf(tool.definition.name);
    shortNames.set(tool, short);
  }
  return short;
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
    const limits = terms.validationTimeoutMs === undefined ? {} : { timeoutMs: terms.validationTimeoutMs };
    compiled ??= compileDefinition(definition, { limits });
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
    run: () => Promise.reject(new Error("a relayed tool runs at its server")),
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

export function resourceOf(link: RelayUpstream, offered: ResourceDefinition): Resource & { readonly relayed: Relayed } {
  return {
    definition: { ...withoutOwnMeta(offered), uri: link.namespace.uri(offered.uri) },
    read: () => Promise.reject(new Error("a relayed resource is read at its server")),
    // Single resources are data of the server and not pinned.
    relayed: relayResource({ link, expects: "any" }, offered.uri),
  };
}

function templateOf(link: RelayUpstream, offered: ResourceTemplateDefinition): ResourceTemplate[] {
  let template: UriTemplate;
  try {
    template = new UriTemplate(offered.uriTemplate);
  } catch {
    // A template that cannot be matched; what it would name can still be read by its uri.
    return [];
  }
  const { namespace } = link;
  const matched: ResourceTemplate & { relayed: Relayed } = {
    definition: { ...withoutOwnMeta(offered), uriTemplate: namespace.uri(offered.uriTemplate) },
    match(uri) {
      const raw = namespace.rawUri(uri);
      return raw === undefined ? undefined : template.match(raw);
    },
    read: () => Promise.reject(new Error("a relayed resource is read at its server")),
    complete: nothing,
    // INVARIANT: reading goes by `resourceAt`, which knows the uri; this is for completion alone.
    relayed: relayResource({ link, expects: expecting("template", offered.uriTemplate, offered) }, offered.uriTemplate),
  };
  return [matched];
}

function promptOf(link: RelayUpstream, offered: PromptDefinition): Prompt & { readonly relayed: Relayed } {
  const { arguments: asked, ...rest } = withoutOwnMeta(offered);
  // A server may send anything; anything but a list of arguments is dropped.
  const args = Array.isArray(asked) ? asked.filter((each) => isJsonObject(each) && typeof each.name === "string") : [];
  return {
    definition: {
      ...rest,
      ...(asked === undefined ? {} : { arguments: args }),
      name: link.namespace.name(offered.name),
    },
    get: () => Promise.reject(new Error("a relayed prompt is got at its server")),
    complete: nothing,
    relayed: relayPrompt({ link, expects: expecting("prompt", offered.name, offered) }, offered.name),
  };
}

/** Declares that there are completions; the values come from the server. */
const nothing = (): { values: string[] } => ({ values: [] });
