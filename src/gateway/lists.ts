// Lists show exactly what the caller may use: what policy would always deny is hidden, what needs an approval is marked.
// They are kept as bytes per caller, policy and manifest.

import { createHash } from "node:crypto";
import {
  type ByteBudget,
  Charge,
  Fault,
  isSliceOver,
  type JsonObject,
  type JsonValue,
  nextSlice,
} from "../mcp/index.js";
import { catalogText, openApiText, type ServerDefinition, type Tool } from "../mcp/server/index.js";
import { mayGet, mayRead, type Relayed } from "../pipeline/index.js";
import type { Outlook, PolicySet, Principal } from "../policy/index.js";
import type { Gateway } from "./application-types.js";
import { isRestricted } from "./capabilities.js";
import { SEARCH_TOOLS, ToolIndex } from "./search.js";

export type ListMethod = "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list";

export const LIST_METHODS: ReadonlySet<string> = new Set<ListMethod>([
  "tools/list",
  "resources/list",
  "resources/templates/list",
  "prompts/list",
]);

const FIELD: Readonly<Record<ListMethod, string>> = {
  "tools/list": "tools",
  "resources/list": "resources",
  "resources/templates/list": "resourceTemplates",
  "prompts/list": "prompts",
};

/** A document is sent as one message. */
const MAX_DOCUMENT_CHARS = 4_000_000;
/** Callers whose view is remembered. */
const MAX_VIEWS = 1_000;
/** Texts and indexes of lists that are kept, in bytes; callers that see the same share one. */
const MAX_KEPT_BYTES = 32 * 1024 * 1024;

/** The caller of a list, and its transport: policy may read both. */
export interface ListCaller {
  principal: Principal;
  transport: string;
}

/** A list as one caller sees it: its pages, or the one text of a document (none when it is too long). */
interface View {
  readonly pages: readonly string[];
  /** Of a caller whose tools are searched, not listed. */
  readonly index?: ToolIndex;
}

export type DocumentKind = "openapi" | "catalog";
type Described = ListMethod | DocumentKind | "search";

export class Lists {
  readonly #server: ServerDefinition;
  /** By caller and method. A promise while it is built, so that it is built once. */
  readonly #views = new Map<string, View | Promise<View>>();
  /** By what is visible, oldest first. */
  readonly #kept = new Map<string, View>();
  readonly #charge: Charge;
  #version = 0;
  #isOver = false;

  /** What is kept is charged to `budget`, and nothing is kept that it does not allow. */
  constructor(server: ServerDefinition, budget?: ByteBudget) {
    this.#server = server;
    this.#charge = new Charge(budget);
    server.onChange((change) => {
      if (change.kind === "resource") return;
      this.#version++;
      this.#forget();
    });
  }

  /** Nothing is kept from now on. */
  end(): void {
    this.#isOver = true;
    this.#forget();
  }

