// Holds servers to what they said when they were accepted. A definition that has changed is not shown to anybody
// until an operator, or a rule that an operator wrote before, accepts exactly that difference.

import type { JsonObject, JsonValue } from "../../protocol/index.js";
import type { Catalogue } from "../types.js";
import { type Definition, definitionsOf, hashOf, INSTRUCTIONS, type PinnedKind, shownOf } from "./definition.js";
import { type Change, changesBetween, describeChanges } from "./difference.js";
import { ruleFor, type StandingRule } from "./rules.js";

/** `first` trusts what is seen first; `always-ask` trusts nothing that nobody has looked at. */
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

/** What is needed of a store; the storage room's `pins` is one. */
export interface PinStore {
  list(
    app: string,
    server: string,
    page?: { readonly after?: string },
  ): Promise<{ readonly items: readonly StoredPin[]; readonly next?: string | undefined }>;
  first(id: PinId, hash: string, definition: string, by: string): Promise<StoredPin>;
  changed(id: PinId, hash: string, definition: string): Promise<StoredPin | undefined>;
  accept(id: PinId, hash: string, by: string): Promise<StoredPin | undefined>;
}

export interface KeeperOptions {
  /** The rules an operator wrote for this server. */
  readonly rules?: (app: string, server: string) => readonly StandingRule[] | Promise<readonly StandingRule[]>;
  /** A definition was held back, or could not be pinned and is held back for that. */
  readonly onHeld?: (held: PinId & { readonly reason: string }) => void;
}

/** One definition that waits for an operator. */
export interface Difference {
  readonly kind: PinnedKind;
  readonly name: string;
  /** What is accepted when somebody says yes: this and nothing else. */
  readonly hash: string;
  readonly isNew: boolean;
  readonly changes: readonly Change[];
  readonly text: string;
}

/** Stands for "nothing was accepted yet". No definition has this text. */
const NOTHING = "";
const NOTHING_HASH = hashOf(NOTHING);
const FIRST_SEEN = "rule:first-seen";
const UNSEEN = "server";
const AT_ONCE = 16;
const MAX_PAGES = 1_000;

export class PinKeeper {
  readonly #store: PinStore;
  readonly #options: KeeperOptions;

  constructor(store: PinStore, options: KeeperOptions = {}) {
    this.#store = store;
    this.#options = options;
  }

  /** What of the offered definitions may be shown. */
  async accept(app: string, server: string, mode: PinMode, offered: Catalogue): Promise<Catalogue> {
    if (mode === "off") return offered;
    const pins = await this.#pinned(app, server);
    const definitions = definitionsOf(offered);
    const shown = new Set<string>();
    for (let at = 0; at < definitions.length; at += AT_ONCE) {
      const some = definitions.slice(at, at + AT_ONCE);
      const verdicts = await Promise.all(some.map((each) => this.#judge(app, server, mode, each, pins)));
      for (const [index, each] of some.entries()) if (verdicts[index]) shown.add(keyOf(each));
    }
    return shownOf(offered, (kind, name) => shown.has(keyOf({ kind, name })));
  }

  /** What was accepted of a server that has not started yet; undefined when nothing was. */
  async remembered(app: string, server: string, mode: PinMode): Promise<Catalogue | undefined> {
    if (mode === "off") return undefined;
    const pins = [...(await this.#pinned(app, server)).values()].filter((pin) => pin.status === "accepted");
    if (pins.length === 0) return undefined;
    const of = (kind: PinnedKind): JsonObject[] =>
      pins.filter((pin) => pin.kind === kind).map((pin) => JSON.parse(pin.definition) as JsonObject);
    const instructions = pins.find((pin) => pin.kind === "instructions");
    return {
      revision: "",
      serverInfo: undefined,
      capabilities: {},
      instructions: instructions === undefined ? undefined : (JSON.parse(instructions.definition) as string),
      tools: of("tool"),
      prompts: of("prompt"),
      resourceTemplates: of("template"),
      resources: [],
    };
  }

  /** Everything of this server that waits for an operator. */
  async differences(app: string, server: string): Promise<Difference[]> {
    const pins = await this.#pinned(app, server);
    return [...pins.values()].filter((pin) => pin.status === "changed").map(differenceOf);
  }

  /** False when the server has said something else again: then there is another difference to look at. */
  async acceptDifference(id: PinId, hash: string, by: string): Promise<boolean> {
    return (await this.#store.accept(id, hash, by)) !== undefined;
  }

  async #pinned(app: string, server: string): Promise<Map<string, StoredPin>> {
    const pins = new Map<string, StoredPin>();
    let after: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const { items, next } = await this.#store.list(app, server, after === undefined ? {} : { after });
      for (const pin of items) pins.set(keyOf(pin), pin);
      if (next === undefined) return pins;
      after = next;
    }
    throw new Error(`server \`${server}\` has more pins than can be read`);
  }

  async #judge(
    app: string,
    server: string,
    mode: PinMode,
    definition: Definition,
    pins: ReadonlyMap<string, StoredPin>,
  ): Promise<boolean> {
    const id: PinId = { app, server, kind: definition.kind, name: definition.name };
    try {
      const pin = pins.get(keyOf(definition)) ?? (await this.#firstSeen(id, mode, definition));
      const now = pin.hash === definition.hash ? pin : await this.#store.changed(id, definition.hash, definition.text);
      if (now?.status === "accepted" && now.hash === definition.hash) return true;
      if (now !== undefined && (await this.#allowedByRule(id, definition, now))) return true;
      this.#options.onHeld?.({
        ...id,
        reason: "it is not what was accepted; an operator has to look at the difference",
      });
    } catch (error) {
      // What cannot be pinned cannot be held to anything.
      this.#options.onHeld?.({ ...id, reason: (error as Error).message });
    }
    return false;
  }

  /** A pin on nothing makes the real definition a difference from nothing, which waits like any other. */
  #firstSeen(id: PinId, mode: PinMode, { hash, text }: Definition): Promise<StoredPin> {
    return mode === "first"
      ? this.#store.first(id, hash, text, FIRST_SEEN)
      : this.#store.first(id, NOTHING_HASH, NOTHING, UNSEEN);
  }

  async #allowedByRule(id: PinId, definition: Definition, pin: StoredPin): Promise<boolean> {
    const rules = (await this.#options.rules?.(id.app, id.server)) ?? [];
    if (rules.length === 0 || pin.hash !== definition.hash) return false;
    const rule = ruleFor(rules, id.kind, id.name, differenceOf(pin).changes);
    if (rule === undefined) return false;
    return (await this.#store.accept(id, definition.hash, `rule:${rule.name}`)) !== undefined;
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

function keyOf({ kind, name }: { readonly kind: string; readonly name: string }): string {
  return kind === "instructions" ? INSTRUCTIONS : `${kind} ${name}`;
}
