// The blocks of a delegation token. The first says who has authority of its own, each further one hands it on and may
// only narrow it, the last one spends it on one request. Every block is a condition: all of them must hold.

import { isJsonObject, type JsonObject, type JsonValue, parseStrict } from "../../mcp/index.js";
import { problemInNarrowing } from "./narrowing.js";

export type DelegationProblem =
  | "malformed"
  | "forged"
  | "expired"
  | "widened"
  | "wrong-audience"
  | "not-declared"
  | "unspent"
  | "replayed"
  | "too-many";

export class DelegationRefused extends Error {
  readonly code: DelegationProblem;

  constructor(code: DelegationProblem, message: string) {
    super(message);
    this.name = "DelegationRefused";
    this.code = code;
  }
}

/** Whose authority it is. Times are milliseconds since 1970. */
export interface RootBlock {
  readonly kind: "root";
  readonly agent: string;
  readonly app: string;
  /** Id of the gateway that minted it. */
  readonly issuer: string;
  readonly id: string;
  readonly expires: number;
  /** Only these capabilities; all that the agent is offered when absent. */
  readonly tools?: readonly string[];
}

/** Handed on to another agent. */
export interface HopBlock {
  readonly kind: "hop";
  readonly to: string;
  readonly tools?: readonly string[];
  /** For these capabilities, only arguments that fit the schema. */
  readonly arguments?: Readonly<Record<string, JsonObject | boolean>>;
  readonly expires?: number;
}

/** Spent on one request. Nothing may follow. */
export interface UseBlock {
  readonly kind: "use";
  readonly nonce: string;
  /** Id of the gateway that it is for. */
  readonly audience: string;
  readonly issued: number;
  readonly expires: number;
  /** When given, the one call that it is for: its capability, and the content id of its arguments. */
  readonly tool?: string;
  readonly args?: string;
}

export type Block = RootBlock | HopBlock | UseBlock;

export const TOKEN_LIMITS = {
  maxTokenChars: 16_384,
  /** A root, 32 hops and the use. */
  maxBlocks: 34,
  maxTools: 1_024,
  maxName: 512,
  maxNonce: 64,
  maxDepth: 32,
} as const;

/** The fields of each kind, by their names on the wire. A block with any other field is refused: it could be a condition. */
const FIELDS = {
  root: ["root", "app", "iss", "id", "exp", "tools", "next"],
  hop: ["to", "tools", "arguments", "exp", "next"],
  use: ["use", "aud", "iat", "exp", "tool", "args"],
} as const;

export function encodeBlock(block: Block, next?: string): string {
  const more = next === undefined ? {} : { next };
  switch (block.kind) {
    case "root": {
      const { agent, app, issuer, id, expires, tools } = block;
      return JSON.stringify({ root: agent, app, iss: issuer, id, exp: expires, tools, ...more });
    }
    case "hop":
      return JSON.stringify({
        to: block.to,
        tools: block.tools,
        arguments: block.arguments,
        exp: block.expires,
        ...more,
      });
    case "use": {
      const { nonce, audience, issued, expires, tool, args } = block;
      return JSON.stringify({ use: nonce, aud: audience, iat: issued, exp: expires, tool, args });
    }
  }
}

/** Reads a block back, with the key that signs the one after it where there is one. */
export function decodeBlock(text: string): { block: Block; next: string | undefined } {
  let value: unknown;
  try {
    value = parseStrict(text, TOKEN_LIMITS.maxDepth);
  } catch {
    throw malformed("a block is not valid JSON");
  }
  if (!isJsonObject(value as JsonObject)) throw malformed("a block is not an object");
  const fields = value as JsonObject;
  const kind = "root" in fields ? "root" : "to" in fields ? "hop" : "use";
  const known: readonly string[] = FIELDS[kind];
  const strange = Object.keys(fields).find((name) => !known.includes(name));
  if (strange !== undefined) throw malformed(`a block has the field \`${strange}\`, which is not understood here`);
  const next = fields.next === undefined ? undefined : name(fields, "next");
  switch (kind) {
    case "root":
      return {
        next,
        block: {
          kind,
          agent: name(fields, "root"),
          app: name(fields, "app"),
          issuer: name(fields, "iss"),
          id: name(fields, "id"),
          expires: time(fields, "exp"),
          ...toolsOf(fields),
        },
      };
    case "hop":
      return {
        next,
        block: {
          kind,
          to: name(fields, "to"),
          ...toolsOf(fields),
          ...argumentsOf(fields),
          ...(fields.exp === undefined ? {} : { expires: time(fields, "exp") }),
        },
      };
    case "use":
      return {
        next,
        block: {
          kind,
          nonce: name(fields, "use", TOKEN_LIMITS.maxNonce),
          audience: name(fields, "aud"),
          issued: time(fields, "iat"),
          expires: time(fields, "exp"),
          ...(fields.tool === undefined ? {} : { tool: name(fields, "tool") }),
          ...(fields.args === undefined ? {} : { args: name(fields, "args") }),
        },
      };
  }
}

/** Reads a new block back as its reader will: what the reader would reject is rejected before the token is used. */
export function checkBlock(block: Block): void {
  try {
    decodeBlock(encodeBlock(block));
  } catch (error) {
    if (!(error instanceof DelegationRefused)) throw error;
    throw new DelegationRefused(error.code, error.message.replace(MALFORMED, "no delegation can be made of this: "));
  }
}

const MALFORMED = "the delegation token is malformed: ";

function malformed(reason: string): DelegationRefused {
  return new DelegationRefused("malformed", `${MALFORMED}${reason}`);
}

function name(fields: JsonObject, key: string, most: number = TOKEN_LIMITS.maxName): string {
  const value = fields[key];
  if (typeof value === "string" && value !== "" && value.length <= most) return value;
  throw malformed(`\`${key}\` must be text of 1 to ${most} characters`);
}

function time(fields: JsonObject, key: string): number {
  const value = fields[key];
  if (typeof value === "number" && Number.isSafeInteger(value) && value > 0) return value;
  throw malformed(`\`${key}\` must be a time in milliseconds`);
}

function toolsOf(fields: JsonObject): { tools?: readonly string[] } {
  const { tools } = fields;
  if (tools === undefined) return {};
  if (
    !Array.isArray(tools) ||
    tools.length > TOKEN_LIMITS.maxTools ||
    !tools.every((tool) => typeof tool === "string")
  ) {
    throw malformed(`\`tools\` must be a list of at most ${TOKEN_LIMITS.maxTools} names`);
  }
  return { tools: tools as string[] };
}

function argumentsOf(fields: JsonObject): { arguments?: Record<string, JsonObject | boolean> } {
  const { arguments: narrowed } = fields;
  if (narrowed === undefined) return {};
  if (!isJsonObject(narrowed)) throw malformed("`arguments` must map capabilities to schemas");
  for (const [capability, schema] of Object.entries(narrowed)) {
    const problem = problemInNarrowing(schema as JsonValue);
    if (problem !== undefined) throw malformed(`\`arguments\` of \`${capability.slice(0, 100)}\`: ${problem}`);
  }
  return { arguments: narrowed as Record<string, JsonObject | boolean> };
}
