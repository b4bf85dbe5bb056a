// Conditions over past events, evaluated while the events come: what is under `formerly`, `previous` and `since` is kept as
// rows, updated by the events that can change it and looked up by what the current call gives. No event is read twice.

import {
  type Aggregate,
  aggregatesIn,
  bodiesOf,
  conjuncts,
  currentPathsIn,
  FormulaError,
  type PastFormula,
  type Term,
} from "./formula.js";
import { hoistFilters } from "./hoist.js";
import { type PastRow, Relation, type RowBudget, rowKey, type SavedRow } from "./relation.js";
import { ABSENT, clamp, integerOf, setKey } from "./value-key.js";

/** One thing that happened: a call was asked for, permitted, denied, answered. */
export interface HistoryEvent {
  readonly type: string;
  readonly action: string;
  readonly event: string;
  /** In milliseconds; an event is never older than the one before. */
  readonly at: number;
  /** Where it is on record. */
  readonly ref: number;
  /** The key of a field's value, or ABSENT. */
  field(path: string): string;
}

export function eventKey(type: string, action: string, event: string): string {
  return `${event} ${type} ${action}`;
}

const DEFAULT_MAX_ROWS = 2_000_000;

/** The state of one run of events over a set of conditions. */
export class Monitor {
  readonly #leaves: readonly CompiledLeaf[];
  readonly #states: State[] = [];
  readonly #always: readonly State[];
  readonly #byEvent = new Map<string, readonly State[]>();
  readonly #budget: RowBudget;
  readonly #run: Run = { event: undefined, point: -1, now: 0, env: [], used: undefined };

  /** Throws FormulaError for a condition that cannot be kept within bounds. */
  constructor(formulas: readonly PastFormula[], maxRows = DEFAULT_MAX_ROWS) {
    this.#budget = { rows: 0, max: maxRows };
    this.#leaves = formulas.map((formula) => new Compiler(this.#states, this.#budget).leaf(formula));
    this.#always = this.#states.filter((state) => state.triggers === undefined);
    for (const key of new Set(this.#states.flatMap((state) => [...(state.triggers ?? [])]))) {
      this.#byEvent.set(
        key,
        this.#states.filter((state) => state.triggers === undefined || state.triggers.has(key)),
      );
    }
  }

  get rows(): number {
    return this.#budget.rows;
  }

  observe(event: HistoryEvent): void {
    const run = this.#run;
    run.event = event;
    run.point++;
    run.now = event.at;
    run.used = undefined;
    for (const state of this.#byEvent.get(eventKey(event.type, event.action, event.event)) ?? this.#always) {
      run.env = state.env;
      state.update(run);
    }
  }

  /** Whether condition number `leaf` holds at the latest event; `used` collects the records that made it true. */
  holds(leaf: number, current: (path: string) => string, used?: Set<number>): boolean {
    const compiled = this.#leaves[leaf];
    if (!compiled) throw new Error(`there is no condition ${leaf}`);
    const run = this.#run;
    run.env = compiled.env;
    run.used = used && [];
    for (const [path, slot] of compiled.currents) run.env[slot] = current(path);
    const found = compiled.node(run, () => {
      for (const ref of run.used ?? []) used?.add(ref);
      return true;
    });
    for (const slot of compiled.currents.values()) run.env[slot] = undefined;
    return found;
  }

