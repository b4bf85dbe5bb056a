import { describe, expect, it } from "vitest";
import { causeOf, type UpstreamHealth } from "../upstream/index.js";
import { startRemedies } from "./server-sandbox.js";

const sandbox = {
  profile: { read: [], write: [], network: [], memoryBytes: 1, processors: 1, processes: 1 },
  destinations: [
    { host: "a.example.com", port: 443, allowed: true, count: 1 },
    { host: "b.example.com", port: undefined, allowed: false, count: 2, refusal: "profile", reason: "not named" },
    { host: "db.corp", port: 443, allowed: false, count: 1, refusal: "address", reason: "a private address" },
    { host: "c.example.com", port: 443, allowed: false, count: 1, refusal: "connection", reason: "no answer" },
  ],
} as unknown as NonNullable<UpstreamHealth["sandbox"]>;

describe("why a server does not start", () => {
  it("the cause of a failed start names what was refused and why, and the last lines of stderr", () => {
    expect(causeOf({ sandbox, stderr: "one\ntwo\n  three\nfour\n" })).toBe(
      "refused b.example.com: not named; refused db.corp: a private address; refused c.example.com: no answer; stderr ends: two | three | four",
    );
    expect(causeOf({ sandbox: undefined, stderr: "" })).toBe("");
    const stack =
      "Error: ENOENT: no such file, open '/x'\n    at a (b:1)\n    at c (d:2) {\n  code: 'ENOENT'\n}\n\nNode.js v20";
    expect(causeOf({ sandbox: undefined, stderr: stack })).toBe("stderr ends: Error: ENOENT: no such file, open '/x'");
  });

  it("the remedy of a failed start opens each host that the profile refused, and none that did not answer", () => {
    const remedies = startRemedies("local", "notes", { state: "failed", sandbox }).join("\n");
    expect(remedies).toContain("`portcullis server observe local notes --host b.example.com`");
    expect(remedies).toContain("`portcullis server observe local notes --host db.corp:443`");
    expect(remedies).not.toContain("c.example.com");
    expect(remedies).toContain("--read PATH");
    expect(startRemedies("local", "notes", { state: "ready", sandbox })).toEqual([]);
    expect(startRemedies("local", "notes", { state: "failed", sandbox: undefined })).toEqual([]);
  });
});
