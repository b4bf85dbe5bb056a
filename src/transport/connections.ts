// Who is connected, and what happens when the house is full: somebody with nothing under way makes room, those that
// were not heard of lately first. So idle connections cannot keep others out, and work is never interrupted.

export interface Guest {
  /** Something is under way. */
  readonly busy: boolean;
  /** Set whenever the guest says something; cleared when it is passed over once. */
  recent: boolean;
  evict(): void;
}

/** When everybody was busy and nobody came since, looking again waits this long: it costs more than refusing. */
const LOOK_AGAIN_MS = 100;

export class Connections<T extends Guest> {
  readonly #max: number;
  /** In the order of arrival; who gets a second chance goes to the end. */
  readonly #guests = new Set<T>();
  #lookAgainAt = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#guests.size;
  }

  /** False when there is no room: the caller refuses the connection. */
  admit(guest: T): boolean {
    if (this.#guests.size >= this.#max && !this.#makeRoom()) return false;
    this.#guests.add(guest);
    this.#lookAgainAt = 0;
    return true;
  }

  remove(guest: T): void {
    this.#guests.delete(guest);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#guests.values();
  }

  #makeRoom(): boolean {
    const now = Date.now();
    if (now < this.#lookAgainAt) return false;
    // Twice around at most: the first time everybody may have been heard of lately.
    let looks = 2 * this.#guests.size;
    for (const guest of this.#guests) {
      if (looks-- === 0) break;
      this.#guests.delete(guest);
      if (!guest.busy && !guest.recent) {
        guest.evict();
        return true;
      }
      guest.recent = false;
      this.#guests.add(guest);
    }
    this.#lookAgainAt = now + LOOK_AGAIN_MS;
    return false;
  }
}
