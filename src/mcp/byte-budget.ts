// One accounting of bytes that outlive the current turn: per agent, per application and per process. Whatever keeps
// bytes of a caller or a server (unfinished messages, replay buffers, suspended calls, unsent answers) charges it.

/** `ByteBudget` is an allowance of retained bytes. What is taken from it is taken from its parents as well. */
export class ByteBudget {
  readonly max: number;
  used = 0;
  readonly #parent: ByteBudget | undefined;

  constructor(max: number, parent?: ByteBudget) {
    this.max = max;
    this.#parent = parent;
  }

  /** Takes from this budget and all of its parents, or, with false, from none of them. */
  take(bytes: number): boolean {
    if (this.used + bytes > this.max) return false;
    if (this.#parent !== undefined && !this.#parent.take(bytes)) return false;
    this.used += bytes;
    return true;
  }

  give(bytes: number): void {
    this.used -= bytes;
    this.#parent?.give(bytes);
  }
}

/** `Charge` is what one holder has taken from a budget, adjusted as the holder grows and shrinks. */
export class Charge {
  bytes = 0;
  #budget: ByteBudget | undefined;

  constructor(budget: ByteBudget | undefined) {
    this.#budget = budget;
  }

  /** False when the budget does not allow it; the charge is then unchanged. Shrinking always succeeds. */
  set(bytes: number): boolean {
    const more = bytes - this.bytes;
    if (more > 0 && this.#budget?.take(more) === false) return false;
    if (more < 0) this.#budget?.give(-more);
    this.bytes = bytes;
    return true;
  }

  /** Charges another budget from now on, such as that of a caller that has become known. */
  move(budget: ByteBudget): void {
    const { bytes } = this;
    this.set(0);
    this.#budget = budget;
    if (!this.set(bytes)) this.bytes = 0;
  }
}

export interface RetainedLimits {
  /** Bytes of callers and servers that the process keeps. */
  readonly maxRetainedBytes: number;
  /** Of them, those of one application. */
  readonly maxAppRetainedBytes: number;
  /** Of them, those of one agent. */
  readonly maxAgentRetainedBytes: number;
}

/** Bytes that callers without a credential may make the process keep, all of them together. */
export const MAX_ANONYMOUS_BYTES = 16 * 1024 * 1024;
/** Accounts without charges are dropped above this number. */
const MAX_IDLE_ACCOUNTS = 10_000;

/** Of all bytes of the process, the share that only applications within their floor may take. */
const RESERVED_SHARE = 0.25;
/** The reserve is divided among the applications that hold something, and among at least so many. */
const LEAST_FLOORS = 10;

/** Bytes of the process. What a few greedy applications leave is enough for every other to hold its floor. */
class ProcessPool {
  readonly #max: number;
  used = 0;
  /** Applications that hold something. */
  #active = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** For an application that holds `held` bytes now. */
  take(bytes: number, held: number): boolean {
    const active = this.#active + (held === 0 ? 1 : 0);
    const reserve = this.#max * RESERVED_SHARE;
    const floor = reserve / Math.max(active, LEAST_FLOORS);
    if (this.used + bytes > (held + bytes <= floor ? this.#max : this.#max - reserve)) return false;
    this.used += bytes;
    this.#active = active;
    return true;
  }

  /** From an application that holds `left` bytes afterwards. */
  give(bytes: number, left: number): void {
    this.used -= bytes;
    if (left === 0) this.#active--;
  }
}

class ApplicationBudget extends ByteBudget {
  readonly #pool: ProcessPool;

  constructor(max: number, pool: ProcessPool) {
    super(max);
    this.#pool = pool;
  }

  override take(bytes: number): boolean {
    if (bytes === 0) return true;
    if (this.used + bytes > this.max || !this.#pool.take(bytes, this.used)) return false;
    this.used += bytes;
    return true;
  }

  override give(bytes: number): void {
    if (bytes === 0) return;
    this.used -= bytes;
    this.#pool.give(bytes, this.used);
  }
}

/** `RetainedBytes` holds the budgets of one process: one per application and, within it, one per agent. */
export class RetainedBytes {
  readonly #limits: RetainedLimits;
  readonly #process: ProcessPool;
  readonly #apps = new Map<string, ByteBudget>();
  readonly #agents = new Map<string, ByteBudget>();
  /** For callers that are not authenticated. */
  readonly anonymous: ByteBudget;

  constructor(limits: RetainedLimits) {
    this.#limits = limits;
    this.#process = new ProcessPool(limits.maxRetainedBytes);
    this.anonymous = new ApplicationBudget(MAX_ANONYMOUS_BYTES, this.#process);
  }

  get used(): number {
    return this.#process.used;
  }

  of({ app, agent }: { readonly app: string; readonly agent: string }): ByteBudget {
    // An application's name has no line break, so two callers never share a key.
    const key = `${app}\n${agent}`;
    const known = this.#agents.get(key);
    if (known) return known;
    dropIdle(this.#agents);
    const budget = new ByteBudget(this.#limits.maxAgentRetainedBytes, this.ofApp(app));
    this.#agents.set(key, budget);
    return budget;
  }

  ofApp(app: string): ByteBudget {
    const known = this.#apps.get(app);
    if (known) return known;
    dropIdle(this.#apps);
    const budget = new ApplicationBudget(this.#limits.maxAppRetainedBytes, this.#process);
    this.#apps.set(app, budget);
    return budget;
  }
}

function dropIdle(budgets: Map<string, ByteBudget>): void {
  if (budgets.size < MAX_IDLE_ACCOUNTS) return;
  for (const [key, { used }] of budgets) if (used === 0) budgets.delete(key);
}
