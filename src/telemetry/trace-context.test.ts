import { describe, expect, it } from "vitest";
import {
  checkTracestate,
  formatTraceparent,
  newSpanId,
  newTraceId,
  parseTraceparent,
  traceIdFrom,
} from "./trace-context.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";

describe("traceparent", () => {
  it("reads a valid traceparent and writes the same one", () => {
    const text = `00-${TRACE}-${SPAN}-01`;
    const context = parseTraceparent(text);
    expect(context).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
    expect(formatTraceparent(context as NonNullable<typeof context>)).toBe(text);
    expect(parseTraceparent(`00-${TRACE}-${SPAN}-00`)?.flags).toBe(0);
    expect(parseTraceparent(`00-${TRACE}-${SPAN}-03`)?.flags).toBe(3);
  });

  it.each([
    ["nothing", undefined],
    ["a number", 7],
    ["an empty text", ""],
    ["an all-zero trace id", `00-${"0".repeat(32)}-${SPAN}-01`],
    ["an all-zero span id", `00-${TRACE}-${"0".repeat(16)}-01`],
    ["version ff", `ff-${TRACE}-${SPAN}-01`],
    ["upper case", `00-${TRACE.toUpperCase()}-${SPAN}-01`],
    ["a short trace id", `00-${TRACE.slice(1)}-${SPAN}-01`],
    ["a long trace id", `00-${TRACE}0-${SPAN}-01`],
    ["a character that is not a digit", `00-${TRACE.slice(0, 31)}g-${SPAN}-01`],
    ["a missing field", `00-${TRACE}-${SPAN}`],
    ["one digit of flags", `00-${TRACE}-${SPAN}-1`],
    ["another separator", `00_${TRACE}_${SPAN}_01`],
    ["space around it", ` 00-${TRACE}-${SPAN}-01`],
    ["more fields than version 00 has", `00-${TRACE}-${SPAN}-01-what`],
    ["a trailing dash in version 00", `00-${TRACE}-${SPAN}-01-`],
    ["a later version whose flags run on", `cc-${TRACE}-${SPAN}-01x`],
    ["a header without end", `cc-${TRACE}-${SPAN}-01-${"a".repeat(600)}`],
    ["a line break inside", `00-${TRACE}-${SPAN}-01\n`],
  ])("counts as absent when it is %s", (_what, text) => {
    expect(parseTraceparent(text)).toBeUndefined();
  });

  it("reads a traceparent of a later version by the fields of version 00", () => {
    expect(parseTraceparent(`cc-${TRACE}-${SPAN}-01`)).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
    const context = parseTraceparent(`01-${TRACE}-${SPAN}-ff-more-to-come`);
    expect(context).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
    expect(formatTraceparent(context as NonNullable<typeof context>)).toBe(`00-${TRACE}-${SPAN}-01`);
  });

  it("sends undefined flags of a traceparent as zero", () => {
    const context = parseTraceparent(`00-${TRACE}-${SPAN}-fe`);
    expect(formatTraceparent(context as NonNullable<typeof context>)).toBe(`00-${TRACE}-${SPAN}-02`);
  });
});

describe("tracestate", () => {
  it.each(["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=b", "tenant@system=v", "a=b, c=d", "a=b,,c=d", "0a@x=1"])(
    "%s may travel on",
    (text) => {
      expect(checkTracestate(text)).toBe(text);
    },
  );

  it.each([
    ["an empty text", ""],
    ["no value at all", "rojo"],
    ["an empty value", "rojo="],
    ["an upper-case key", "Rojo=1"],
    ["a key twice", "a=1,a=2"],
    ["a control character", "a=b\u0007"],
    ["a line break", "a=b\nc=d"],
    ["33 members", Array.from({ length: 33 }, (_, i) => `k${i}=v`).join(",")],
    ["over 512 characters", `a=${"v".repeat(600)}`],
    ["an equals sign in the value", "a=b=c"],
    ["no text", 3],
  ])("does not travel on when it is %s", (_what, text) => {
    expect(checkTracestate(text)).toBeUndefined();
  });
});

describe("fresh ids", () => {
  it("makes ids of the right length that do not repeat", () => {
    const traces = new Set<string>();
    const spans = new Set<string>();
    for (let i = 0; i < 20_000; i++) {
      traces.add(newTraceId());
      spans.add(newSpanId());
    }
    expect(traces.size).toBe(20_000);
    expect(spans.size).toBe(20_000);
    for (const id of traces) expect(id).toMatch(/^[0-9a-f]{32}$/);
    for (const id of spans) expect(id).toMatch(/^[0-9a-f]{16}$/);
  });

  it("takes ids from a valid header", () => {
    expect(traceIdFrom(`00-${TRACE}-${SPAN}-01`)).toBe(TRACE);
    expect(traceIdFrom("nonsense")).toMatch(/^[0-9a-f]{32}$/);
  });
});
