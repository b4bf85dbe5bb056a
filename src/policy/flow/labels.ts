// The labels of information flow: what a result carries and what a call does, as an operator wrote it. What has no label
// counts as untrusted content that is sent outside, so that a forgotten tool asks for approval instead of passing.

import type { CallTarget } from "../types.js";

/** `untrusted`, `trusted`, or `private(NAME)`. */
export type ContentLabel = string;
export type FlowEffect = "sends-outside" | "changes-state";

export interface FlowLabel {
  /** What a result carries. `private(NAME)` without `trusted` is untrusted content as well. */
  readonly carries?: readonly ContentLabel[] | undefined;
  /** What a call does; an empty list is a call that only reads. */
  readonly does?: readonly FlowEffect[] | undefined;
  /** Arguments that say where something goes or what is changed. Every argument, where neither list is given. */
  readonly destination?: readonly string[] | undefined;
  /** Arguments that are sent or written. */
  readonly payload?: readonly string[] | undefined;
}

export interface FlowLabels {
  /** Who approves what the shipped rules ask for; `operators` unless given. */
  readonly approvers?: readonly string[] | undefined;
  /** `none` leaves the shipped rules out, for operators who write their own. */
  readonly rules?: "shipped" | "none" | undefined;
  /** For what no other entry names. */
  readonly default?: FlowLabel | undefined;
  /** By name of the server. */
  readonly servers?: Readonly<Record<string, FlowLabel>> | undefined;
  /** By tool name, or a prefix ending in `*`; the longest match counts. */
  readonly tools?: Readonly<Record<string, FlowLabel>> | undefined;
  /** By URI, or a prefix ending in `*`. */
  readonly resources?: Readonly<Record<string, FlowLabel>> | undefined;
}

/** A label with nothing left open. */
export interface ResolvedLabel {
  readonly isTrusted: boolean;
  /** Names of the private data that it carries. */
  readonly secrets: readonly string[];
  readonly does: readonly FlowEffect[];
  /** `undefined`: every argument. */
  readonly destination: ReadonlySet<string> | undefined;
  readonly payload: ReadonlySet<string>;
}

const UNLABELLED: FlowLabel = {
  carries: ["untrusted"],
  does: ["sends-outside", "changes-state"],
};
const MAX_RESOLVED = 10_000;

/** `LabelTable` finds the label of a call's target. */
export class LabelTable {
  readonly document: FlowLabels;
  /** Every label of private data in the document. */
  readonly secrets: readonly string[];
  readonly #resolved = new Map<string, ResolvedLabel>();

  constructor(document: FlowLabels) {
    this.document = document;
    const all = [document.default, ...entriesOf(document)].flatMap((each) => each?.carries ?? []);
    this.secrets = [...new Set(all.filter(isSecret))].sort();
  }

  of({ type, name, server, readOnly }: Pick<CallTarget, "type" | "name" | "server" | "readOnly">): ResolvedLabel {
    const key = `${type} ${server} ${readOnly} ${name}`;
    let found = this.#resolved.get(key);
    if (!found) {
      if (this.#resolved.size >= MAX_RESOLVED) this.#resolved.clear();
      found = this.#resolve(type, name, server, readOnly);
      this.#resolved.set(key, found);
    }
    return found;
  }

  #resolve(type: CallTarget["type"], name: string, server: string, readOnly: boolean): ResolvedLabel {
    const { tools, resources, servers, default: byDefault } = this.document;
    const own = longestMatch((type === "Tool" ? tools : resources) ?? {}, name);
    const layers = [own, ownEntry(servers, server), byDefault, UNLABELLED];
    const carries = layers.find((layer) => layer?.carries)?.carries ?? [];
    // A resource or a prompt is read. A tool that an operator declared as reading changes nothing unless a label says so.
    const reads = type !== "Tool" || (readOnly && own?.does === undefined);
    const does = reads ? [] : (layers.find((layer) => layer?.does)?.does ?? []);
    const parts = layers.find((layer) => layer?.destination ?? layer?.payload);
    return {
      isTrusted: carries.includes("trusted") && !carries.includes("untrusted"),
      secrets: carries.filter(isSecret),
      does,
      destination: parts ? new Set(parts.destination ?? []) : undefined,
      payload: new Set(parts?.payload ?? []),
    };
  }
}

function isSecret(content: ContentLabel): boolean {
  return content.startsWith("private(");
}

function entriesOf({ servers, tools, resources }: FlowLabels): FlowLabel[] {
  return [servers, tools, resources].flatMap((each) => Object.values(each ?? {}));
}

function ownEntry<T>(entries: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return entries && Object.hasOwn(entries, name) ? entries[name] : undefined;
}

function longestMatch<T>(entries: Readonly<Record<string, T>>, name: string): T | undefined {
  const exact = ownEntry(entries, name);
  if (exact !== undefined) return exact;
  let best: string | undefined;
  for (const pattern of Object.keys(entries)) {
    if (!pattern.endsWith("*") || !name.startsWith(pattern.slice(0, -1))) continue;
    if (best === undefined || pattern.length > best.length) best = pattern;
  }
  return best === undefined ? undefined : entries[best];
}
