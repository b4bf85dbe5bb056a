import type { LedgerEntry } from "./entry.js";

/** A record the ledger writes about itself. */
export function ownRecord(action: string, detail: Record<string, unknown>): LedgerEntry {
  return { kind: "admin", actor: "portcullis", action, detail };
}

/** Records nobody waits for that cannot be written now. Those beyond the limit are counted, and a record says so. */
export class Backlog {
  readonly #max: number;
  #entries: LedgerEntry[] = [];
  #lost = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** How many are kept or lost. */
  get length(): number {
    return this.#entries.length + this.#lost;
  }

  get lost(): number {
    return this.#lost;
  }

  keep(entry: LedgerEntry): void {
    if (this.#entries.length < this.#max) this.#entries.push({ ...entry, ts: entry.ts ?? Date.now() });
    else this.#lost++;
  }

  /** Hands over everything kept, to be written. */
  take(): LedgerEntry[] {
    const entries = this.#entries;
    const why = "more records waited than maxPending allows";
    if (this.#lost > 0) entries.push(ownRecord("ledger.lost", { count: this.#lost, why }));
    this.#entries = [];
    this.#lost = 0;
    return entries;
  }
}
