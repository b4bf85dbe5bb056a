// What one application has: its own tools and those of its upstream servers, under the names that its callers use.

import type {
  Implementation,
  InstructionPart,
  ListChange,
  Prompt,
  Resource,
  ResourceTemplate,
  ServerDefinition,
  Tool,
} from "../../mcp/server/index.js";
import type { ApplicationDocument } from "../../storage/index.js";
import type { Catalogue } from "../../upstream/index.js";
import { MAX_SHORT } from "./names.js";
import { resourceOf, type Section, type ServerTerms, sectionOf, shortOf } from "./offered.js";
import type { RelayUpstream } from "./relay.js";

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

type ShownNames = NonNullable<ApplicationDocument["names"]>;

export class AppCatalogue implements ServerDefinition {
  readonly info: Implementation;
  readonly tools = new Map<string, Tool>();
  readonly resources = new Map<string, Resource>();
  readonly prompts = new Map<string, Prompt>();
  readonly aliases = new Map<string, string>();
  readonly readOnlyTools = new Set<string>();
  templates: ResourceTemplate[] = [];
  instructionParts: readonly InstructionPart[] = [];
  /** Set by the owner of the connections. */
  follow: (uri: string) => () => void = () => () => {};
  /** Why something a server offers is not here. */
  readonly left: { readonly server: string; readonly name: string; readonly why: string }[] = [];
  #local: readonly Tool[];
  readonly #inProcess: InProcessServer | undefined;
  readonly #stop: () => void;
  /** By a tool's name: the alias for clients that accept no dots or long names. */
  readonly #shown = new Map<string, string>();
  readonly #sections = new Map<string, Section>();
  readonly #listeners = new Set<(change: ListChange) => void>();
  #names: ShownNames;

  constructor(info: Implementation, local: readonly Tool[], names: ShownNames = "full", inProcess?: InProcessServer) {
    this.info = inProcess?.server.info ?? info;
    this.#local = local;
    this.#names = names;
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

  /** Made in slices; `isWanted` is false when the server was removed meanwhile. */
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

  /** How lists show tools; callers are notified when it changes. */
  setNames(names: ShownNames = "full"): void {
    if (this.#names === names) return;
    this.#names = names;
    this.#changed();
  }

  isSearched(): boolean {
    return this.#names === "search";
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
    return this.#names === "short" || name.length > MAX_SHORT ? (this.#shown.get(name) ?? name) : name;
  }
}

function refusal(name: string, taken: ReadonlyMap<string, unknown>, allowed: RegExp | undefined): string {
  if (allowed && !allowed.test(name)) {
    return name.startsWith("core.") ? "core.* needs a route of the operator" : "not a name MCP allows";
  }
  return taken.has(name) ? "the name is taken" : "";
}

function inProcessPart({ server }: InProcessServer): InstructionPart {
  const { instructions = "", tools, resources, templates, prompts } = server;
  return { instructions, tools, resources, templates, prompts };
}
