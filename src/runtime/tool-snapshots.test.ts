import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createServer, type Server } from "../server.js";
import { createTelemetry } from "../telemetry/index.js";
import { readSnapshot, snapshotApps, ToolSnapshots } from "./tool-snapshots.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-snapshots-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const snapshots = (): ToolSnapshots => new ToolSnapshots(dir, createTelemetry({ log: { level: "critical" } }));

function serverWith(count: number, description = "a tool"): Server {
  const server = createServer("module");
  for (let i = 0; i < count; i++) server.tool(`t${i}`, description, { type: "object", title: description }, () => "");
  return server;
}

it("keeps the last tools of each application, and the event loop turns while thousands are written", async () => {
  const kept = snapshots();
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  kept.put("a/b", serverWith(1), new Set());
  kept.put("a/b", serverWith(9_000), new Set(["t0"]));
  await kept.close();
  clearInterval(timer);
  expect(turns).toBeGreaterThan(0);
  expect(snapshotApps(dir)).toEqual(["a/b"]);
  const tools = readSnapshot(dir, "a/b");
  expect(tools).toHaveLength(9_000);
  expect(tools?.[0]).toMatchObject({ name: "t0", readOnly: true });
});

it("does not write the same tools again", async () => {
  const kept = snapshots();
  const server = serverWith(2);
  kept.put("app", server, new Set());
  await kept.close();
  const before = statSync(join(dir, "tools", "app.json")).ino;
  kept.put("app", server, new Set());
  await kept.close();
  expect(statSync(join(dir, "tools", "app.json")).ino).toBe(before);
});

it("writes nothing when the definitions are larger than the bound", async () => {
  const kept = snapshots();
  kept.put("app", serverWith(40, "x".repeat(500_000)), new Set());
  await kept.close();
  expect(readSnapshot(dir, "app")).toBeUndefined();
});
