import { PassThrough, Writable } from "node:stream";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createLogger, type LogOptions } from "./log.js";

function capture(options: LogOptions = {}, tty = false) {
  const lines: string[] = [];
  const stream = { isTTY: tty, write: (text: string) => lines.push(text) };
  const log = createLogger({ stream, env: {}, now: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678), ...options });
  return { log, lines, text: () => lines.join("") };
}

describe("a line", () => {
  it("writes a line as one JSON object with time, level, message, trace id and fields", () => {
    const { log, text } = capture();
    log.warning("ledger is slow", { waited_ms: 12, app: "blog" }, "abc");
    expect(JSON.parse(text())).toEqual({
      ts: "2026-01-02T03:04:05.678Z",
      level: "warning",
      msg: "ledger is slow",
      trace_id: "abc",
      fields: { waited_ms: 12, app: "blog" },
    });
  });

  it("leaves out lines below the level, which can change", () => {
    const { log, lines } = capture({ level: "notice" });
    log.info("no");
    expect(log.enabled("info")).toBe(false);
    log.level = "debug";
    log.info("yes");
    expect(lines).toHaveLength(1);
  });

  it("writes text on a terminal, with colour unless NO_COLOR is set", () => {
    const colored = capture({}, true);
    colored.log.error("disk full", { path: "audit/0001" });
    expect(colored.text()).toContain("\u001b[31merror");
    const plain = capture({ env: { NO_COLOR: "1" } }, true);
    plain.log.error("disk full", { path: "audit/0001", note: "two words" });
    expect(plain.text()).toBe('03:04:05.678 error     disk full path=audit/0001 note="two words"\n');
    const piped = capture({ env: { NO_COLOR: "1" } }, false);
    piped.log.error("disk full");
    expect(JSON.parse(piped.text()).msg).toBe("disk full");
  });
});

describe("what a caller sends cannot forge a line", () => {
  const attacks = [
    'tool\n{"level":"info","msg":"approved"}',
    "tool\r\nfake",
    "tool\u2028fake\u2029fake\u0085fake",
    "\u001b[2K\u001b[1A\u009b2J",
    '"},"level":"emergency","x":{"y":"',
    "\u202efake\u2066",
    "\ud800lone",
  ];
  it.each(attacks)("%j stays inside its value in JSON", (attack) => {
    const { log, text } = capture();
    log.info(attack, { [attack]: attack, nested: { deep: [attack] } }, attack);
    const raw = text();
    expect(raw.split(/[\n\r\u2028\u2029\u0085]/)).toEqual([raw.slice(0, -1), ""]);
    expect(raw.slice(0, -1)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    const line = JSON.parse(raw);
    expect(Object.keys(line)).toEqual(["ts", "level", "msg", "trace_id", "fields"]);
    expect(line.level).toBe("info");
    expect(line.msg).toBe(attack);
    expect(line.fields.nested.deep).toEqual([attack]);
  });

  it.each(attacks)("%j stays on its line on a terminal", (attack) => {
    const { log, text } = capture({ color: false }, true);
    log.info(attack, { [attack]: attack }, attack);
    expect(text().slice(0, -1)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    expect(text().endsWith("\n")).toBe(true);
  });

  it("writes one line of JSON whatever text a caller sends", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (message, value) => {
        const { log, text } = capture();
        log.info(message, { value });
        expect(JSON.parse(text()).msg).toBe(message);
        expect(text().split("\n")).toHaveLength(2);
      }),
      { numRuns: 500 },
    );
  });
});

describe("secrets", () => {
  it("redacts the values of fields whose names denote secrets", () => {
    const { log, text } = capture({ redact: ["card-number"] });
    log.info("x", {
      Authorization: "abc-secret",
      apiKey: "abc-secret",
      "x-api-key": "abc-secret",
      client_secret: "abc-secret",
      nested: { access_token: "abc-secret", list: [{ password: "abc-secret" }] },
      CardNumber: "abc-secret",
      user: "shown",
    });
    expect(text()).not.toContain("abc-secret");
    expect(JSON.parse(text()).fields.user).toBe("shown");
    expect(JSON.parse(text()).fields.CardNumber).toBe("[redacted]");
  });

  it("redacts bearer credentials and passwords of URLs inside texts", () => {
    const { log, text } = capture();
    const error = new Error("connect postgres://app:hunter2@db/x failed");
    log.error("refused: Authorization: Bearer abcdefgh12345678", { error });
    expect(text()).not.toContain("hunter2");
    expect(text()).not.toContain("abcdefgh12345678");
    expect(text()).toContain("postgres://app:[redacted]@db/x");
  });

  it("writes an error's stack at level debug only, without secrets", () => {
    const { log, text } = capture();
    log.error("x", { error: Object.assign(new Error("boom"), { code: "EIO" }) });
    expect(JSON.parse(text()).fields.error).toEqual({ name: "Error", message: "boom", code: "EIO" });
  });
});

describe("a log is bounded", () => {
  it("bounds the length of a line, which stays JSON", () => {
    const { log, lines } = capture({ maxLineChars: 4_096 });
    log.info("m".repeat(100_000), { big: "v".repeat(100_000) });
    log.info("many", Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`k${i}`, "v".repeat(1_000)])));
    for (const line of lines) {
      expect(line.length).toBeLessThan(4_300);
      JSON.parse(line);
    }
    expect(JSON.parse(lines[1] as string).fields).toEqual({ truncated: true });
  });

  it("cuts deep, wide and circular fields, and survives unusual values", () => {
    const circle: Record<string, unknown> = { name: "loop" };
    circle.self = circle;
    const { log, text } = capture();
    log.info("x", { circle, list: Array.from({ length: 1_000 }, () => 1), big: 10n, f: () => 1, s: Symbol("q") });
    const { fields } = JSON.parse(text());
    expect(fields.circle.self.self.self).toBe("[too deep]");
    expect(fields.list).toHaveLength(33);
    expect(fields.big).toBe("10");
  });

  it("drops the line when a field throws, and the caller continues", () => {
    const { log, lines } = capture();
    log.info("x", {
      get bad(): never {
        throw new Error("no");
      },
    });
    expect(lines).toHaveLength(0);
    expect(log.dropped).toBe(1);
  });

  it("drops lines above the rate except errors, and reports their number in the next second", () => {
    let now = 1_000_000;
    const { log, lines } = capture({ maxLinesPerSecond: 10, now: () => now });
    for (let i = 0; i < 100; i++) log.info(`line ${i}`);
    log.error("this matters");
    expect(lines).toHaveLength(11);
    now += 1_000;
    log.info("later");
    expect(lines).toHaveLength(13);
    expect(JSON.parse(lines[11] as string).msg).toContain("90 lines");
    expect(log.dropped).toBe(90);
  });

  it("drops lines when the reader does not read, and holds no memory for them", () => {
    const stream = new PassThrough({ highWaterMark: 16 });
    const log = createLogger({ stream, env: {}, maxBufferedBytes: 10_000, maxLinesPerSecond: 1e9 });
    for (let i = 0; i < 10_000; i++) log.info("a line that is not read");
    expect(stream.writableLength + stream.readableLength).toBeLessThan(11_000);
    expect(log.dropped).toBeGreaterThan(9_000);
  });

  it("survives a reader of stderr that closes", async () => {
    const stream = new Writable({ write: (_chunk, _encoding, done) => done(new Error("EPIPE")) });
    createLogger({ stream, env: {} }).info("x");
    await new Promise((resolve) => stream.once("close", resolve));
    expect(stream.destroyed).toBe(true);
  });
});
