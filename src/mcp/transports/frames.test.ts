import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { ByteBudget } from "../index.js";
import { LineReader, toLine } from "./lines.js";

type Seen = { line: string } | { problem: string };

function read(chunks: readonly Buffer[], maxBytes = 1000, budget?: ByteBudget): Seen[] {
  const seen: Seen[] = [];
  const reader = new LineReader(
    maxBytes,
    {
      line: (line) => seen.push({ line }),
      malformed: (problem) => seen.push({ problem: problem.kind }),
    },
    budget,
  );
  for (const chunk of chunks) reader.push(chunk);
  reader.end();
  return seen;
}

const bytes = (text: string) => Buffer.from(text, "latin1");

/** Cuts at every place of a sorted list of places. */
function cut(whole: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set(places.map((place) => place % (whole.length + 1)))].sort((a, b) => a - b);
  let start = 0;
  return [...ends, whole.length].map((end) => {
    const piece = whole.subarray(start, end);
    start = end;
    return piece;
  });
}

describe("lines out of bytes", () => {
  test("newline and carriage return with newline end a line; empty lines do not count; the last line needs no end", () => {
    expect(read([bytes("a\nb\r\n\n\r\nc")])).toEqual([{ line: "a" }, { line: "b" }, { line: "c" }]);
  });

  test("thousands of blank lines cost no search each", () => {
    const chunk = bytes(`${"\n".repeat(30_000)}a\n${"\r\n".repeat(15_000)}b\n`);
    const searches = vi.spyOn(chunk, "indexOf");
    expect(read([chunk])).toEqual([{ line: "a" }, { line: "b" }]);
    expect(searches.mock.calls.length).toBeLessThan(10);
  });

  test("a carriage return inside a line stays, and NUL is a character like others", () => {
    expect(read([bytes("a\rb\n\0\nx\r\r\n")])).toEqual([{ line: "a\rb" }, { line: "\0" }, { line: "x\r" }]);
  });

  test("a byte order mark is dropped at the start of the stream and nowhere else", () => {
    const mark = Buffer.from("\uFEFF");
    expect(read([mark, bytes("a\n"), mark, bytes("b\n")])).toEqual([{ line: "a" }, { line: "\uFEFFb" }]);
  });

  test("bytes that are not UTF-8 spoil their own line alone", () => {
    const overlong = Buffer.from([0xc0, 0xaf, 0x0a]);
    const surrogate = Buffer.from([0xed, 0xa0, 0x80, 0x0a]);
    const torn = Buffer.from([0xe6, 0xbc, 0x0a]);
    expect(read([bytes("a\n"), overlong, surrogate, torn, bytes("b\n")])).toEqual([
      { line: "a" },
      { problem: "not-utf8" },
      { problem: "not-utf8" },
      { problem: "not-utf8" },
      { line: "b" },
    ]);
  });

  test("a line of exactly the cap passes whatever ends it; one byte more is reported once and the next line is read", () => {
    for (const end of ["\n", "\r\n"]) {
      for (const size of [1, 3, 1000]) {
        const whole = bytes(`0123456789${end}0123456789a${end}ok${end}`);
        const chunks = Array.from({ length: Math.ceil(whole.length / size) }, (_, i) =>
          whole.subarray(i * size, (i + 1) * size),
        );
        expect(read(chunks, 10)).toEqual([{ line: "0123456789" }, { problem: "too-large" }, { line: "ok" }]);
      }
    }
  });

  test("an endless line is reported as soon as it is over the cap, and costs no more than the cap", () => {
    let problems = 0;
    const reader = new LineReader(1000, { line: () => {}, malformed: () => problems++ });
    const chunk = Buffer.alloc(300, "x");
    for (let i = 0; i < 3; i++) reader.push(chunk);
    expect([problems, reader.held]).toEqual([0, 900]);
    for (let i = 0; i < 1000; i++) reader.push(chunk);
    expect([problems, reader.held]).toEqual([1, 0]);
  });

  test("wherever the bytes are cut, the same lines come out", () => {
    const piece = fc.oneof(
      fc.constantFrom("\n", "\r", "\r\n", "{}", "\0", "ä", "漢", "🏰", "\uFEFF").map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 20 }).map((array) => Buffer.from(array)),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), fc.array(fc.nat(500), { maxLength: 60 }), (pieces, places) => {
        const whole = Buffer.concat(pieces);
        expect(read(cut(whole, places), 12)).toEqual(read([whole], 12));
      }),
      { numRuns: 2000 },
    );
  });

  test("nothing is delivered after stop, even from the chunk being read", () => {
    const lines: string[] = [];
    const reader: LineReader = new LineReader(100, {
      line(text) {
        lines.push(text);
        reader.stop();
      },
      malformed: () => {},
    });
    reader.push(bytes("a\nb\nc"));
    reader.end();
    expect(lines).toEqual(["a"]);
  });

  test("unfinished lines share one allowance, which is given back when they are finished or dropped", () => {
    const budget = new ByteBudget(4096);
    const seen: Seen[] = [];
    const events = { line: (line: string) => seen.push({ line }), malformed: () => seen.push({ problem: "x" }) };
    const readers = Array.from({ length: 9 }, () => new LineReader(10_000, events, budget));
    for (const reader of readers) reader.push(bytes("half"));
    expect(budget.used).toBe(4096);
    expect(seen).toEqual([{ problem: "x" }]);
    readers[0]?.push(bytes(" done\n"));
    expect(seen[1]).toEqual({ line: "half done" });
    for (const reader of readers) reader.stop();
    expect(budget.used).toBe(0);
  });
});

describe("a text as a line", () => {
  test("line breaks between tokens become spaces, so that a text is never two messages", () => {
    const pretty = JSON.stringify({ a: [1, "x\ny"] }, null, 2).replaceAll("\n", "\r\n");
    for (const form of [pretty, Buffer.from(pretty)]) {
      const line = toLine(form).toString();
      expect(line.indexOf("\n")).toBe(line.length - 1);
      expect(JSON.parse(line)).toEqual({ a: [1, "x\ny"] });
    }
  });

  test("what is one line already is not touched", () => {
    expect(toLine('{"a":1}').toString()).toBe('{"a":1}\n');
    expect(toLine(Buffer.from('{"a":1}')).toString()).toBe('{"a":1}\n');
  });
});
