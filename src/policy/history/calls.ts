// The history of one application's calls: what rules over past events are evaluated on. Events are kept in memory as the
// rows that the rules need, and are read from the ledger again when the process starts or the rules change.
// INVARIANT: a rule that is about past calls permits nothing while the past is not known.

import type { JsonObject, JsonValue } from "../../mcp/index.js";
import type { PolicySet } from "../cedar/types.js";
import { type CheckResult, deny, type PolicyInput } from "../types.js";
import { bodiesOf, type EventAtom, eventsIn, formulaText, type PastFormula } from "./formula.js";
import { type HistoryEvent, Monitor, windowMsOf } from "./monitor.js";
import type { EventName } from "./rules.js";
import { ABSENT, entityKey, jsonKey, stringKey } from "./value-key.js";

/** A call as history needs it: who, what, and those values that rules compare. */
export interface CallFacts {
  readonly action: string;
  readonly agent: string;
  /** Keys of values by the path of their field. */
  readonly fields: Readonly<Record<string, string>>;
}

/** An event that is on record, or will be. */
export interface CallEvent {
  readonly call: CallFacts;
  readonly event: EventName;
  readonly outcome?: string;
  readonly at: number;
  /** The number of the record. */
  readonly ref: number;
  /** Of the call, so that nothing counts twice. */
  readonly id: string;
}

/** Reads the recorded events of an application, oldest first. */
export type ReadHistory = (wanted: HistoryWanted) => AsyncIterable<CallEvent>;

export interface HistoryWanted {
  /** In milliseconds since 1970: older events change nothing. */
  readonly since: number;
  /** Names of the fields that rules compare, by action. */
  readonly fields: ReadonlyMap<string, readonly string[]>;
  /** Every request is an event; another kind is one where a rule names it for that action. */
  isEvent(action: string, event: EventName): boolean;
}

export function wantedOf(conditions: readonly PastFormula[], now?: number): HistoryWanted {
  const events = conditions.flatMap(eventsIn);
  const named = new Set(events.map(({ action, event }) => `${event} ${action}`));
  return {
    since: now === undefined ? 0 : now - Math.max(0, ...conditions.map(reachOf)),
    fields: pathsOf(events),
    isEvent: (action, event) => event === "request" || named.has(`${event} ${action}`),
  };
}

export interface HistoryOptions {
  /** Absent where no ledger is kept: history then begins with the process. */
  readonly read?: ReadHistory;
  /** Set where other processes decide calls of the same application: none of them knows the whole history. */
  readonly isShared?: boolean;
  readonly maxRows?: number;
  readonly now?: () => number;
  readonly onProblem?: (problem: string) => void;
}

interface DecidedHow {
  readonly effect: "permit" | "challenge" | "deny";
  readonly permit: unknown;
  readonly redeemed?: unknown;
}

export class CallHistory {
  readonly #options: HistoryOptions;
  #known = "";
  #monitor: Monitor | undefined;
  #conditions: readonly PastFormula[] = [];
  #wanted = wantedOf([]);
  /** Why the past is not known; undefined when it is. */
  #problem: string | undefined;
  #reading: Promise<void> | undefined;
  #generation = 0;
  /** What happened while the ledger is read. */
  #waiting: CallEvent[] = [];
  /** Calls whose decision is not on record yet: a ledger that is read now does not have them. */
  readonly #unrecorded = new Set<HistoryCall>();
  #turn: Promise<unknown> | undefined;
  #deferred: CallEvent[] = [];
  #latest = 0;

  constructor(options: HistoryOptions = {}) {
    this.#options = options;
  }

