// Three tools in place of all: `find_tools`, `describe_tool`, `call_tool`, for clients whose context would not hold every
// definition. A search covers what its caller may use; a call is routed, decided and recorded under the tool's own name.

import { Fault, inSlices, isJsonObject, type JsonObject } from "../mcp/index.js";
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

const WEIGHTS = { name: 4, title: 3, description: 1, parameter: 0.5 };
/** Of one definition, in characters and in parameters. */
const MAX_TEXT = 4_000;
const MAX_PARAMETERS = 50;
/** Words of all definitions together; each definition has an equal share of them, and a few for its name at least. */
const MAX_WORDS = 200_000;
const MIN_WORDS = 16;
const MAX_WORD = 64;
const MAX_QUERY_WORDS = 16;
/** What an index costs, for each word of a definition and for each word that is known. */
const PLACE_BYTES = 24;
const WORD_BYTES = 120;
/** The usual constants of BM25: how soon repeated words stop counting, and how much longer texts count less. */
const SATURATION = 1.2;
const LENGTH_SHARE = 0.75;
/** What a word counts that only begins like the one searched for. */
const PREFIX_SHARE = 0.5;
const MIN_PREFIX = 4;

/** Where a word occurs: numbers of definitions, each followed by how often, by its weight. */
type Places = number[];

/** Ranks definitions by BM25 over names, titles, descriptions and parameters. */
export class ToolIndex {
  readonly #tools: readonly JsonObject[];
  readonly #lengths: number[] = [];
  readonly #places = new Map<string, Places>();
  #averageLength = 0;
  /** What it costs in memory, the definitions apart. */
  bytes = 0;

  /** In slices: a server may offer thousands of tools with texts of any length. */
  static async of(definitions: readonly JsonObject[]): Promise<ToolIndex> {
    const index = new ToolIndex(definitions);
    const maxWords = Math.max(MIN_WORDS, Math.floor(MAX_WORDS / Math.max(1, definitions.length)));
    await inSlices(definitions.entries(), ([at, definition]) => index.#add(at, definition, maxWords));
    index.#averageLength = index.#lengths.reduce((sum, each) => sum + each, 0) / Math.max(1, definitions.length);
    return index;
  }

  private constructor(tools: readonly JsonObject[]) {
    this.#tools = tools;
  }

  async find(query: string, limit: number): Promise<JsonObject[]> {
    const scores = new Map<number, number>();
    for (const word of new Set(wordsIn(query).slice(0, MAX_QUERY_WORDS))) {
      for (const [tool, score] of await this.#best(word)) scores.set(tool, (scores.get(tool) ?? 0) + score);
    }
    const ranked = [...scores].map(([tool, score]) => ({ definition: this.#tools[tool] as JsonObject, score }));
    ranked.sort((a, b) => b.score - a.score || (nameOf(a.definition) < nameOf(b.definition) ? -1 : 1));
    return ranked.slice(0, limit).map(({ definition }) => definition);
  }

  describe(name: string): JsonObject | undefined {
    return this.#tools.find((tool) => nameOf(tool) === name);
  }

  /** By the word itself, and for less by those that begin with it or that it begins with. */
  async #best(word: string): Promise<ReadonlyMap<number, number>> {
    const best = new Map<number, number>();
    this.#score(best, this.#places.get(word), 1);
    if (word.length < MIN_PREFIX) return best;
    await inSlices(this.#places, ([known, places]) => {
      const isLike = known.startsWith(word) || (known.length >= MIN_PREFIX && word.startsWith(known));
      if (isLike && known !== word) this.#score(best, places, PREFIX_SHARE);
    });
    return best;
  }

  #score(best: Map<number, number>, places: Places = [], share: number): void {
    const holders = places.length / 2;
    const rarity = Math.log(1 + (this.#tools.length - holders + 0.5) / (holders + 0.5));
    for (let at = 0; at < places.length; at += 2) {
      const [tool, count] = [places[at] as number, places[at + 1] as number];
      const length = this.#lengths[tool] as number;
      const norm = SATURATION * (1 - LENGTH_SHARE + (LENGTH_SHARE * length) / this.#averageLength);
      const score = (share * rarity * count * (SATURATION + 1)) / (count + norm);
      if (score > (best.get(tool) ?? 0)) best.set(tool, score);
    }
  }

  #add(at: number, definition: JsonObject, maxWords: number): void {
    const words = new Map<string, number>();
    let length = 0;
    const add = (text: unknown, weight: number): void => {
      if (typeof text !== "string" || words.size >= maxWords) return;
      for (const word of wordsIn(text.slice(0, MAX_TEXT))) {
        length += weight;
        const count = words.get(word);
        if (count !== undefined || words.size < maxWords) words.set(word, (count ?? 0) + weight);
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
    this.#lengths[at] = length;
    for (const [word, count] of words) {
      const places = this.#places.get(word);
      this.bytes += PLACE_BYTES;
      if (places !== undefined) places.push(at, count);
      else {
        this.bytes += WORD_BYTES;
        this.#places.set(word, [at, count]);
      }
    }
  }
}

function nameOf(definition: JsonObject): string {
  return String(definition.name);
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
    .filter((word) => !STOP_WORDS.has(word) && word.length <= MAX_WORD)
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
