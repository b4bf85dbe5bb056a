// Compares what a server lists with what was accepted of it. A definition that has changed is not shown to callers
// until an operator, or a rule that an operator wrote before, accepts exactly that difference.

import {
  inSlices,
  isSliceOver,
  type JsonObject,
  type JsonValue,
  nextSlice,
  parsedBytes,
  valuesIn,
} from "../../mcp/index.js";
import type { Catalogue } from "../types.js";
import { type Definition, definitionsOf, type PinnedKind, pinKeyOf, shownOf, sortedText } from "./definition.js";
import { changesBetween, describeChanges, type PinChange, ruleFor, type StandingRule } from "./difference.js";

/** `first` trusts what is seen first; `always-ask` trusts nothing that an operator has not accepted. */
export type PinMode = "first" | "always-ask" | "off";

export interface PinId {
  readonly app: string;
  readonly server: string;
  readonly kind: PinnedKind;
  readonly name: string;
}

export interface StoredPin {
  readonly kind: string;
  readonly name: string;
  readonly hash: string;
  readonly definition: string;
  readonly status: "accepted" | "changed";
  readonly accepted?: { readonly hash: string; readonly definition: string };
}

export interface StoredPinState {
  readonly kind: string;
  readonly name: string;
  readonly hash: string;
  readonly status: "accepted" | "changed";
  readonly wasAccepted: boolean;
  readonly size: number;
}

interface Named {
  readonly kind: PinnedKind;
  readonly name: string;
}

/** What is needed of a store; `pins` of the storage module is one. */
export interface PinStore {
  list(
    app: string,
    server: string,
    page?: { readonly after?: string; readonly limit?: number },
  ): Promise<{ readonly items: readonly StoredPin[]; readonly next?: string | undefined }>;
  states(app: string, server: string): Promise<readonly StoredPinState[]>;
  record(
    app: string,
    server: string,
    offered: readonly (Named & { readonly hash: string; readonly definition: string })[],
    options: { readonly by: string; readonly trustsFirst: boolean; readonly remove?: readonly Named[] },
  ): Promise<readonly { readonly kind: string; readonly name: string; readonly reason: string }[]>;
  accept(id: PinId, hash: string, by: string): Promise<StoredPin | undefined>;
  acceptAll(
    app: string,
    server: string,
    pins: readonly (Named & { readonly hash: string; readonly by?: string })[],
    by: string,
  ): Promise<void>;
}

/** Definitions of one listing that are not shown, each with the reason. */
export interface HeldDefinitions {
  readonly app: string;
  readonly server: string;
  readonly definitions: readonly (Named & { readonly reason: string })[];
}

/** Bounds for one server of one application. What is over them is not shown, and is reported to the operator. */
export interface PinLimits {
  /** Pins that are kept, also of definitions that the server lists no more. */
  readonly maxPins: number;
  /** Characters of all definitions that are kept. */
  readonly maxPinSize: number;
  /** Characters of one definition. */
  readonly maxDefinitionSize: number;
  /** What the definitions cost in memory that are shown before the server has started. */
  readonly maxRememberedBytes: number;
}

export const DEFAULT_PIN_LIMITS: PinLimits = {
  maxPins: 20_000,
  maxPinSize: 64 * 1024 * 1024,
  maxDefinitionSize: 256 * 1024,
  maxRememberedBytes: 32 * 1024 * 1024,
};

export interface KeeperOptions {
  /** The rules an operator wrote for this server. */
  readonly rules?: (app: string, server: string) => readonly StandingRule[] | Promise<readonly StandingRule[]>;
  /** Definitions were not shown: they wait for an operator, or could not be pinned. Once for each listing. */
  readonly onHeld?: (held: HeldDefinitions) => void;
  readonly limits?: Partial<PinLimits>;
}

/** One definition that waits for an operator. */
export interface Difference {
  readonly kind: PinnedKind;
  readonly name: string;
  /** What an operator accepts: this and nothing else. */
  readonly hash: string;
  readonly isNew: boolean;
  readonly changes: readonly PinChange[];
  readonly text: string;
}

/** Stands for "nothing was accepted yet". No definition has this text. */
const NOTHING = "";
const FIRST_SEEN = "rule:first-seen";
const UNSEEN = "server";
const WAITS = "it is not what was accepted; an operator has to look at the difference";
const PINS_PER_PAGE = 200;
const MAX_PAGES = 1_000;

export class PinKeeper {
  readonly #store: PinStore;
  readonly #options: KeeperOptions;
  readonly #limits: PinLimits;