  /** The rules in force. History of other conditions is read again; the same conditions keep theirs. */
  use({ conditions }: Pick<PolicySet, "conditions">): void {
    const known = conditions.map(formulaText).join("\n");
    if (known === this.#known && this.#problem === undefined) return;
    this.#known = known;
    this.#generation++;
    this.#problem = undefined;
    this.#reading = undefined;
    this.#monitor = conditions.length === 0 ? undefined : new Monitor(conditions, this.#options.maxRows);
    this.#conditions = conditions;
    this.#wanted = wantedOf(conditions);
    if (this.#monitor && this.#options.read && !this.#options.isShared) this.#readAgain();
  }

  /** Resolves when the past is known, or cannot be. */
  async ready(): Promise<void> {
    await this.#reading;
  }

  /** Whether the call is an event of a rule, or may be decided by one. */
  concerns({ target }: PolicyInput): boolean {
    return this.#monitor !== undefined && !target.builtin && !target.serverRequest;
  }

  /** Calls are decided one after the other, so that each is decided with all that were decided before it. */
  inTurn<T>(decide: () => T | Promise<T>): T | Promise<T> {
    const before = this.#turn;
    if (before === undefined) {
      const made = decide();
      return made instanceof Promise ? this.#hold(made) : made;
    }
    return this.#hold(before.then(decide));
  }

  #hold<T>(made: Promise<T>): Promise<T> {
    const held = made.finally(() => {
      if (this.#turn !== settled) return;
      this.#turn = undefined;
      for (const event of this.#deferred.splice(0)) this.#observe(event);
    });
    const settled: Promise<unknown> = held.catch(() => {});
    this.#turn = settled;
    return held;
  }

  /** Enters a call that is about to be decided. */
  begin(input: PolicyInput): HistoryCall {
    const { principal, target } = input;
    const { action } = target;
    const isEvent = this.#wanted.fields.has(action);
    const fields = fieldsOf(input, this.#wanted);
    const call: CallFacts = { action, agent: `${principal.app}/${principal.agent}`, fields };
    const wantsOutcome = this.#wanted.isEvent(action, "response") || this.#wanted.isEvent(action, "error");
    const entered = new HistoryCall(this, input, call, isEvent, wantsOutcome);
    if (isEvent && this.#options.isShared) return entered;
    entered.enter();
    return entered;
  }

  /** The denial of a call that history has to know of and cannot. */
  refusal(input: PolicyInput): CheckResult | undefined {
    if (!this.#options.isShared || !this.#wanted.fields.has(input.target.action)) return undefined;
    return deny("PolicyDeny", "history", SHARED, {
      suggestions: ["Serve the application from one process, or remove the rules over past calls"],
    });
  }

  /** Whether condition `condition` holds for the call that was entered last. Throws where the past is not known. */
  holds(condition: number, current: (path: string) => string): boolean {
    const monitor = this.#monitor;
    const problem = this.#options.isShared
      ? SHARED
      : this.#reading
        ? "past calls are being read; try again"
        : this.#problem;
    if (monitor === undefined || problem !== undefined) throw new Error(problem ?? "history has no such condition");
    return monitor.holds(condition, current);
  }

  /** @internal */
  note(entered: HistoryCall, event: EventName, outcome?: string, later = false): void {
    const { call, id } = entered;
    if (!this.#wanted.isEvent(call.action, event)) return;
    const at = Math.max(this.#latest, (this.#options.now ?? Date.now)());
    const noted: CallEvent = { call, event, at, ref: 0, id, ...(outcome === undefined ? {} : { outcome }) };
    entered.events.push(noted);
    if (later && this.#turn) this.#deferred.push(noted);
    else this.#observe(noted);
  }

  #observe(event: CallEvent): void {
    if (this.#reading) {
      this.#waiting.push(event);
      return;
    }
    this.#apply(event);
  }

  #apply(event: CallEvent): void {
    const monitor = this.#monitor;
    if (monitor === undefined || this.#problem !== undefined) return;
    this.#latest = Math.max(this.#latest, event.at);
    try {
      monitor.observe(historyEvent(event, this.#latest));
    } catch (error) {
      this.#fail((error as Error).message);
    }
  }

  /** @internal */
  unrecorded(call: HistoryCall, isIt: boolean): void {
    if (isIt) this.#unrecorded.add(call);
    else this.#unrecorded.delete(call);
  }

  /** @internal What was decided did not happen: only the ledger knows what did. */
  recordFailed(): void {
    if (this.#options.read && !this.#options.isShared) this.#readAgain();
  }

  #fail(problem: string): void {
    this.#problem = `history is not available: ${problem}`;
    this.#options.onProblem?.(this.#problem);
  }

  #readAgain(): void {
    const generation = ++this.#generation;
    this.#waiting = [];
    const reading = this.#read(generation).catch((error: unknown) => {
      if (generation === this.#generation) this.#fail((error as Error).message);
    });
    this.#reading = reading.then(() => {
      if (generation === this.#generation) this.#reading = undefined;
    });
  }

  async #read(generation: number): Promise<void> {
    const { read, now = Date.now } = this.#options;
    const open = [...this.#unrecorded];
    const seen = new Set<string>();
    const wanted = wantedOf(this.#conditions, now());
    for await (const event of read?.(wanted) ?? []) {
      if (generation !== this.#generation) return;
      seen.add(event.id);
      this.#apply(event);
    }
    if (generation !== this.#generation) return;
    const since = new Set(this.#waiting);
    const missed = open.flatMap(({ id, events }) => (seen.has(id) ? [] : events.filter((event) => !since.has(event))));
    // INVARIANT: no event comes between this and the end of reading, for nothing is awaited any more.
    for (const event of [...missed, ...this.#waiting.splice(0)]) {
      if (event.event === "response" || event.event === "error" || !seen.has(event.id)) this.#apply(event);
    }
    this.#reading = undefined;
  }
}

const SHARED = "rules over past calls need one process: history is not shared between replicas and workers";

/** A call while it is decided and runs. */
export class HistoryCall {
  id = "";
  readonly call: CallFacts;
  /** What of it was told to the monitor. */
  readonly events: CallEvent[] = [];
  readonly #history: CallHistory;
  readonly #input: PolicyInput;
  readonly #currents = new Map<string, string>();
  readonly #isEvent: boolean;
  readonly #wantsOutcome: boolean;
  readonly #held = new Map<number, boolean>();

  constructor(history: CallHistory, input: PolicyInput, call: CallFacts, isEvent: boolean, wantsOutcome: boolean) {
    this.#history = history;
    this.#input = input;
    this.call = call;
    this.#isEvent = isEvent;
    this.#wantsOutcome = wantsOutcome;
  }

  enter(): void {
    if (this.#isEvent) this.#history.unrecorded(this, true);
    this.#history.note(this, "request");
  }

  /** Each condition has one answer for one call, however often it is decided. */
  holds(condition: number): boolean {
    let held = this.#held.get(condition);
    if (held === undefined) {
      held = this.#history.holds(condition, this.#current);
      this.#held.set(condition, held);
    }
    return held;
  }

  readonly #current = (path: string): string => {
    let key = this.#currents.get(path);
    if (key === undefined) {
      key = currentOf(this.#input, path);
      this.#currents.set(path, key);
    }
    return key;
  };

  decided({ effect, permit, redeemed }: DecidedHow): void {
    if (!this.#isEvent) return;
    if (permit && redeemed) this.#history.note(this, "approved");
    this.#history.note(this, permit ? "permitted" : effect === "challenge" ? "asked" : "denied");
  }

  /** What the decision's record says of it; undefined when no rule is about such calls. */
  get recorded(): JsonObject | undefined {
    return this.#isEvent ? { ...this.call.fields } : undefined;
  }

  /** True when a rule is about how such calls end: that has to be on record before the caller has the answer. */
  get isOutcomeRecorded(): boolean {
    return this.#wantsOutcome;
  }

  /** The permit was not used after all. */
  withdraw(): void {
    this.#history.unrecorded(this, false);
    this.#history.recordFailed();
  }

  /** The decision is on its way to the ledger; it counts as recorded when that resolves. */
  recording(id: string, written: Promise<unknown> | undefined): void {
    this.id = id;
    const done = (): void => this.#history.unrecorded(this, false);
    if (written === undefined) done();
    else
      written.then(done, () => {
        done();
        this.#history.recordFailed();
      });
  }

  ended(outcome: string): void {
    if (this.#wantsOutcome) this.#history.note(this, outcome === "ok" ? "response" : "error", outcome, true);
  }
}

/** As monitors see it. */
export function historyEvent({ call, event, outcome, ref }: CallEvent, at: number): HistoryEvent {
  const { action, agent, fields } = call;
  const field = (path: string): string => {
    if (path === "principal") return entityKey("Agent", agent);
    if (path === "agent") return stringKey(agent.slice(agent.indexOf("/") + 1));
    if (path === "outcome") return outcome === undefined ? ABSENT : stringKey(outcome);
    return fields[path] ?? ABSENT;
  };
  return { type: "Action", action, event, at, ref, field };
}

/** The values of a call that rules compare. */
export function fieldsOf(input: PolicyInput, { fields: paths }: HistoryWanted): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const path of paths.get(input.target.action) ?? []) {
    const key = fieldOf(input, path);
    if (key !== ABSENT) fields[path] = key;
  }
  return fields;
}

/** The value of an event's field, as the call gives it. */
function fieldOf(input: PolicyInput, path: string): string {
  const [root = "", ...rest] = path.split(".");
  switch (root) {
    case "arguments":
      return jsonKey(atPath(input.arguments as JsonObject, rest));
    case "user":
      return textKey(input.principal.user);
    case "session":
      return textKey(input.session);
    case "transport":
      return textKey(input.transport);
    case "server":
      return textKey(input.target.server);
    default:
      return ABSENT;
  }
}

export function currentOf(input: PolicyInput, path: string): string {
  const { principal, target } = input;
  if (path.startsWith("context.")) return fieldOf(input, path.slice("context.".length));
  switch (path) {
    case "principal":
      return entityKey("Agent", `${principal.app}/${principal.agent}`);
    case "principal.agent":
      return stringKey(principal.agent);
    case "principal.app":
      return stringKey(principal.app);
    case "principal.user":
      return textKey(principal.user);
    case "resource":
      return entityKey(target.type, target.name);
    case "resource.name":
      return stringKey(target.name);
    case "resource.server":
      return stringKey(target.server);
    default:
      return ABSENT;
  }
}

function textKey(text: string | undefined): string {
  return text === undefined ? ABSENT : stringKey(text);
}

/** The key of an argument in a record that kept the arguments. */
export function recordedField(args: JsonObject, path: string): string | undefined {
  const [root, ...rest] = path.split(".");
  const key = root === "arguments" ? jsonKey(atPath(args, rest)) : ABSENT;
  return key === ABSENT ? undefined : key;
}

function atPath(args: JsonObject, path: readonly string[]): JsonValue | undefined {
  let value: JsonValue | undefined = args;
  for (const name of path) {
    const isRecord: boolean =
      typeof value === "object" && value !== null && !Array.isArray(value) && Object.hasOwn(value, name);
    value = isRecord ? (value as JsonObject)[name] : undefined;
  }
  return value;
}

/** What each event has by itself, without being recorded for rules. */
const OWN_FIELDS = new Set(["principal", "agent", "outcome"]);

function pathsOf(events: readonly EventAtom[]): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, Set<string>>();
  for (const { action, fields } of events) {
    const paths = found.get(action) ?? new Set();
    for (const { path } of fields) if (!OWN_FIELDS.has(path)) paths.add(path);
    found.set(action, paths);
  }
  return new Map([...found].map(([action, paths]) => [action, [...paths]]));
}

/** How far into the past a condition reaches: windows within windows add up. */
function reachOf(formula: PastFormula): number {
  switch (formula.kind) {
    case "formerly":
    case "previous":
      return windowMsOf(formula) + reachOf(formula.body);
    case "since":
      return windowMsOf(formula) + Math.max(reachOf(formula.left), reachOf(formula.right));
    case "and":
      return Math.max(reachOf(formula.left), reachOf(formula.right));
    case "not":
    case "exists":
      return reachOf(formula.body);
    case "compare":
      return Math.max(0, ...bodiesOf(formula).map(reachOf));
    default:
      return 0;
  }
}
