// Who is connected, and what happens when the house is full: a connection that has never said anything makes room for
// a new one, oldest first, so that silent connections cannot keep others out; one that is in use is never touched.

export class Connections<T> {
  readonly #max: number;
  readonly #evict: (connection: T) => void;
  readonly #all = new Set<T>();
  readonly #silent = new Set<T>();

  constructor(max: number, evict: (connection: T) => void) {
    this.#max = max;
    this.#evict = evict;
  }

  get size(): number {
    return this.#all.size;
  }

  /** False when there is no room: the caller refuses the connection. */
  admit(connection: T): boolean {
    if (this.#all.size >= this.#max && !this.#makeRoom()) return false;
    this.#all.add(connection);
    this.#silent.add(connection);
    return true;
  }

  /** The connection said something. */
  spoke(connection: T): void {
    this.#silent.delete(connection);
  }

  remove(connection: T): void {
    this.#all.delete(connection);
    this.#silent.delete(connection);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#all.values();
  }

  #makeRoom(): boolean {
    const [oldest] = this.#silent;
    if (oldest === undefined) return false;
    this.remove(oldest);
    this.#evict(oldest);
    return true;
  }
}