  constructor(store: PinStore, options: KeeperOptions = {}) {
    this.#store = store;
    this.#options = options;
    this.#limits = { ...DEFAULT_PIN_LIMITS, ...options.limits };
  }

  /** What of the offered definitions may be shown. Fails when the store does: then nothing new is shown. */
  async accept(app: string, server: string, mode: PinMode, offered: Catalogue): Promise<Catalogue> {
    const held = new Map<string, string>();
    const definitions = (await definitionsOf(offered)).filter((each) => {
      const { maxDefinitionSize } = this.#limits;
      if (each.size <= maxDefinitionSize) return true;
      held.set(
        pinKeyOf(each.kind, each.name),
        `it has ${each.size} characters; at most ${maxDefinitionSize} are allowed`,
      );
      return false;
    });
    const shown =
      mode === "off"
        ? new Set(definitions.map(({ kind, name }) => pinKeyOf(kind, name)))
        : await this.#compared(app, server, mode, definitions, held);
    this.#report(app, server, offered, held);
    return shownOf(offered, (kind, name) => shown.has(pinKeyOf(kind, name)));
  }

  /** What was accepted of a server that has not started yet; undefined when nothing was, or more than may be kept. */
  async remembered(app: string, server: string, mode: PinMode): Promise<Catalogue | undefined> {
    if (mode === "off") return undefined;
    const found: Record<PinnedKind, JsonValue[]> = { tool: [], prompt: [], template: [], instructions: [] };
    let isEmpty = true;
    let bytes = 0;
    for await (const pin of this.#pinned(app, server)) {
      if (pin.status !== "accepted") continue;
      isEmpty = false;
      // Pins of what the server lists no more stay, so they may be more than any listing was.
      bytes += parsedBytes(pin.definition.length, valuesIn(pin.definition));
      if (bytes > this.#limits.maxRememberedBytes) return undefined;
      found[pin.kind as PinnedKind].push(JSON.parse(pin.definition) as JsonValue);
      if (isSliceOver()) await nextSlice();
    }
    if (isEmpty) return undefined;
    const [instructions] = found.instructions;
    return {
      revision: "",
      serverInfo: undefined,
      capabilities: {},
      instructions: instructions as string | undefined,
      tools: found.tool as JsonObject[],
      prompts: found.prompt as JsonObject[],
      resourceTemplates: found.template as JsonObject[],
      resources: [],
    };
  }

  /** Everything of this server that waits for an operator. */
  async differences(app: string, server: string): Promise<Difference[]> {
    const found: Difference[] = [];
    for await (const pin of this.#pinned(app, server)) if (pin.status === "changed") found.push(differenceOf(pin));
    return found;
  }

  /** False when the definition has changed again: then there is another difference to accept. */
  async acceptDifference(id: PinId, hash: string, by: string): Promise<boolean> {
    return (await this.#store.accept(id, hash, by)) !== undefined;
  }

  async *#pinned(app: string, server: string): AsyncGenerator<StoredPin> {
    let after: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const place = after === undefined ? {} : { after };
      const { items, next } = await this.#store.list(app, server, { ...place, limit: PINS_PER_PAGE });
      yield* items;
      if (next === undefined) return;
      after = next;
      await nextSlice();
    }
    throw new Error(`server \`${server}\` has more pins than can be read`);
  }

  /** The keys of what is accepted. What is new or has changed is noted in one transaction. */
  async #compared(
    app: string,
    server: string,
    mode: PinMode,
    definitions: readonly Definition[],
    held: Map<string, string>,
  ): Promise<Set<string>> {
    const before = await this.#states(app, server);
    const other = definitions.filter(({ kind, name, hash }) => before.get(pinKeyOf(kind, name))?.hash !== hash);
    if (other.length > 0) await this.#record(app, server, mode, before, definitions, other, held);
    const pins = other.length > 0 ? await this.#states(app, server) : before;
    const shown = new Set<string>();
    const waiting = new Map<string, Definition>();
    for (const definition of definitions) {
      const key = pinKeyOf(definition.kind, definition.name);
      const pin = pins.get(key);
      if (pin?.hash !== definition.hash) continue;
      if (pin.status === "accepted") shown.add(key);
      else waiting.set(key, definition);
    }
    for (const key of await this.#allowedByRules(app, server, waiting)) {
      shown.add(key);
      waiting.delete(key);
    }
    for (const { kind, name } of definitions) {
      const key = pinKeyOf(kind, name);
      if (!shown.has(key) && !held.has(key)) held.set(key, WAITS);
    }
    return shown;
  }

