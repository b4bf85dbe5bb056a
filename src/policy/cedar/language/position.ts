// Offsets to lines and columns. Cedar counts UTF-8 bytes; JavaScript counts UTF-16 units; people count from one.

export interface Position {
  readonly line: number;
  readonly column: number;
}

export class Lines {
  readonly text: string;
  readonly #starts: number[] = [0];

  constructor(text: string) {
    this.text = text;
    for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) this.#starts.push(at + 1);
  }

  at(offset: number): Position {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (this.#starts[low] ?? 0) + 1 };
  }
}

export function offsetOfByte(text: string, byte: number): number {
  return Buffer.from(text).subarray(0, byte).toString("utf8").length;
}
