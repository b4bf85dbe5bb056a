import { describe, expect, test } from "vitest";
import { HostGuard } from "./host-guard.js";

const passes = (guard: HostGuard, host: string | undefined, origin?: string) =>
  guard.refusal(host, origin) === undefined;

describe("by default", () => {
  const guard = new HostGuard({ listenHost: "192.0.2.7" });

  test("the loopback names and the listen address are hosts, on any port, in any case", () => {
    for (const host of ["localhost", "LOCALHOST:80", "127.0.0.1:7420", "[::1]:7420", "192.0.2.7:1"]) {
      expect(passes(guard, host)).toBe(true);
      expect(passes(guard, host)).toBe(true);
    }
  });

  test("any other name is refused, above all a rebound one", () => {
    const others = [
      undefined,
      "",
      "evil.example",
      "localhost.evil.example",
      "localhost:80:80",
      "localhost@evil.example",
    ];
    others.push("127.0.0.1, evil.example", "localhost.", "localhost:http", "[::1", "127.0.0.1/", " localhost");
    for (const host of others) expect(passes(guard, host), String(host)).toBe(false);
  });

  test("pages of the same hosts may call, others may not, and nobody gets CORS", () => {
    expect(passes(guard, "localhost", "http://localhost:6274")).toBe(true);
    expect(passes(guard, "localhost", "https://192.0.2.7")).toBe(true);
    for (const origin of [
      "null",
      "https://evil.example",
      "http://localhost.evil.example",
      "file://",
      "http://localhost/x",
      "",
    ]) {
      expect(passes(guard, "localhost", origin), origin).toBe(false);
    }
    expect(guard.sharesWith("http://localhost:6274")).toBe(false);
  });
});

describe("configured", () => {
  const guard = new HostGuard({
    listenHost: "0.0.0.0",
    allowedHosts: ["gate.example:8443", "Inner"],
    allowedOrigins: ["https://app.example"],
  });

  test("only the named hosts pass; a name with a port means that port", () => {
    expect(passes(guard, "gate.example:8443")).toBe(true);
    expect(passes(guard, "inner:99")).toBe(true);
    expect(passes(guard, "gate.example")).toBe(false);
    expect(passes(guard, "localhost")).toBe(false);
  });

  test("only the named origins pass, and they may read the answers", () => {
    expect(passes(guard, "inner", "https://app.example")).toBe(true);
    expect(passes(guard, "inner", "http://app.example")).toBe(false);
    expect(passes(guard, "inner", "https://inner")).toBe(false);
    expect(guard.sharesWith("https://app.example")).toBe(true);
    expect(guard.sharesWith(undefined)).toBe(false);
  });
});

test("a refusal says what was wrong and what to do", () => {
  const guard = new HostGuard({ listenHost: "127.0.0.1" });
  expect(guard.refusal("evil.example", undefined)).toContain('"evil.example"');
  expect(guard.refusal("evil.example", undefined)).toContain("allowedHosts");
  expect(guard.refusal("localhost", "https://evil.example")).toContain("allowedOrigins");
});
