// Calls that wait for an approver. All waits of a process share one subscription to the store and one query that
// reads states alone, however many there are.

import type { ChallengeStore } from "./challenges.js";

/** Waits look again this often, in case a notification was lost. */
const LOOK_MS = 1_000;

type Wake = (state: string | undefined) => void;

export class ApprovalWaits {
  readonly #store: Pick<ChallengeStore, "states" | "onChange">;
  readonly #waiting = new Map<string, Set<Wake>>();
  #stop: (() => void) | undefined;
  #isLooking = false;

  constructor(store: Pick<ChallengeStore, "states" | "onChange">) {
    this.#store = store;
  }

  /** The state as soon as it is not `pending`, or as it is after `timeoutMs`; undefined when the id is unknown. */
  async settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<string | undefined> {
    let wake: Wake = () => {};
    const answered = new Promise<string | undefined>((resolve) => {
      wake = resolve;
    });
    // Subscribed before the first look: a change in between is not missed.
    this.#add(id, wake);
    const timer = setTimeout(() => wake("pending"), Math.max(0, timeoutMs));
    const abort = (): void => wake("pending");
    signal?.addEventListener("abort", abort);
    try {
      const now = (await this.#store.states([id])).get(id);
      return now !== "pending" || signal?.aborted ? now : await answered;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.#remove(id, wake);
    }
  }

  #add(id: string, wake: Wake): void {
    const wakes = this.#waiting.get(id);
    if (wakes) wakes.add(wake);
    else this.#waiting.set(id, new Set([wake]));
    if (this.#stop) return;
    const unsubscribe = this.#store.onChange((changed) => {
      if (changed === "") void this.#look([...this.#waiting.keys()]);
      else if (this.#waiting.has(changed)) void this.#look([changed]);
    });
    const timer = setInterval(() => void this.#lookAtAll(), LOOK_MS).unref();
    this.#stop = () => {
      clearInterval(timer);
      unsubscribe();
    };
  }

  #remove(id: string, wake: Wake): void {
    const wakes = this.#waiting.get(id);
    wakes?.delete(wake);
    if (wakes?.size === 0) this.#waiting.delete(id);
    if (this.#waiting.size > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }

  async #lookAtAll(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    await this.#look([...this.#waiting.keys()]);
    this.#isLooking = false;
  }

  async #look(ids: readonly string[]): Promise<void> {
    try {
      const states = await this.#store.states(ids);
      for (const id of ids) {
        const state = states.get(id);
        if (state === "pending") continue;
        for (const wake of this.#waiting.get(id) ?? []) wake(state);
      }
    } catch {
      // The store is away for a moment: the next look, or the end of the wait, answers.
    }
  }
}
