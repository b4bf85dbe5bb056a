// Emergency stop: what an operator has halted, and the denial of a call that a halt covers. Where halts come from (the
// store, a file) is the composition root's business; here they are compared with calls.

import type { JsonObject } from "../mcp/index.js";
import { type CheckResult, deny, type PolicyInput } from "./types.js";

/** What is halted: calls that fit every field that is given; every call where none is. */
export interface HaltTarget {
  readonly app?: string | undefined;
  readonly agent?: string | undefined;
  readonly server?: string | undefined;
  /** Exact name, or a prefix ending in `*`. */
  readonly tool?: string | undefined;
}

export interface Halt {
  readonly target: HaltTarget;
  readonly by: string;
  readonly reason: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly source: "store" | "file";
}

const FIELDS = ["app", "agent", "server", "tool"] as const;
const EVERYTHING = "everything";
const MAX_VALUE_CHARS = 256;

/** The one text for a target: `everything`, or `app=blog tool=mail.*`. */
function haltName(target: HaltTarget): string {
  const parts = FIELDS.flatMap((field) => {
    const value = target[field];
    return value === undefined ? [] : [`${field}=${value.replaceAll(/[\s%]/g, encodeURIComponent)}`];
  });
  return parts.length === 0 ? EVERYTHING : parts.join(" ");
}

/** Undefined for a text that is not a target. */
function parseHaltName(text: string): HaltTarget | undefined {
  if (text === EVERYTHING) return {};
  const target: Record<string, string> = {};
  for (const part of text.split(/\s+/)) {
    const [, field = "", value = ""] = /^(app|agent|server|tool)=(.+)$/.exec(part) ?? [];
    if (field === "" || field in target || value.length > MAX_VALUE_CHARS * 3) return undefined;
    try {
      target[field] = decodeURIComponent(value);
    } catch {
      return undefined;
    }
  }
  return target;
}

/** The flags of `portcullis halt` and `resume` for a target. */
function flagsOf(target: HaltTarget): string {
  return FIELDS.flatMap((field) => (target[field] === undefined ? [] : [` --${field} ${target[field]}`])).join("");
}

/** `Halts` holds the halts in force in this process. */
export class Halts {
  static readonly FIELDS = FIELDS;
  static readonly nameOf = haltName;
  static readonly parse = parseHaltName;
  readonly #bySource = new Map<Halt["source"], readonly Halt[]>();
  readonly #unread: () => string | undefined;
  #all: readonly Halt[] = [];

  /** `unread`: why halts of the store may be missing; while there is a reason, calls are denied. */
  constructor(unread: () => string | undefined = () => undefined) {
    this.#unread = unread;
  }

  get all(): readonly Halt[] {
    return this.#all;
  }

  set(source: Halt["source"], halts: readonly Halt[]): void {
    this.#bySource.set(source, halts);
    this.#all = [...this.#bySource.values()].flat();
  }

  /** The denial of a call that is halted. Calls that the gateway answers by itself (lists, log levels) are not. */
  check(input: PolicyInput): CheckResult | undefined {
    if (input.target.builtin) return undefined;
    const unread = this.#unread();
    if (unread !== undefined) {
      return deny("Unavailable", "halt.unknown", `it is not known whether calls are halted: ${unread}`, {
        suggestions: ["Try again in a moment"],
      });
    }
    const halt = this.#all.find(({ target }) => covers(target, input));
    return halt && halted(halt);
  }
}

function covers(halt: HaltTarget, { principal, target }: PolicyInput): boolean {
  const { app, agent, server, tool } = halt;
  // The client of a request of a server is the agent that is asked.
  const [askedApp, asked] = target.serverRequest ? split(target.name) : [undefined, undefined];
  const agents = [principal.agent, principal.holder, asked, ...(principal.delegation?.agents ?? [])];
  return (
    (app === undefined || app === principal.app || app === askedApp) &&
    (agent === undefined || agents.includes(agent)) &&
    (server === undefined || server === target.server) &&
    (tool === undefined || fits(tool, target.name) || fits(tool, target.action))
  );
}

function split(agent: string): [string, string] {
  const at = agent.indexOf("/");
  return [agent.slice(0, at), agent.slice(at + 1)];
}

function fits(pattern: string, name: string): boolean {
  return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

function halted({ target, by, reason, at, source }: Halt): CheckResult {
  const since = new Date(at).toISOString();
  const why = reason === "" ? "" : `: ${reason}`;
  const remedy =
    source === "file"
      ? "An operator resumes it by removing the file HALT from the data directory"
      : `An operator resumes it with \`portcullis resume${flagsOf(target)}\``;
  const facts: JsonObject = { target: haltName(target), by, since };
  return deny("PolicyDeny", "halt", `halted by ${by} since ${since}${why}; it did not run`, {
    suggestions: [remedy, "Do not repeat the call before that"],
    extra: { halt: facts, retryable: false },
  });
}
