// What follows from an observation.

import { describe, expect, it } from "vitest";
import { opened, proposed } from "./observe.js";

const MORE = { read: [], write: [], host: [] };

describe("the profile that an observation proposes", () => {
  it("a proposed profile keeps what was used, as it was used, and nothing else", () => {
    const current = {
      mode: "required",
      read: ["/a", "/unused"],
      write: ["/b", "/c", "/d"],
      network: "public",
    } as const;
    const touched = [
      { path: "/a/x", isWritten: false },
      { path: "/b/x", isWritten: true },
      { path: "/c/x", isWritten: false },
    ];
    const destinations = [
      { host: "api.example.com", port: 443, allowed: true, count: 2 },
      { host: "db.example.com", port: 5432, allowed: true, count: 1 },
    ];
    const { sandbox } = proposed(current, { touched, destinations }, MORE);
    expect(sandbox).toEqual({
      mode: "required",
      read: ["/a", "/c"],
      write: ["/b"],
      network: ["api.example.com", "db.example.com:5432"],
    });
  });

  it("a proposed profile opens nothing that was refused until the operator names it", () => {
    const seen = {
      touched: [
        { path: "/home/me/.ssh/id_rsa", isWritten: false },
        { path: "/data/x", isWritten: true },
      ],
      destinations: [{ host: "collect.example.com", port: undefined, allowed: false, count: 1 }],
    };
    const current = { mode: "required", read: ["/data"], network: "off" } as const;
    expect(proposed(current, seen, MORE)).toEqual({
      sandbox: { mode: "required", read: ["/data"], network: "off" },
      refusedPaths: seen.touched,
      refusedHosts: ["collect.example.com"],
    });
    expect(proposed(current, seen, { write: ["/data"], host: ["collect.example.com"] })).toEqual({
      sandbox: { mode: "required", write: ["/data"], network: ["collect.example.com"] },
      refusedPaths: [seen.touched[0]],
      refusedHosts: [],
    });
  });

  it("an observation begins with what the operator names, beside what was open", () => {
    expect(opened({ read: ["/a"], network: "off" }, { read: ["/b"], host: ["db.corp:5432"] })).toEqual({
      read: ["/a", "/b"],
      network: ["db.corp:5432"],
    });
    expect(opened({ network: "public" }, { host: ["db.corp"] })).toEqual({ network: ["public", "db.corp"] });
    expect(opened({ network: "on" }, { host: ["db.corp"] })).toEqual({ network: "on" });
    expect(opened({ network: ["a.example.com"] }, {})).toEqual({ network: ["a.example.com"] });
  });

  it("a host that did not answer is not offered as one to open", () => {
    const destinations = [
      { host: "a.example.com", port: 443, allowed: false, count: 1, refusal: "connection" } as const,
    ];
    expect(proposed({}, { destinations }, MORE).refusedHosts).toEqual([]);
  });

  it("a proposed profile keeps the package registry, which a cached package did not need", () => {
    const current = { network: ["registry.npmjs.org", "api.github.com"] };
    expect(proposed(current, {}, MORE).sandbox).toEqual({ network: ["registry.npmjs.org"] });
  });
});
