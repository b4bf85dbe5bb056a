import { describe, expect, test } from "vitest";
import { HostGuard } from "./listen.js";

const passes = (guard: HostGuard, host: string | undefined, origin?: string) =>
  guard.refusal({ ...(host === undefined ? {} : { host }), ...(origin === undefined ? {} : { origin }) }) === undefined;

describe("by default", () => {
  const guard = new HostGuard({ listenHost: "192.0.2.7" });
  guard.listensOn("http", 7420);

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

  test("pages of the listener's own origin may call, those of other ports, schemes and hosts may not", () => {
    expect(passes(guard, "localhost:7420", "http://localhost:7420")).toBe(true);
    expect(passes(guard, "localhost:7420", "http://127.0.0.1:7420")).toBe(true);
    expect(passes(guard, "192.0.2.7:7420", "http://192.0.2.7:7420")).toBe(true);
    for (const origin of [
      "http://localhost:6274",
      "http://localhost",
      "https://localhost:7420",
      "http://127.0.0.1:3000",
      "http://[::1]:80",
      "null",
      "https://evil.example",
      "http://localhost.evil.example:7420",
      "file://",
      "http://localhost:7420/x",
      "",
    ]) {
      expect(passes(guard, "localhost:7420", origin), origin).toBe(false);
      expect(passes(guard, "localhost:3000", origin), origin).toBe(false);
    }
    expect(guard.sharesWith("http://localhost:7420")).toBe(false);
  });

  test("a browser that reports another site is refused, with and without an origin", () => {
    const from = (site: string, origin?: string) =>
      guard.refusal({ host: "localhost:7420", "sec-fetch-site": site, ...(origin === undefined ? {} : { origin }) });
    expect(from("none")).toBeUndefined();
    expect(from("same-origin", "http://localhost:7420")).toBeUndefined();
    for (const site of ["cross-site", "same-site", "", "same-origin, cross-site"]) {
      expect(from(site)).toContain("Sec-Fetch-Site");
      expect(from(site, "http://localhost:7420")).toContain("Sec-Fetch-Site");
    }
  });
});

describe("configured", () => {
  const guard = new HostGuard({
    listenHost: "0.0.0.0",
    allowedHosts: ["gate.example:8443", "Inner"],
    allowedOrigins: ["https://app.example"],
  });
  guard.listensOn("https", 443);

  test("the named hosts pass besides loopback; a name with a port means that port", () => {
    expect(passes(guard, "gate.example:8443")).toBe(true);
    expect(passes(guard, "inner:99")).toBe(true);
    expect(passes(guard, "gate.example")).toBe(false);
    expect(passes(guard, "localhost")).toBe(true);
    expect(passes(guard, "evil.example")).toBe(false);
  });

  test("the named origins and the listener's own pass, and the named ones may read the answers", () => {
    expect(passes(guard, "inner", "https://app.example")).toBe(true);
    expect(guard.refusal({ host: "inner", origin: "https://app.example", "sec-fetch-site": "cross-site" })).toBe(
      undefined,
    );
    expect(passes(guard, "inner", "http://app.example")).toBe(false);
    expect(passes(guard, "inner", "https://inner")).toBe(true);
    expect(passes(guard, "inner", "https://gate.example:8443")).toBe(true);
    expect(passes(guard, "inner", "https://gate.example")).toBe(false);
    expect(guard.sharesWith("https://app.example")).toBe(true);
    expect(guard.sharesWith("https://inner")).toBe(false);
    expect(guard.sharesWith(undefined)).toBe(false);
  });
});

test("a refusal says what was wrong and what to do", () => {
  const guard = new HostGuard({ listenHost: "127.0.0.1" });
  expect(guard.refusal({ host: "evil.example" })).toContain('"evil.example"');
  expect(guard.refusal({ host: "evil.example" })).toContain("allowedHosts");
  expect(guard.refusal({ host: "localhost", origin: "https://evil.example" })).toContain("allowedOrigins");
});
