// The last so many bytes of a stream, as text.

export class StderrTail {
  readonly #max: number;
  #kept: Buffer = Buffer.alloc(0);

  constructor(maxBytes: number) {
    this.#max = maxBytes;
  }

  push(chunk: Buffer): void {
    const joined = chunk.length >= this.#max ? chunk : Buffer.concat([this.#kept, chunk]);
    // Copied when cut, so that a small rest does not hold on to a large chunk.
    this.#kept = joined.length > this.#max ? Buffer.from(joined.subarray(joined.length - this.#max)) : joined;
  }

  text(): string {
    return this.#kept.toString("utf8").trim();
  }
}