  async #states(app: string, server: string): Promise<Map<string, StoredPinState>> {
    const states = new Map<string, StoredPinState>();
    await inSlices(await this.#store.states(app, server), (pin) => states.set(pinKeyOf(pin.kind, pin.name), pin));
    return states;
  }

  async #record(
    app: string,
    server: string,
    mode: PinMode,
    before: ReadonlyMap<string, StoredPinState>,
    definitions: readonly Definition[],
    other: readonly Definition[],
    held: Map<string, string>,
  ): Promise<void> {
    const { maxPins, maxPinSize } = this.#limits;
    const isNew = ({ kind, name }: Definition): boolean => !before.has(pinKeyOf(kind, name));
    let count = before.size;
    let size = 0;
    for (const pin of before.values()) size += pin.size;
    // Only what was never accepted may be forgotten: a server must not get back in by way of a forgotten pin.
    const remove: StoredPinState[] = [];
    if (count + other.filter(isNew).length > maxPins) {
      const offered = new Set(definitions.map(({ kind, name }) => pinKeyOf(kind, name)));
      for (const pin of before.values())
        if (!pin.wasAccepted && !offered.has(pinKeyOf(pin.kind, pin.name))) remove.push(pin);
      count -= remove.length;
      for (const pin of remove) size -= pin.size;
    }
    const noted: (Named & { hash: string; definition: string })[] = [];
    await inSlices(other, (definition) => {
      const { kind, name, hash, value } = definition;
      const surplus = isNew(definition) && count >= maxPins ? `${maxPins} definitions` : undefined;
      const over = size + definition.size > maxPinSize ? `${maxPinSize} characters of definitions` : surplus;
      if (over !== undefined) {
        held.set(pinKeyOf(kind, name), `${over} are kept for this server already; see \`portcullis pin clear\``);
        return;
      }
      if (isNew(definition)) count++;
      size += definition.size;
      noted.push({ kind, name, hash, definition: sortedText(value) });
    });
    const trustsFirst = mode === "first";
    const refused = await this.#store.record(app, server, noted, {
      by: trustsFirst ? FIRST_SEEN : UNSEEN,
      trustsFirst,
      remove: remove as Named[],
    });
    // What cannot be pinned cannot be compared with anything.
    for (const { kind, name, reason } of refused) held.set(pinKeyOf(kind, name), reason);
  }

  async #allowedByRules(app: string, server: string, waiting: ReadonlyMap<string, Definition>): Promise<string[]> {
    const rules = waiting.size === 0 ? [] : ((await this.#options.rules?.(app, server)) ?? []);
    if (rules.length === 0) return [];
    const allowed: (Named & { hash: string; by: string })[] = [];
    for await (const pin of this.#pinned(app, server)) {
      const definition = waiting.get(pinKeyOf(pin.kind, pin.name));
      if (definition === undefined || pin.status !== "changed" || pin.hash !== definition.hash) continue;
      const { kind, name, hash } = definition;
      const rule = ruleFor(rules, kind, name, differenceOf(pin).changes);
      if (rule !== undefined) allowed.push({ kind, name, hash, by: `rule:${rule.name}` });
      if (isSliceOver()) await nextSlice();
    }
    if (allowed.length > 0) await this.#store.acceptAll(app, server, allowed, "rule");
    return allowed.map(({ kind, name }) => pinKeyOf(kind, name));
  }

  /** In the order of the listing. */
  #report(app: string, server: string, offered: Catalogue, held: ReadonlyMap<string, string>): void {
    if (held.size === 0) return;
    const definitions: (Named & { reason: string })[] = [];
    const add = (kind: PinnedKind, name: string): void => {
      const reason = held.get(pinKeyOf(kind, name));
      if (reason !== undefined) definitions.push({ kind, name, reason });
    };
    for (const tool of offered.tools) add("tool", String(tool.name));
    for (const prompt of offered.prompts) add("prompt", String(prompt.name));
    for (const template of offered.resourceTemplates) add("template", String(template.uriTemplate));
    add("instructions", "instructions");
    this.#options.onHeld?.({ app, server, definitions });
  }
}

function differenceOf(pin: StoredPin): Difference {
  const accepted = pin.accepted?.definition ?? NOTHING;
  const before = accepted === NOTHING ? undefined : (JSON.parse(accepted) as JsonValue);
  const changes = changesBetween(before, JSON.parse(pin.definition) as JsonValue);
  return {
    kind: pin.kind as PinnedKind,
    name: pin.name,
    hash: pin.hash,
    isNew: before === undefined,
    changes,
    text: describeChanges(changes),
  };
}
