// Texts out, one a line. What is sent in one turn of the loop goes out in one write.

import type { UnsentLimit } from "../../mcp/session/index.js";
import type { Writable } from "node:stream";

export class LineWriter {
  readonly #output: Writable;
  readonly #limit: UnsentLimit;
  #waiting = "";

  constructor(output: Writable, limit: UnsentLimit) {
    this.#output = output;
    this.#limit = limit;
  }

  send(text: string): void {
    if (this.#output.writableLength + this.#waiting.length > this.#limit.maxUnsentBytes) throw this.#limit.toFault();
    if (this.#waiting === "") setImmediate(this.#flush);
    // In JSON a raw line break can only stand between tokens; here it would start a second message.
    const line = text.includes("\n") || text.includes("\r") ? text.replace(/[\r\n]+/g, " ") : text;
    this.#waiting += `${line}\n`;
  }

  readonly #flush = (): void => {
    const text = this.#waiting;
    this.#waiting = "";
    if (this.#output.writable) this.#output.write(text);
  };
}
