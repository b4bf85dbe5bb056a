// Lists show exactly what the caller may use: what policy would always deny is hidden, what it would challenge is
// marked. They are kept as bytes per caller, policy and manifest.

import type { Outlook, PolicySet, Principal } from "../gate/index.js";
import { Fault, type JsonObject, type JsonValue } from "../protocol/index.js";
import type { ServerDefinition, Tool } from "../tool/index.js";
import type { Gateway, Relayed } from "./types.js";

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

const MAX_CACHED = 1_000;

/** For whom, and over what: policy may look at both. */
export interface Asker {
  principal: Principal;
  transport: string;
}

export class Lists {
  readonly #server: ServerDefinition;
  readonly #cache = new Map<string, string[]>();
  #version = 0;

  constructor(server: ServerDefinition) {
    this.#server = server;
    server.onChange((change) => {
      if (change.kind === "resource") return;
      this.#version++;
      this.#cache.clear();
    });
  }

  /** The inside of the result object, as JSON text without its braces: `"tools":[…],"nextCursor":"…"`. */
  page(gateway: Gateway, asker: Asker, method: ListMethod, cursor: JsonValue | undefined): string {
    const pages = this.#pages(gateway, asker, method);
    const at = this.#read(cursor, pages.length);
    const next = at + 1 < pages.length ? `,"nextCursor":${JSON.stringify(this.#cursor(at + 1))}` : "";
    return `"${FIELD[method]}":${pages[at] ?? "[]"}${next}`;
  }

  #pages(gateway: Gateway, asker: Asker, method: ListMethod): string[] {
    const { principal, transport } = asker;
    const policy = gateway.gate.policy;
    const { app, agent, scope, tools, shown, credential = "" } = principal;
    const key = `${method} ${policy.hash} ${JSON.stringify([transport, app, agent, tools || shown ? credential : "", ...scope])}`;
    // What a caller may reach is fixed for its credential; without one to tell it by, nothing is remembered.
    const mayKeep = (!tools && !shown) || credential !== "";
    const cached = mayKeep ? this.#cache.get(key) : undefined;
    if (cached) return cached;
    const entries = this.#entries(gateway, asker, method, policy);
    const pages: string[] = [];
    for (let i = 0; i < entries.length; i += gateway.limits.pageSize) {
      pages.push(JSON.stringify(entries.slice(i, i + gateway.limits.pageSize)));
    }
    if (this.#cache.size >= MAX_CACHED) this.#cache.clear();
    if (mayKeep) this.#cache.set(key, pages);
    return pages;
  }

  #entries(gateway: Gateway, asker: Asker, method: ListMethod, policy: PolicySet): JsonObject[] {
    const show = (about: About, definition: object): JsonObject[] => {
      const outlook = this.#outlook(gateway, asker, policy, about);
      if (outlook === "never") return [];
      return [outlook === "challenge" ? marked(definition as JsonObject) : (definition as JsonObject)];
    };
    switch (method) {
      case "tools/list":
        return this.#reachable(asker).flatMap((tool) => show(aboutTool(tool), this.#shown(tool)));
      case "resources/list":
        return [...this.#server.resources.values()].flatMap((resource) => {
          const { definition } = resource;
          return show({ type: "Resource", id: definition.uri, action: "resources/read", from: resource }, definition);
        });
      case "resources/templates/list":
        return this.#server.templates.map((template) => template.definition as unknown as JsonObject);
      case "prompts/list":
        return [...this.#server.prompts.values()].flatMap((prompt) => {
          const { definition } = prompt;
          return show({ type: "Prompt", id: definition.name, action: "prompts/get", from: prompt }, definition);
        });
    }
  }

  /** The tools that `tools/list` shows to this caller, for those who describe them in another form. */
  toolsFor(gateway: Gateway, asker: Asker): Tool[] {
    const { policy } = gateway.gate;
    return this.#reachable(asker).filter((tool) => this.#outlook(gateway, asker, policy, aboutTool(tool)) !== "never");
  }

  #reachable({ principal }: Asker): Tool[] {
    const within = principal.shown ?? principal.tools;
    return [...this.#server.tools.values()].filter((tool) => within?.has(tool.definition.name) ?? true);
  }

  #outlook(gateway: Gateway, { principal, transport }: Asker, policy: PolicySet, about: About): Outlook {
    if (gateway.gate.observe) return "possible";
    const { app, agent, scope } = principal;
    const { type, id, action, from, tags = [] } = about;
    const server = serverOf(from) ?? this.#server.info.name;
    const resource = { type, id, server, tags, readOnly: gateway.readOnlyTools.has(id) };
    return policy.outlook({ app, agent, scope, action, transport, resource });
  }

  /** Under an alias the tool still says what it is called. */
  #shown({ definition }: Tool): object {
    const name = this.#server.shownName?.(definition.name) ?? definition.name;
    if (name === definition.name) return definition;
    const title = definition.title ?? definition.name;
    return { ...definition, name, title, _meta: { ...definition._meta, "portcullis/name": definition.name } };
  }

  #cursor(page: number): string {
    return Buffer.from(`${this.#version}.${page}`).toString("base64url");
  }

  #read(cursor: JsonValue | undefined, pages: number): number {
    if (cursor === undefined) return 0;
    const [version, page] =
      typeof cursor === "string" ? Buffer.from(cursor, "base64url").toString("latin1").split(".") : [];
    const at = Number(page);
    if (version === String(this.#version) && Number.isInteger(at) && at > 0 && at < pages) return at;
    throw new Fault("InvalidParams", "`cursor` is unknown, or the list has changed since; begin again without it", {
      field: "cursor",
    });
  }
}

/** What an entry of a list is to policy. */
interface About {
  readonly type: "Tool" | "Resource" | "Prompt";
  readonly id: string;
  readonly action: string;
  readonly from: object;
  readonly tags?: readonly string[];
}

function aboutTool(tool: Tool): About {
  const { name } = tool.definition;
  return { type: "Tool", id: name, action: name, from: tool, tags: tool.tags };
}

/** Policy may speak of servers; what a downstream server has is its own. */
function serverOf(from: object): string | undefined {
  return (from as { relayed?: Relayed }).relayed?.server;
}

function marked(definition: JsonObject): JsonObject {
  const meta = (definition._meta ?? {}) as JsonObject;
  return { ...definition, _meta: { ...meta, "portcullis/outlook": "challenge" } };
}
