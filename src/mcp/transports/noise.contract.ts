// Hostile input for the codec tests: repeatable, cheap, and close enough to the real thing to get deep.

const TEMPLATES = [
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello","n":[1,2.5,-3e7,true,null]}}}',
  '{"jsonrpc":"2.0","id":"req-ä-漢-🏰","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}',
  '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":50,"total":100}}',
  '{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a\\nb\\u0000\\ud83d\\ude00"}],"isError":false}}',
  '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":2,"method":"ping"}]',
  '{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"Internal error","data":{"trace_id":"abc"}}}',
].map((text) => Buffer.from(text));

const TOKENS = Buffer.from('{}[],:"\\0123456789eE+-.truefalsn \r\t\u0000/*');

export class Noise {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  /** A whole number from 0 to n-1. (xorshift32) */
  below(n: number): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return this.#state % n;
  }

  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }

  bytes(length: number, from?: Buffer): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let i = 0; i < length; i++)
      bytes[i] = from === undefined ? this.below(256) : (from[this.below(from.length)] as number);
    return bytes;
  }

  /** One line without its end, now and then over the cap, now and then with a newline of its own inside. */
  line(cap: number): Buffer {
    const kind = this.below(1000);
    if (kind < 200) return this.#template();
    if (kind < 700) return this.#mutated();
    if (kind < 850) return this.bytes(this.below(200));
    if (kind < 950) return this.bytes(this.below(300), TOKENS);
    if (kind < 970) return Buffer.from("[".repeat(this.below(cap)));
    if (kind < 980) return Buffer.from(`\uFEFF${this.#template()}`);
    if (kind < 998) return Buffer.from("\r".repeat(this.below(3)));
    return Buffer.alloc(cap - 2 + this.below(2 * cap), "x");
  }

  /** The bytes in pieces, mostly small, so that everything gets cut somewhere. */
  *chunks(whole: Buffer): Generator<Buffer> {
    let start = 0;
    while (start < whole.length) {
      const end = start + 1 + this.below(this.chance(4) ? 4000 : 40);
      yield whole.subarray(start, end);
      start = end;
    }
  }

  #template(): Buffer {
    return TEMPLATES[this.below(TEMPLATES.length)] as Buffer;
  }

  #mutated(): Buffer {
    let line: Buffer = Buffer.from(this.#template());
    for (let left = 1 + this.below(4); left > 0; left--) line = this.#mutate(line);
    return line;
  }

  #mutate(line: Buffer): Buffer {
    if (line.length === 0) return this.bytes(3);
    const at = this.below(line.length);
    const to = Math.min(line.length, at + this.below(20));
    switch (this.below(6)) {
      case 0:
        line[at] = (line[at] as number) ^ (1 << this.below(8));
        return line;
      case 1:
        return Buffer.concat([line.subarray(0, at), this.bytes(1 + this.below(4)), line.subarray(at)]);
      case 2:
        return Buffer.concat([line.subarray(0, at), line.subarray(to)]);
      case 3:
        return Buffer.concat([line.subarray(0, to), line.subarray(at)]);
      case 4:
        return line.subarray(0, at);
      default:
        line.copyWithin(at, this.below(line.length), to);
        return line;
    }
  }
}