  save(): SavedMonitor {
    return { point: this.#run.point, now: this.#run.now, states: this.#states.map((state) => state.save()) };
  }

  load(saved: SavedMonitor): void {
    this.#run.point = saved.point;
    this.#run.now = saved.now;
    for (const [index, state] of this.#states.entries()) state.load(saved.states[index] ?? []);
  }
}

export interface SavedMonitor {
  readonly point: number;
  readonly now: number;
  readonly states: readonly (readonly SavedRow[])[];
}

interface Run {
  event: HistoryEvent | undefined;
  /** The number of the latest event. */
  point: number;
  now: number;
  env: Env;
  /** The records that rows in use came from; kept only for an explanation. */
  used: number[] | undefined;
}

type Env = (string | undefined)[];

/** Calls `next` for each way in which the condition holds, until it returns true. */
type Node = (run: Run, next: () => boolean) => boolean;
type Value = (run: Run) => string;

interface CompiledLeaf {
  readonly node: Node;
  readonly env: Env;
  /** The slots for what the current call has. */
  readonly currents: ReadonlyMap<string, number>;
}

interface State {
  readonly env: Env;
  /** The events that can change it; undefined is all of them. */
  readonly triggers: ReadonlySet<string> | undefined;
  update(run: Run): void;
  save(): SavedRow[];
  load(rows: readonly SavedRow[]): void;
}

type Names = ReadonlyMap<string, number>;
type Slots = ReadonlySet<number>;

const NO_SLOTS: Slots = new Set();

class Compiler {
  readonly #states: State[];
  readonly #budget: RowBudget;
  readonly #env: Env = [];
  readonly #currents = new Map<string, number>();

  constructor(states: State[], budget: RowBudget) {
    this.#states = states;
    this.#budget = budget;
  }

  leaf(formula: PastFormula): CompiledLeaf {
    const currents = this.#currents;
    for (const path of currentPathsIn(formula)) currents.set(path, this.#newSlot());
    const node = this.#node(hoistFilters(formula), new Map(), new Set(currents.values()));
    return { node, env: this.#env, currents };
  }

  #newSlot(): number {
    return this.#env.push(undefined) - 1;
  }

  #node(formula: PastFormula, names: Names, bound: Slots): Node {
    switch (formula.kind) {
      case "event":
        return this.#event(formula, names);
      case "timepoint": {
        const slot = slotOf(names, formula.name);
        return (run, next) => bind(run.env, slot, String(run.point), next);
      }
      case "and":
        return this.#chain(formula, names, bound);
      case "compare":
        return this.#comparison(formula, names, bound);
      case "not":
        return this.#negation(formula, names, bound);
      case "exists": {
        const slot = this.#newSlot();
        const body = this.#node(formula.body, new Map([...names, [formula.binder.name, slot]]), bound);
        return body;
      }
      case "formerly": {
        const state = this.#kept(formula.body, names, windowMsOf(formula));
        return state.lookup(bound).node;
      }
      case "previous":
        return this.#previous(formula, names);
      case "since":
        return this.#since(formula, names, bound);
      default:
        throw new Error(`a ${formula.kind} is left after expansion`);
    }
  }

  #event(formula: PastFormula & { kind: "event" }, names: Names): Node {
    const { type, action, event, fields } = formula;
    const tests = fields.map(({ path, value }): Node => {
      if (value.kind === "any") return (run, next) => run.event?.field(path) !== ABSENT && next();
      if (value.kind === "variable" || value.kind === "current") {
        const slot = this.#slot(value, names);
        return (run, next) => bind(run.env, slot, run.event?.field(path) ?? ABSENT, next);
      }
      const expected = this.#value(value, names, NO_SLOTS);
      return (run, next) => {
        const key = expected(run);
        return key !== ABSENT && run.event?.field(path) === key && next();
      };
    });
    const all = inOrder(tests);
    return (run, next) => {
      const { event: now } = run;
      return now?.action === action && now.event === event && now.type === type && all(run, next);
    };
  }

  /** Each conjunct as soon as what it reads is known: filters first, then what binds. */
  #chain(formula: PastFormula, names: Names, bound: Slots): Node {
    const left = conjuncts(formula);
    const known = new Set(bound);
    const nodes: Node[] = [];
    while (left.length > 0) {
      const at = this.#nextOf(left, names, known);
      const [conjunct] = left.splice(at, 1) as [PastFormula];
      nodes.push(this.#node(conjunct, names, known));
      for (const slot of this.#free(conjunct, names)) known.add(slot);
    }
    return inOrder(nodes);
  }

  #nextOf(left: readonly PastFormula[], names: Names, known: Slots): number {
    const isFilter = (each: PastFormula): boolean => [...this.#free(each, names)].every((slot) => known.has(slot));
    const ready = left.map((each) => this.#isReady(each, names, known));
    const order = [
      (at: number) => left[at]?.kind === "event" || left[at]?.kind === "timepoint",
      (at: number) => isFilter(left[at] as PastFormula),
      () => true,
    ];
    for (const prefer of order) {
      const at = left.findIndex((_, index) => ready[index] && prefer(index));
      if (at !== -1) return at;
    }
    const [stuck] = left as [PastFormula];
    throw unbounded(stuck);
  }

  /** Whether the condition can be evaluated when only these are known. */
  #isReady(formula: PastFormula, names: Names, known: Slots): boolean {
    switch (formula.kind) {
      case "compare": {
        const open = this.#termSlots(formula.left, names).filter((slot) => !known.has(slot));
        const openRight = this.#termSlots(formula.right, names).filter((slot) => !known.has(slot));
        if (open.length + openRight.length === 0) return true;
        if (formula.op !== "==") return false;
        if (open.length === 0) return isPlainRead(formula.right);
        return openRight.length === 0 && isPlainRead(formula.left);
      }
      case "not":
        return [...this.#free(formula.body, names)].every((slot) => known.has(slot));
      case "and": {
        const inner = new Set(known);
        const left = conjuncts(formula);
        for (;;) {
          const at = left.findIndex((each) => this.#isReady(each, names, inner));
          if (at === -1) return left.length === 0;
          const [taken] = left.splice(at, 1) as [PastFormula];
          for (const slot of this.#free(taken, names)) inner.add(slot);
        }
      }
      case "exists":
        return this.#isReady(formula.body, withName(names, formula.binder.name, -1 - names.size), known);
      case "since": {
        const anchored = this.#free(formula.right, names);
        return [...this.#free(formula.left, names)].every((slot) => known.has(slot) || anchored.has(slot));
      }
      default:
        return true;
    }
  }

  #comparison(formula: PastFormula & { kind: "compare" }, names: Names, bound: Slots): Node {
    const { op, left, right } = formula;
    const [openLeft, openRight] = [left, right].map((term) =>
      this.#termSlots(term, names).filter((slot) => !bound.has(slot)),
    ) as [number[], number[]];
    if (openLeft.length + openRight.length > 0) {
      const target = openLeft.length > 0 ? left : right;
      const source = target === left ? right : left;
      const isBinding = op === "==" && isPlainRead(target) && (target === left ? openRight : openLeft).length === 0;
      if (!isBinding) throw unbounded(formula);
      const slot = this.#slot(target as Term & { kind: "variable" | "current" }, names);
      const value = this.#value(source, names, bound);
      return (run, next) => bind(run.env, slot, value(run), next);
    }
    const [a, b] = [this.#value(left, names, bound), this.#value(right, names, bound)];
    return (run, next) => compares(op, a(run), b(run)) && next();
  }

  #negation(formula: PastFormula & { kind: "not" }, names: Names, bound: Slots): Node {
    for (const slot of this.#free(formula.body, names)) if (!bound.has(slot)) throw unbounded(formula);
    const body = this.#node(formula.body, names, bound);
    return (run, next) => {
      const { used } = run;
      // Records that make the inner condition hold explain nothing of the outer one.
      run.used = undefined;
      const found = body(run, found1);
      run.used = used;
      return !found && next();
    };
  }

  #value(term: Term, names: Names, bound: Slots): Value {
    switch (term.kind) {
      case "value":
        return () => term.key;
      case "variable":
      case "current": {
        const slot = this.#slot(term, names);
        return (run) => run.env[slot] ?? ABSENT;
      }
      case "set": {
        const items = term.items.map((item) => this.#value(item, names, bound));
        return (run) => {
          const keys = items.map((item) => item(run));
          return keys.includes(ABSENT) ? ABSENT : setKey(keys);
        };
      }
      case "arithmetic": {
        const [a, b] = [this.#value(term.left, names, bound), this.#value(term.right, names, bound)];
        return (run) => calculate(term.op, integerOf(a(run)), integerOf(b(run)));
      }
      case "aggregate":
        return this.#aggregate(term, names, bound);
      default:
        return () => ABSENT;
    }
  }

  #aggregate({ sum, over, body, at }: Aggregate, names: Names, bound: Slots): Value {
    let inner: Names = names;
    const slots = over.map(({ name }) => {
      const slot = this.#newSlot();
      inner = withName(inner, name, slot);
      return slot;
    });
    if (body.kind === "formerly") {
      const state = this.#kept(body.body, inner, windowMsOf(body));
      const open = state.slots.filter((slot) => !bound.has(slot));
      // Each row is one of the group: the group has its count and its sum at hand.
      if (open.length === slots.length && open.every((slot) => slots.includes(slot))) {
        const column = sum === undefined ? undefined : state.slots.indexOf(slotOf(inner, sum));
        return state.lookup(bound).group(column);
      }
    }
    if (!this.#isReady(body, inner, bound)) throw unbounded({ ...body, at });
    const node = this.#node(body, inner, bound);
    const summed = sum === undefined ? undefined : slotOf(inner, sum);
    return (run) => {
      const seen = new Set<string>();
      let total = 0n;
      node(run, () => {
        const key = rowKey(slots.map((slot) => run.env[slot] as string));
        if (seen.has(key)) return false;
        seen.add(key);
        if (summed !== undefined) total += integerOf(run.env[summed] as string) ?? 0n;
        return false;
      });
      return summed === undefined ? String(seen.size) : String(clamp(total));
    };
  }

  /** The rows of a condition, kept for as long as the window. */
  #kept(body: PastFormula, names: Names, windowMs: number): KeptRows {
    const slots = [...this.#free(body, names)];
    if (!this.#isReady(body, names, NO_SLOTS)) throw unbounded(body);
    const node = this.#node(body, names, NO_SLOTS);
    const kept = new KeptRows(this.#env, node, slots, windowMs, triggersOf(body), this.#budget);
    this.#states.push(kept);
    return kept;
  }

  #previous(formula: PastFormula & { kind: "formerly" | "previous" }, names: Names): Node {
    const { body } = formula;
    if (!this.#isReady(body, names, NO_SLOTS)) throw unbounded(body);
    const slots = [...this.#free(body, names)];
    const state = new LastRows(this.#env, this.#node(body, names, NO_SLOTS), slots, triggersOf(body));
    this.#states.push(state);
    const windowMs = windowMsOf(formula);
    return (run, next) => state.solve(run, windowMs, next);
  }

  #since(formula: PastFormula & { kind: "since" }, names: Names, bound: Slots): Node {
    const windowMs = windowMsOf(formula);
    const anchor = this.#kept(formula.right, names, windowMs);
    const known = new Set([...bound, ...anchor.slots]);
    const steps = conjuncts(formula.left).map((part) => this.#step(part, names, known, windowMs));
    return anchor.lookup(bound).withRow((run, row, next) => {
      return (row.point === run.point || steps.every((step) => step(run, row))) && next();
    });
  }

  /** Whether a part of the left of `since` has held at every event after the row's. */
  #step(part: PastFormula, names: Names, known: Slots, windowMs: number): (run: Run, row: PastRow) => boolean {
    for (const slot of this.#free(part, names)) if (!known.has(slot)) throw unbounded(part);
    if (part.kind === "compare" && aggregatesIn(part.left).length + aggregatesIn(part.right).length === 0) {
      const test = this.#node(part, names, known);
      return (run) => test(run, found1);
    }
    if (part.kind === "not") {
      const against = this.#kept(part.body, names, windowMs);
      return (run, row) => {
        const last = against.rowFor(run.env);
        return last === undefined || last.point <= row.point;
      };
    }
    if (!this.#isReady(part, names, NO_SLOTS)) throw unbounded(part);
    const streak = new Streak(this.#env, this.#node(part, names, NO_SLOTS), [...this.#free(part, names)]);
    this.#states.push(streak);
    return (run, row) => streak.startFor(run.env) <= row.point + 1;
  }

  #slot(term: Term & { kind: "variable" | "current" }, names: Names): number {
    return term.kind === "variable" ? slotOf(names, term.name) : (this.#currents.get(term.path) as number);
  }

  #termSlots(term: Term, names: Names): number[] {
    switch (term.kind) {
      case "variable":
      case "current":
        return [this.#slot(term, names)];
      case "set":
        return term.items.flatMap((item) => this.#termSlots(item, names));
      case "arithmetic":
        return [...this.#termSlots(term.left, names), ...this.#termSlots(term.right, names)];
      case "aggregate": {
        let inner: Names = names;
        for (const [index, { name }] of term.over.entries()) inner = withName(inner, name, -1_000_000 - index);
        return [...this.#free(term.body, inner)].filter((slot) => slot > -1_000_000);
      }
      default:
        return [];
    }
  }

  /** The slots that a condition reads and does not bind for itself alone. */
  #free(formula: PastFormula, names: Names): Set<number> {
    const slots = new Set<number>();
    const add = (more: Iterable<number>): void => {
      for (const slot of more) slots.add(slot);
    };
    switch (formula.kind) {
      case "event":
        for (const { value } of formula.fields) add(this.#termSlots(value, names));
        break;
      case "timepoint":
        slots.add(slotOf(names, formula.name));
        break;
      case "compare":
        add(this.#termSlots(formula.left, names));
        add(this.#termSlots(formula.right, names));
        break;
      case "exists": {
        const own = -2_000_000 - names.size;
        add(this.#free(formula.body, withName(names, formula.binder.name, own)));
        slots.delete(own);
        break;
      }
      default:
        for (const body of bodiesOf(formula)) add(this.#free(body, names));
    }
    return slots;
  }
}

const found1 = (): boolean => true;

function unbounded(formula: PastFormula): FormulaError {
  const help = "name the value in an event in front, such as { arguments.to: context.arguments.to }";
  const message = "the condition cannot be kept within bounds: it is asked about values that no past event names";
  return new FormulaError(message, formula.at, help);
}

function isPlainRead(term: Term): boolean {
  return term.kind === "variable" || term.kind === "current";
}

function withName(names: Names, name: string, slot: number): Names {
  return new Map([...names, [name, slot]]);
}

function slotOf(names: Names, name: string): number {
  const slot = names.get(name);
  if (slot === undefined) throw new Error(`variable ${name} has no slot`);
  return slot;
}

export function windowMsOf(formula: PastFormula & { kind: "formerly" | "previous" | "since" }): number {
  const { within } = formula;
  if ("ms" in within) return within.ms;
  throw new Error("a window is left after expansion");
}

function inOrder(nodes: readonly Node[]): Node {
  const [first, second] = nodes;
  if (!first) return (_run, next) => next();
  if (!second) return first;
  const rest = inOrder(nodes.slice(1));
  return (run, next) => first(run, () => rest(run, next));
}

/** Gives a slot its value for as long as `next` runs; where it has one, the two have to be equal. */
function bind(env: Env, slot: number, key: string, next: () => boolean): boolean {
  if (key === ABSENT) return false;
  const known = env[slot];
  if (known !== undefined) return known === key && next();
  env[slot] = key;
  const done = next();
  env[slot] = undefined;
  return done;
}

function compares(op: string, a: string, b: string): boolean {
  if (a === ABSENT || b === ABSENT) return false;
  if (op === "==") return a === b;
  if (op === "!=") return a !== b;
  const [left, right] = [integerOf(a), integerOf(b)];
  if (left === undefined || right === undefined) return false;
  if (op === "<") return left < right;
  if (op === "<=") return left <= right;
  return op === ">" ? left > right : left >= right;
}

function calculate(op: "+" | "-" | "*", a: bigint | undefined, b: bigint | undefined): string {
  if (a === undefined || b === undefined) return ABSENT;
  return String(clamp(op === "+" ? a + b : op === "-" ? a - b : a * b));
}

/** The events without which the condition does not hold; undefined where it may hold at any. */
function triggersOf(formula: PastFormula): ReadonlySet<string> | undefined {
  switch (formula.kind) {
    case "event":
      return new Set([eventKey(formula.type, formula.action, formula.event)]);
    case "and":
      return triggersOf(formula.left) ?? triggersOf(formula.right);
    case "exists":
      return triggersOf(formula.body);
    default:
      return undefined;
  }
}

interface Lookup {
  readonly node: Node;
  withRow(use: (run: Run, row: PastRow, next: () => boolean) => boolean): Node;
  group(summed: number | undefined): Value;
}

/** The rows of a condition under `formerly`, or of one side of `since`. */
class KeptRows implements State {
  readonly env: Env;
  readonly slots: readonly number[];
  readonly triggers: ReadonlySet<string> | undefined;
  readonly #node: Node;
  readonly #rows: Relation;

  constructor(
    env: Env,
    node: Node,
    slots: readonly number[],
    windowMs: number,
    triggers: ReadonlySet<string> | undefined,
    budget: RowBudget,
  ) {
    this.env = env;
    this.slots = slots;
    this.triggers = triggers;
    this.#node = node;
    this.#rows = new Relation(slots.length, windowMs, budget);
  }

  update(run: Run): void {
    this.#rows.expire(run.now);
    this.#node(run, () => {
      this.#rows.put(this.#read(run.env, this.slots), run.now, run.point, run.event?.ref ?? 0);
      return false;
    });
  }

  rowFor(env: Env): PastRow | undefined {
    return this.#rows.get(this.#read(env, this.slots));
  }

  #read(env: Env, slots: readonly number[]): string[] {
    return slots.map((slot) => env[slot] ?? ABSENT);
  }

  lookup(bound: Slots): Lookup {
    const rows = this.#rows;
    const known = this.slots.filter((slot) => bound.has(slot));
    const open = this.slots.filter((slot) => !bound.has(slot));
    const openColumns = open.map((slot) => this.slots.indexOf(slot));
    const index =
      known.length === 0 || open.length === 0
        ? undefined
        : rows.indexOver(known.map((slot) => this.slots.indexOf(slot)));
    const find = (run: Run): Iterable<PastRow> => {
      rows.expire(run.now);
      if (index !== undefined) return rows.bucket(index, this.#read(run.env, known))?.rows ?? [];
      if (open.length > 0) return rows.all();
      const row = this.rowFor(run.env);
      return row ? [row] : [];
    };
    const withRow: Lookup["withRow"] = (use) => (run, next) => {
      const { env } = run;
      let done = false;
      for (const row of find(run)) {
        for (let i = 0; i < open.length; i++) env[open[i] as number] = row.values[openColumns[i] as number];
        run.used?.push(row.ref);
        done = use(run, row, next);
        if (done) break;
        run.used?.pop();
      }
      for (const slot of open) env[slot] = undefined;
      return done;
    };
    const group: Lookup["group"] = (summed) => {
      const all = index === undefined && open.length > 0 ? rows.indexOver([]) : index;
      const sum = summed === undefined ? undefined : rows.sumOf(summed);
      return (run) => {
        rows.expire(run.now);
        const bucket = all === undefined ? undefined : rows.bucket(all, this.#read(run.env, known));
        if (run.used) for (const row of bucket?.rows ?? []) run.used.push(row.ref);
        if (sum !== undefined) return String(clamp(bucket?.sums[sum] ?? 0n));
        return String(bucket?.rows.size ?? 0);
      };
    };
    return { node: withRow((_run, _row, next) => next()), withRow, group };
  }

  save(): SavedRow[] {
    return this.#rows.save();
  }

  load(saved: readonly SavedRow[]): void {
    this.#rows.load(saved);
  }
}

/** The rows of a condition at the latest event and at the one before it. */
class LastRows implements State {
  readonly env: Env;
  readonly triggers: ReadonlySet<string> | undefined;
  readonly #node: Node;
  readonly #slots: readonly number[];
  #latest: PastRow[] = [];
  #before: PastRow[] = [];

  constructor(env: Env, node: Node, slots: readonly number[], triggers: ReadonlySet<string> | undefined) {
    this.env = env;
    this.#node = node;
    this.#slots = slots;
    this.triggers = triggers;
  }

  update(run: Run): void {
    const rows: PastRow[] = [];
    this.#node(run, () => {
      const values = this.#slots.map((slot) => run.env[slot] ?? ABSENT);
      rows.push({ values, at: run.now, point: run.point, ref: run.event?.ref ?? 0 });
      return false;
    });
    if (rows.length === 0) return;
    this.#before = this.#latest;
    this.#latest = rows;
  }

  solve(run: Run, windowMs: number, next: () => boolean): boolean {
    const wanted = run.point - 1;
    const rows = this.#latest[0]?.point === wanted ? this.#latest : this.#before;
    if (rows[0]?.point !== wanted || run.now - rows[0].at > windowMs) return false;
    for (const row of rows) {
      run.used?.push(row.ref);
      if (this.#bindFrom(run.env, row, 0, next)) return true;
      run.used?.pop();
    }
    return false;
  }

  #bindFrom(env: Env, row: PastRow, at: number, next: () => boolean): boolean {
    const slot = this.#slots[at];
    if (slot === undefined) return next();
    return bind(env, slot, row.values[at] as string, () => this.#bindFrom(env, row, at + 1, next));
  }

  save(): SavedRow[] {
    return [...this.#before, ...this.#latest].map(({ values, at, point, ref }) => [values, at, point, ref]);
  }

  load(saved: readonly SavedRow[]): void {
    const rows = saved.map(([values, at, point, ref]) => ({ values, at, point, ref }));
    const latest = rows.at(-1)?.point;
    this.#latest = rows.filter((row) => row.point === latest);
    this.#before = rows.filter((row) => row.point !== latest);
  }
}

/** Since which event each row of a condition has held without a break. */
class Streak implements State {
  readonly env: Env;
  readonly triggers = undefined;
  readonly #node: Node;
  readonly #slots: readonly number[];
  #starts = new Map<string, PastRow>();

  constructor(env: Env, node: Node, slots: readonly number[]) {
    this.env = env;
    this.#node = node;
    this.#slots = slots;
  }

  update(run: Run): void {
    const starts = new Map<string, PastRow>();
    this.#node(run, () => {
      const values = this.#slots.map((slot) => run.env[slot] ?? ABSENT);
      const key = rowKey(values);
      const { point, now: at } = run;
      starts.set(key, this.#starts.get(key) ?? { values, at, point, ref: run.event?.ref ?? 0 });
      return false;
    });
    this.#starts = starts;
  }

  startFor(env: Env): number {
    return this.#starts.get(rowKey(this.#slots.map((slot) => env[slot] ?? ABSENT)))?.point ?? Number.POSITIVE_INFINITY;
  }

  save(): SavedRow[] {
    return [...this.#starts.values()].map(({ values, at, point, ref }) => [values, at, point, ref]);
  }

  load(saved: readonly SavedRow[]): void {
    this.#starts = new Map(saved.map(([values, at, point, ref]) => [rowKey(values), { values, at, point, ref }]));
  }
}
