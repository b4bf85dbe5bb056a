// A server that changed what it says, as an operator finds it: the difference first, then yes to exactly that.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pinKeeper } from "../../src/runtime/pins.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { createTelemetry } from "../../src/telemetry/index.js";
import { type Catalogue, PinKeeper } from "../../src/upstream/index.js";
import { portcullis, type Ran } from "./serving.js";

describe("a changed definition", () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-pins-"));
  let storage: Storage;
  const run = (...args: string[]): Ran => portcullis(["--dir", dir, ...args]);
  const offered = (description: string): Catalogue => ({
    revision: "2025-11-25",
    serverInfo: undefined,
    instructions: undefined,
    capabilities: {},
    tools: [{ name: "re\u202ead", description, inputSchema: {} }],
    resources: [],
    resourceTemplates: [],
    prompts: [],
  });
  beforeAll(async () => {
    storage = await openStorage(`sqlite:${dir}/portcullis.db`);
  });
  afterAll(async () => {
    await storage.close();
    rmSync(dir, { recursive: true, force: true });
  });

  it("a changed definition is shown with its old and new form, and accepted by its hash alone", async () => {
    expect(run("app", "add", "blog").code).toBe(0);
    const keeper = new PinKeeper(storage.pins);
    await keeper.accept("blog", "files", "first", offered("Reads"));
    expect(run("pin", "ls", "blog", "files").stdout).toBe("no definition is pending review\n");
    expect((await keeper.accept("blog", "files", "first", offered("Reads\u200b and sends"))).tools).toEqual([]);
    const { stdout } = run("pin", "ls", "blog", "files");
    expect(stdout).toMatch(/^tool "re\\u202ead" has changed, [0-9a-f]{12}\n/);
    expect(stdout).toContain('description\n- "Reads"\n+ "Reads\\u200b and sends"\n');
    const hash = /[0-9a-f]{12}/.exec(stdout)?.[0] as string;
    expect(run("pin", "accept", "blog", "files", "0".repeat(12))).toMatchObject({ code: 1 });
    expect(run("pin", "accept", "blog", "files", "abc")).toMatchObject({ code: 64 });
    expect(run("pin", "accept", "blog", "files", hash)).toMatchObject({ code: 0 });
    expect((await keeper.accept("blog", "files", "first", offered("Reads\u200b and sends"))).tools).toHaveLength(1);
    const pin = await storage.pins.get({ app: "blog", server: "files", kind: "tool", name: "re\u202ead" });
    expect(pin?.by).toMatch(/^cli:./);
    expect(run("pin", "ls", "nobody", "files")).toMatchObject({ code: 1 });
    expect(run("pin", "clear", "nobody", "files")).toMatchObject({ code: 1 });
    expect(run("pin", "clear", "blog", "files")).toMatchObject({ code: 0, stdout: "removed 1 pins of files\n" });
    expect((await keeper.accept("blog", "files", "first", offered("Reads"))).tools).toHaveLength(1);
  });

  it("a changed definition is accepted by the operator's rule for it, and no other change is", async () => {
    const entry = { command: "files", pinRules: [{ name: "wording", kinds: ["tool"], fields: ["description"] }] };
    expect(run("app", "set", "blog", "/servers/ruled", JSON.stringify(entry))).toMatchObject({ code: 0 });
    const telemetry = createTelemetry({ log: { level: "emergency" }, env: {} });
    const keeper = pinKeeper(storage, telemetry);
    await keeper.accept("blog", "ruled", "first", offered("Reads"));
    expect((await keeper.accept("blog", "ruled", "first", offered("Reads well"))).tools).toHaveLength(1);
    const pin = await storage.pins.get({ app: "blog", server: "ruled", kind: "tool", name: "re\u202ead" });
    expect(pin).toMatchObject({ status: "accepted", by: "rule:wording" });
    const wider = {
      ...offered("Reads"),
      tools: [{ name: "re\u202ead", description: "Reads", inputSchema: { type: "object" } }],
    };
    expect((await keeper.accept("blog", "ruled", "first", wider)).tools).toEqual([]);
    expect(run("app", "set", "blog", "/servers/ruled/pinRules", '[{"fields":["*"]}]')).toMatchObject({ code: 1 });
  });
});
