// Three tools in place of all: `find_tools`, `describe_tool`, `call_tool`, for clients whose context would not hold every
// definition. A search covers what its caller may use; a call is routed, decided and recorded under the tool's own name.

import { Fault, isJsonObject, type JsonObject } from "../mcp/index.js";
import { argumentsOf, stringField } from "../pipeline/index.js";

export const SEARCH_TOOLS: readonly JsonObject[] = [
  {
    name: "find_tools",
    description: "Search the tools that can be called. Returns names and descriptions, best match first.",
    inputSchema: {
      type: "object",
      properties: {
        query: { type: "string", description: "what the tool should do, in a few words" },
        limit: { type: "integer", minimum: 1, maximum: 50, description: "how many to return; 8 unless given" },
      },
      required: ["query"],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: "describe_tool",
    description: "Get the definition of a tool that find_tools returned: its description and input schema.",
    inputSchema: {
      type: "object",
      properties: { name: { type: "string", description: "the tool's name" } },
      required: ["name"],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: "call_tool",
    description: "Call a tool by its name, with arguments that fit its input schema.",
    inputSchema: {
      type: "object",
      properties: {
        name: { type: "string", description: "the tool's name" },
        arguments: { type: "object", description: "the tool's arguments" },
      },
      required: ["name"],
      additionalProperties: false,
    },
  },
];

/** What `call_tool` stands for: the parameters of the call that is meant. Other calls are as they were. */
export function meantCall(params: JsonObject): JsonObject {
  if (params.name !== "call_tool") return params;
  const meant = argumentsOf(params);
  return { ...params, name: stringField(meant, "name"), arguments: meant.arguments ?? {} };
}

const DEFAULT_LIMIT = 8;
const MAX_LIMIT = 50;
const MAX_QUERY = 1_000;

/** The query and the number of results that a call of `find_tools` asks for. */
export function searchOf(params: JsonObject): { readonly query: string; readonly limit: number } {
  const { query, limit = DEFAULT_LIMIT } = argumentsOf(params);
  if (typeof query !== "string" || query.length > MAX_QUERY) {
    throw new Fault("InvalidParams", `\`query\` must be a string of at most ${MAX_QUERY} characters`, {
      field: "query",
    });
  }
  if (typeof limit !== "number" || !Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw new Fault("InvalidParams", `\`limit\` must be a whole number from 1 to ${MAX_LIMIT}`, { field: "limit" });
  }
  return { query, limit };
}

interface Indexed {
  readonly definition: JsonObject;
  /** How often each word occurs, by its weight. */
  readonly words: ReadonlyMap<string, number>;
  readonly length: number;
}

const WEIGHTS = { name: 4, title: 3, description: 1, parameter: 0.5 };
/** Of one definition, in characters and in parameters. */
const MAX_TEXT = 4_000;
const MAX_PARAMETERS = 50;
/** The usual constants of BM25: how soon repeated words stop counting, and how much longer texts count less. */
const SATURATION = 1.2;
const LENGTH_SHARE = 0.75;
/** What a word counts that only begins like the one searched for. */
const PREFIX_SHARE = 0.5;
const MIN_PREFIX = 4;

/** Ranks definitions by BM25 over names, titles, descriptions and parameters. */
export class ToolIndex {
  readonly #tools: readonly Indexed[];
  readonly #holders = new Map<string, number>();
  readonly #averageLength: number;

  constructor(definitions: readonly JsonObject[]) {
    this.#tools = definitions.map(indexed);
    for (const { words } of this.#tools) {
      for (const word of words.keys()) this.#holders.set(word, (this.#holders.get(word) ?? 0) + 1);
    }
    this.#averageLength = this.#tools.reduce((sum, { length }) => sum + length, 0) / Math.max(1, this.#tools.length);
  }

  find(query: string, limit: number): JsonObject[] {
    const wanted = [...new Set(wordsIn(query))].map((word) => this.#variants(word));
    const scored = this.#tools
      .map((tool) => ({ tool, score: this.#score(tool, wanted) }))
      .filter((each) => each.score > 0);
    scored.sort((a, b) => b.score - a.score || (nameOf(a.tool) < nameOf(b.tool) ? -1 : 1));
    return scored.slice(0, limit).map(({ tool }) => tool.definition);
  }

  describe(name: string): JsonObject | undefined {
    return this.#tools.find((tool) => nameOf(tool) === name)?.definition;
  }

  /** The word itself, and for less those that begin with it. */
  #variants(word: string): ReadonlyMap<string, number> {
    const found = new Map([[word, 1]]);
    if (word.length < MIN_PREFIX) return found;
    for (const known of this.#holders.keys()) {
      if (known !== word && (known.startsWith(word) || (known.length >= MIN_PREFIX && word.startsWith(known)))) {
        found.set(known, PREFIX_SHARE);
      }
    }
    return found;
  }

  #score({ words, length }: Indexed, wanted: readonly ReadonlyMap<string, number>[]): number {
    let score = 0;
    for (const variants of wanted) {
      let best = 0;
      for (const [word, share] of variants) {
        const count = words.get(word);
        if (count === undefined) continue;
        const holders = this.#holders.get(word) ?? 0;
        const rarity = Math.log(1 + (this.#tools.length - holders + 0.5) / (holders + 0.5));
        const norm = SATURATION * (1 - LENGTH_SHARE + (LENGTH_SHARE * length) / this.#averageLength);
        best = Math.max(best, (share * rarity * count * (SATURATION + 1)) / (count + norm));
      }
      score += best;
    }
    return score;
  }
}

function nameOf({ definition }: Indexed): string {
  return String(definition.name);
}

function indexed(definition: JsonObject): Indexed {
  const words = new Map<string, number>();
  let length = 0;
  const add = (text: unknown, weight: number): void => {
    if (typeof text !== "string") return;
    for (const word of wordsIn(text.slice(0, MAX_TEXT))) {
      words.set(word, (words.get(word) ?? 0) + weight);
      length += weight;
    }
  };
  add(definition.name, WEIGHTS.name);
  add(definition.title, WEIGHTS.title);
  add(definition.description, WEIGHTS.description);
  const { properties } = isJsonObject(definition.inputSchema) ? definition.inputSchema : {};
  for (const [name, schema] of Object.entries(isJsonObject(properties) ? properties : {}).slice(0, MAX_PARAMETERS)) {
    add(name, WEIGHTS.parameter);
    if (isJsonObject(schema)) add(schema.description, WEIGHTS.parameter);
  }
  return { definition, words, length };
}

/** In no query do these tell one tool from another. */
const STOP_WORDS = new Set("a an and the of to for in on at by with from or is it its this that as be".split(" "));

/** `listFiles`, `list_files` and `List files` are the same words; a plural is its singular. */
function wordsIn(text: string): string[] {
  const parts =
    text
      .replace(/(\p{Ll}|\d)(\p{Lu})/gu, "$1 $2")
      .toLowerCase()
      .match(/[\p{L}\d]+/gu) ?? [];
  return parts
    .filter((word) => !STOP_WORDS.has(word))
    .map((word) => (/[^s]s$/.test(word) && word.length > 3 ? word.slice(0, -1) : word));
}

const MAX_SHOWN = 300;

/** The result of `find_tools`: names, and as much of each description as tells tools apart. */
export function foundText(found: readonly JsonObject[]): string {
  const short = found.map(({ name, description, _meta }) => {
    const text = typeof description === "string" ? description : "";
    const outlook = isJsonObject(_meta) ? _meta["portcullis/outlook"] : undefined;
    return {
      name,
      description: text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text,
      ...(outlook === undefined ? {} : { outlook }),
    };
  });
  return JSON.stringify({ tools: short });
}
