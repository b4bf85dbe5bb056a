// The policy loop on servers that were imported from a client: observe, suggest, check, explain, test, replay, doctor;
// with the gateway running and stopped.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Newcomer, newcomer } from "./first-hour.js";

let user: Newcomer;
beforeAll(async () => {
  user = newcomer();
  expect(user.run("import", "--from", user.claude, "--only", "filesystem", "--yes").code).toBe(0);
  const gateway = await user.serve("--observe", "--keep-arguments");
  const read = JSON.stringify({ path: join(user.files, "plan.txt") });
  const called = user.run("call", "filesystem.read_text_file", read, "--url", gateway.url);
  expect(called.code, called.stderr).toBe(0);
  expect(called.stdout).toContain("water the plants");
  await gateway.stop();
});
afterAll(() => user?.close());

it("suggests rules for the tools of imported servers from what was observed", () => {
  const { code, stdout } = user.run("policy", "suggest");
  expect(code).toBe(0);
  expect(stdout).toContain('Action::"filesystem.read_text_file"');
  writeFileSync(join(user.folder, "suggested.cedar"), stdout);
  expect(user.run("policy", "check", "--policy", "suggested.cedar").code).toBe(0);
});

it("checks the application's own policies with the gateway stopped", () => {
  const checked = user.run("--json", "policy", "check");
  expect(checked.code, checked.stderr).toBe(0);
  expect(JSON.parse(checked.stdout)).toMatchObject({ ok: true });
});

it("explains calls of imported tools by the application's own rules", () => {
  const args = JSON.stringify({ path: join(user.files, "plan.txt") });
  const read = user.run("policy", "explain", "filesystem.read_text_file", args);
  expect(read.code, read.stderr).toBe(0);
  expect(read.stdout).toContain("ask-unless-it-reads");
  const unknown = user.run("policy", "explain", "no_such_tool");
  expect(unknown.code).toBe(64);
  expect(unknown.stderr).toContain("filesystem.read_text_file");
});

it("replays the recorded calls of imported tools against another policy", () => {
  writeFileSync(join(user.folder, "nothing.cedar"), '@id("none") forbid (principal, action, resource);\n');
  const replay = JSON.parse(user.run("--json", "audit", "replay", "nothing.cedar").stdout) as { compared: number };
  expect(replay.compared).toBeGreaterThan(0);
});

it("asks for --app where there are several applications, and checks all of them without it", () => {
  expect(user.run("app", "add", "second").code).toBe(0);
  const explained = user.run("policy", "explain", "filesystem.read_text_file");
  expect(explained.code).toBe(64);
  expect(explained.stderr).toContain("--app");
  const app = /known: (.*)/
    .exec(explained.stderr)?.[1]
    ?.split(", ")
    .find((name) => name !== "second") as string;
  expect(user.run("policy", "explain", "filesystem.read_text_file", "--app", app).code).toBe(2);
  const checked = user.run("policy", "check");
  expect(checked.stdout).toContain(`${app}:`);
});
