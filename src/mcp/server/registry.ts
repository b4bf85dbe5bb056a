// Tools by name and by tag.

import type { JsonObject } from "../index.js";
import { type Catalog, type CatalogOptions, catalog } from "./catalog.js";
import { DefinitionError } from "../../schema/index.js";
import { type InvokeOptions, invokeTool } from "./invoke.js";
import { checkToolName } from "./tool.js";
import type { Tool, ToolResult } from "./types.js";

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
