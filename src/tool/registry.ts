// Tools by name and by tag. Calling one is not the registry's business: that goes through the gate.

import { type Catalog, type CatalogOptions, catalog } from "./catalog.js";
import { DefinitionError } from "./errors.js";
import { checkToolName } from "./tool.js";
import type { Tool } from "./types.js";

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

  catalog(options?: CatalogOptions): Catalog {
    return catalog(this.list(), options);
  }
}
