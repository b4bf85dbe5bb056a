import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ByteBudget } from "../index.js";
import { formatEvent, formatRetry, SseReader } from "./sse.js";
import { TransportError } from "./types.js";

function read(chunks: readonly (string | Buffer)[], maxBytes = 1000) {
  const events: [string, string | undefined][] = [];
  const reader = new SseReader(maxBytes, { event: (data, id) => events.push([data, id]) });
  for (const chunk of chunks) reader.push(Buffer.from(chunk as string));
  return { events, reader };
}

describe("reading an event stream", () => {
  test("events end at an empty line, whatever kind of line end the server uses", () => {
    for (const end of ["\n", "\r", "\r\n"]) {
      const text = ["data: one", "", "id: 7", "data:two", "", ": a comment", "data: three", "data: lines", "", ""].join(
        end,
      );
      expect(read([text]).events).toEqual([
        ["one", undefined],
        ["two", "7"],
        ["three\nlines", undefined],
      ]);
    }
  });

  test("only one space after the colon belongs to the format", () => {
    expect(read(["data:  two spaces\n\n"]).events).toEqual([[" two spaces", undefined]]);
  });

  test("an event without data carries its id and nothing else; an unfinished one is dropped", () => {
    const { events, reader } = read(["id: prime\ndata:\n\n", "data: never finished\n"]);
    expect(events).toEqual([]);
    expect(reader.lastEventId).toBe("prime");
  });

  test("ids with NUL, retries that are no number and events of other types are ignored", () => {
    const { events, reader } = read(["id: a\0b\nretry: 1x\ndata: x\n\n", "event: ping\ndata: y\n\n", "retry: 250\n\n"]);
    expect(events).toEqual([["x", undefined]]);
    expect([reader.lastEventId, reader.retryMs]).toEqual([undefined, 250]);
  });

  test("a byte order mark at the start is not part of the first field", () => {
    expect(read(["\uFEFFdata: x\n\n"]).events).toEqual([["x", undefined]]);
  });

  test("an event of exactly the cap passes, in one line or in many; one byte more ends the stream", () => {
    const exact = `data: ${"x".repeat(100)}\n\n`;
    const lines = `data: ${"x".repeat(49)}\ndata: ${"x".repeat(50)}\n\n`;
    for (const text of [exact, lines]) {
      for (const chunks of [[text], [...text]]) expect(read(chunks, 100).events.length).toBe(1);
    }
    for (const text of [`data: ${"x".repeat(101)}\n\n`, `data: ${"x".repeat(50)}\ndata: ${"x".repeat(50)}\n\n`]) {
      for (const chunks of [[text], [...text]]) expect(() => read(chunks, 100)).toThrow(TransportError);
    }
    expect(() => read([`: ${"c".repeat(60)}`, "c".repeat(60)], 100)).toThrow(TransportError);
  });

  test("bytes that are not UTF-8 end the stream", () => {
    expect(() => read([Buffer.from([0x64, 0xff, 0x0a])])).toThrow(TransportError);
  });

  test("wherever the bytes are cut, the same events come out", () => {
    const piece = fc.constantFrom(
      "\n",
      "\r",
      "\r\n",
      "data: ä漢🏰",
      "data:",
      "id: 1",
      ":",
      "event: message",
      "retry: 5",
      "x",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), fc.array(fc.nat(300), { maxLength: 40 }), (pieces, places) => {
        const whole = Buffer.from(pieces.join(""));
        const ends = [...new Set(places.map((place) => place % (whole.length + 1)))].sort((a, b) => a - b);
        let start = 0;
        const chunks = [...ends, whole.length].map((end) => whole.subarray(start, (start = end)));
        expect(read(chunks).events).toEqual(read([whole]).events);
      }),
      { numRuns: 2000 },
    );
  });
});

describe("writing an event stream", () => {
  test("what is written is read back, line breaks of pretty JSON included", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.option(fc.stringMatching(/^[!-~]{1,20}$/), { nil: undefined }), (value, id) => {
        const text = JSON.stringify({ value }, null, 2);
        const { events } = read([formatEvent(text, id)], 1_000_000);
        expect(events).toEqual([[text, id]]);
      }),
    );
  });

  test("an id that would break out of its line is a mistake of the caller", () => {
    for (const id of ["a\nb", "a\rb", "a\0b"]) expect(() => formatEvent("{}", id)).toThrow(TypeError);
  });

  test("a retry time is a whole number of milliseconds", () => {
    expect(read([formatRetry(99.6)]).reader.retryMs).toBe(100);
  });
});

describe("an unfinished event", () => {
  test("an unfinished event is charged to its budget until it is complete or dropped, line by line", () => {
    const budget = new ByteBudget(10_000);
    const seen: string[] = [];
    const reader = new SseReader(1024 * 1024, { event: (data) => seen.push(data) }, budget);
    reader.push(Buffer.from(`data: ${"x".repeat(1_000)}\ndata: ${"y".repeat(1_000)}`));
    expect(budget.used).toBeGreaterThanOrEqual(3_000);
    reader.push(Buffer.from("\n\n"));
    expect(budget.used).toBe(0);
    expect(seen).toHaveLength(1);
    reader.push(Buffer.from(`data: ${"z".repeat(1_000)}\ndata: rest`));
    reader.stop();
    expect(budget.used).toBe(0);
  });

  test("an unfinished event ends the stream when many streams of one server together are over their budget [U12]", () => {
    const budget = new ByteBudget(10_000);
    const readers = Array.from({ length: 4 }, () => new SseReader(1024 * 1024, { event: () => {} }, budget));
    const push = (): void => {
      for (const reader of readers) reader.push(Buffer.from(`data: ${"x".repeat(1_500)}\n`));
    };
    expect(push).toThrow("not complete");
    expect(budget.used).toBeLessThanOrEqual(10_000);
  });
});