  /** The inside of the result object, as JSON text without its braces: `"tools":[…],"nextCursor":"…"`. */
  page(
    gateway: Gateway,
    caller: ListCaller,
    method: ListMethod,
    cursor: JsonValue | undefined,
  ): string | Promise<string> {
    const version = this.#version;
    const inside = ({ pages }: View): string => {
      const at = this.#read(cursor, version, pages.length);
      const next = at + 1 < pages.length ? `,"nextCursor":${JSON.stringify(cursorOf(version, at + 1))}` : "";
      return `"${FIELD[method]}":${pages[at] ?? "[]"}${next}`;
    };
    if (method === "tools/list" && this.#server.isSearched?.()) return `"tools":${JSON.stringify(SEARCH_TOOLS)}`;
    const view = this.#view(gateway, caller, method);
    return view instanceof Promise ? view.then(inside) : inside(view);
  }

  /** What `tools/list` shows to this caller, as an OpenAPI document or as a catalog. */
  async document(gateway: Gateway, caller: ListCaller, kind: DocumentKind): Promise<string> {
    const { pages } = await this.#view(gateway, caller, kind);
    const [text] = pages;
    if (text !== undefined) return text;
    const reason = `the ${kind} document of these tools is longer than ${MAX_DOCUMENT_CHARS} characters`;
    throw new Fault("TooLarge", `${reason}; use \`tools/list\`, or a key for fewer tools`);
  }

  /** What `tools/list` would show to this caller, to be searched. */
  async search(gateway: Gateway, caller: ListCaller): Promise<ToolIndex> {
    const { index } = await this.#view(gateway, caller, "search");
    return index ?? ToolIndex.of([]);
  }

  #view(gateway: Gateway, caller: ListCaller, method: Described): View | Promise<View> {
    const { principal, transport } = caller;
    const { policy } = gateway.gate;
    // What a caller may reach is fixed for its credential; without one nothing is remembered.
    if (isRestricted(principal) && principal.credential === undefined)
      return this.#build(gateway, caller, method, policy);
    const key = `${method} ${policy.hash} ${transport} ${callerKey(principal)}`;
    const known = this.#views.get(key);
    if (known) return known;
    if (this.#views.size >= MAX_VIEWS) this.#forget();
    const building = this.#build(gateway, caller, method, policy);
    this.#views.set(key, building);
    building.then(
      (view) => this.#views.get(key) === building && this.#views.set(key, view),
      () => this.#views.get(key) === building && this.#views.delete(key),
    );
    return building;
  }

  /** In slices: thousands of tools take long, and others are answered in between. */
  async #build(gateway: Gateway, caller: ListCaller, method: Described, policy: PolicySet): Promise<View> {
    const version = this.#version;
    const shown: Shown[] = [];
    const seen = createHash("sha256").update(`${method} ${gateway.limits.pageSize}`);
    for (const entry of this.#entries(caller, method)) {
      const outlook = entry.about ? this.#outlook(gateway, caller, policy, entry.about) : "possible";
      if (isSliceOver()) await nextSlice();
      if (outlook === "never") continue;
      shown.push({ ...entry, isMarked: outlook === "challenge" });
      seen.update(`${JSON.stringify(entry.id)}${outlook === "challenge" ? "!" : ""}`);
    }
    const visible = seen.digest("base64");
    const kept = version === this.#version ? this.#kept.get(visible) : undefined;
    if (kept) return kept;
    const view = await this.#made(gateway, method, shown);
    if (version === this.#version) this.#keep(visible, view);
    return view;
  }

  async #made(gateway: Gateway, method: Described, shown: readonly Shown[]): Promise<View> {
    switch (method) {
      case "openapi":
      case "catalog":
        return { pages: await this.#document(shown, method) };
      case "search":
        return {
          pages: [],
          index: await ToolIndex.of(
            shown.map(({ definition, isMarked }) => (isMarked ? marked(definition) : definition)),
          ),
        };
      default:
        return { pages: await this.#texts(gateway, shown) };
    }
  }

  async #texts({ limits }: Gateway, shown: readonly Shown[]): Promise<string[]> {
    const pages: string[] = [];
    let page = "";
    for (const [index, { definition, isMarked }] of shown.entries()) {
      page += `${page === "" ? "[" : ","}${JSON.stringify(isMarked ? marked(definition) : definition)}`;
      if ((index + 1) % limits.pageSize === 0 || index + 1 === shown.length) {
        pages.push(`${page}]`);
        page = "";
      }
      if (isSliceOver()) await nextSlice();
    }
    return pages;
  }

  async #document(shown: readonly Shown[], kind: DocumentKind): Promise<string[]> {
    const { info } = this.#server;
    const tools = shown.flatMap(({ tool }) => tool ?? []);
    const options = { title: info.title ?? info.name, version: info.version };
    const write = kind === "openapi" ? openApiText : catalogText;
    const text = await write(tools, options, MAX_DOCUMENT_CHARS);
    return text === undefined ? [] : [text];
  }

  #keep(visible: string, view: View): void {
    const bytes = this.#charge.bytes + bytesOf(view);
    if (this.#isOver || bytes > MAX_KEPT_BYTES || !this.#charge.set(bytes)) return this.#forget();
    this.#kept.set(visible, view);
  }

  #forget(): void {
    this.#views.clear();
    this.#kept.clear();
    this.#charge.set(0);
  }

  *#entries(caller: ListCaller, method: Described): Iterable<Entry> {
    const { principal } = caller;
    switch (method) {
      case "tools/list":
      case "openapi":
      case "catalog":
      case "search":
        for (const tool of this.#reachable(caller)) {
          const definition = method === "tools/list" || method === "search" ? (this.#shown(tool) as JsonObject) : {};
          yield { id: tool.definition.name, definition, about: aboutTool(tool), tool };
        }
        return;
      case "resources/list":
        for (const resource of [...this.#server.resources.values()]) {
          const { definition } = resource;
          if (!mayRead(principal, definition.uri)) continue;
          const about: About = { type: "Resource", id: definition.uri, action: "resources/read", from: resource };
          yield { id: definition.uri, definition: definition as unknown as JsonObject, about };
        }
        return;
      case "resources/templates/list":
        for (const { definition } of [...this.#server.templates]) {
          if (!mayRead(principal, definition.uriTemplate)) continue;
          yield { id: definition.uriTemplate, definition: definition as unknown as JsonObject };
        }
        return;
      case "prompts/list":
        for (const prompt of [...this.#server.prompts.values()]) {
          const { definition } = prompt;
          if (!mayGet(principal, definition.name)) continue;
          const about: About = { type: "Prompt", id: definition.name, action: "prompts/get", from: prompt };
          yield { id: definition.name, definition: definition as unknown as JsonObject, about };
        }
    }
  }

  #reachable({ principal }: ListCaller): Tool[] {
    const within = principal.shown ?? principal.tools;
    return [...this.#server.tools.values()].filter((tool) => within?.has(tool.definition.name) ?? true);
  }

  #outlook(gateway: Gateway, { principal, transport }: ListCaller, policy: PolicySet, about: About): Outlook {
    if (gateway.gate.observe) return "possible";
    const { app, agent, scope, user, groups = [] } = principal;
    const { type, id, action, from, tags = [] } = about;
    const server = serverOf(from) ?? this.#server.info.name;
    const resource = { type, id, server, tags, readOnly: gateway.readOnlyTools.has(id) };
    return policy.outlook({ app, agent, scope, user, groups, action, transport, resource });
  }

  /** Under an alias the tool still has its name in `_meta`. */
  #shown({ definition }: Tool): object {
    const name = this.#server.shownName?.(definition.name) ?? definition.name;
    if (name === definition.name) return definition;
    const title = definition.title ?? definition.name;
    return { ...definition, name, title, _meta: { ...definition._meta, "portcullis/name": definition.name } };
  }

  #read(cursor: JsonValue | undefined, current: number, pages: number): number {
    if (cursor === undefined) return 0;
    const [version, page] =
      typeof cursor === "string" ? Buffer.from(cursor, "base64url").toString("latin1").split(".") : [];
    const at = Number(page);
    if (version === String(current) && Number.isInteger(at) && at > 0 && at < pages) return at;
    throw new Fault("InvalidParams", "`cursor` is unknown, or the list has changed since; begin again without it", {
      field: "cursor",
    });
  }
}

function cursorOf(version: number, page: number): string {
  return Buffer.from(`${version}.${page}`).toString("base64url");
}

/** Texts of two bytes a character at worst. */
function bytesOf({ pages, index }: View): number {
  return pages.reduce((sum, page) => sum + 2 * page.length, index?.bytes ?? 0);
}

/** Everything of a caller that decides what its lists show. A delegation narrows what the credential reaches. */
function callerKey(principal: Principal): string {
  const { app, agent, user, groups = [], scope, credential = "", delegation } = principal;
  const delegated = delegation && [...delegation.capabilities].sort();
  return JSON.stringify([app, agent, user, groups, isRestricted(principal) ? credential : "", scope, delegated]);
}

/** What an entry of a list is to policy. */
interface About {
  readonly type: "Tool" | "Resource" | "Prompt";
  readonly id: string;
  readonly action: string;
  readonly from: object;
  readonly tags?: readonly string[];
}

/** What may be shown of one tool, resource, template or prompt; without `about` policy is not asked. */
interface Entry {
  readonly id: string;
  readonly definition: JsonObject;
  readonly about?: About;
  readonly tool?: Tool;
}

type Shown = Entry & { readonly isMarked: boolean };

function aboutTool(tool: Tool): About {
  const { name } = tool.definition;
  return { type: "Tool", id: name, action: name, from: tool, tags: tool.tags };
}

/** The upstream server that offers a tool, resource or prompt. */
function serverOf(from: object): string | undefined {
  return (from as { relayed?: Relayed }).relayed?.server;
}

function marked(definition: JsonObject): JsonObject {
  const meta = (definition._meta ?? {}) as JsonObject;
  return { ...definition, _meta: { ...meta, "portcullis/outlook": "challenge" } };
}
