// The policy loop on servers that were imported from a client: observe, suggest, check, explain, test, replay, doctor;
// with the gateway running and stopped.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Newcomer, newcomer } from "./first-hour.js";
import type { Ran } from "./serving.js";

/** By a gateway of a user who works on this machine. */
const isUsualPortTaken = await new Promise<boolean>((resolve) => {
  const socket = connect(7420, "127.0.0.1", () => resolve(true));
  socket.on("error", () => resolve(false));
  socket.on("connect", () => socket.destroy());
});

let user: Newcomer;
let beforeServed: Ran;
beforeAll(async () => {
  user = newcomer();
  expect(user.run("import", "--from", user.claude, "--only", "filesystem", "--yes").code).toBe(0);
  beforeServed = user.run("policy", "check");
  const gateway = await user.serve("--observe", "--keep-arguments");
  const read = JSON.stringify({ path: join(user.files, "plan.txt") });
  const called = user.run("call", "filesystem.read_text_file", read, "--url", gateway.url);
  expect(called.code, called.stderr).toBe(0);
  expect(called.stdout).toContain("water the plants");
  await gateway.stop();
});
afterAll(() => user?.close());

it("policy check of imported policies before they are served says that the tools are not known yet", () => {
  expect(beforeServed).toEqual({
    code: 0,
    stdout: expect.stringMatching(/^ok: 5 rules, [0-9a-f]{12}\n$/),
    stderr: "the tools of local are not known yet: check it again once `portcullis serve` has run\n",
  });
});

it("policy check reads the application's own policies while the gateway is stopped", () => {
  const checked = user.run("--json", "policy", "check");
  expect(checked.code, checked.stderr).toBe(0);
  expect(JSON.parse(checked.stdout)).toMatchObject({ ok: true });
});

it("policy explain explains calls of imported tools by the application's own rules", () => {
  const args = JSON.stringify({ path: join(user.files, "plan.txt") });
  const read = user.run("policy", "explain", "filesystem.read_text_file", args);
  expect(read.code, read.stderr).toBe(0);
  expect(read.stdout).toContain("ask-unless-it-reads");
  const unknown = user.run("policy", "explain", "no_such_tool");
  expect(unknown.code).toBe(64);
  expect(unknown.stderr).toContain("filesystem.read_text_file");
});

it("rules for tools that the application does not have, such as the demonstration's, are warnings of every policy command", () => {
  const folder = join(user.data, "policy");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "demo.cedar");
  writeFileSync(file, '@id("demo") permit (principal, action == Action::"filesystem.read_text_fil", resource);\n');
  try {
    const checked = user.run("policy", "check");
    expect(checked.code, checked.stderr).toBe(0);
    expect(checked.stdout).toContain(
      'there is no tool or method filesystem.read_text_fil here (did you mean Action::"filesystem.read_text_file"?)',
    );
    const args = JSON.stringify({ path: join(user.files, "plan.txt") });
    expect(user.run("policy", "explain", "filesystem.read_text_file", args).code).toBe(0);
    const changed = user.run("policy", "diff", file, file, "--recorded");
    expect([changed.code, changed.stdout]).toEqual([0, expect.stringMatching(/^0 of [1-9]\d* decisions differ$/m)]);
    const replayed = user.run("audit", "replay", file);
    expect(replayed.code, replayed.stderr).toBe(0);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it("ls --app lists the tools of an application with the gateway stopped, as its policies show them [H5]", () => {
  const { code, stdout, stderr } = user.run("ls", "--app", "local");
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/^filesystem\.read_text_file {2,}Read the complete contents/m);
  expect(stdout).toMatch(/^filesystem\.write_file {2,}needs approval {2,}/m);
  expect(stderr).toBe("application local as it served last, by the policies stored now\n");
  const elsewhere = user.run("ls", "--url", "http://127.0.0.1:1/mcp");
  expect([elsewhere.code, elsewhere.stdout]).toEqual([1, ""]);
  const unknown = user.run("ls", "--app", "lokal");
  expect([unknown.code, unknown.stdout]).toEqual([64, ""]);
  expect(unknown.stderr).toContain("unknown application `lokal`");
  expect(user.run("ls", "--app", "local", "--url", "http://127.0.0.1:1/mcp").code).toBe(64);
});

it.skipIf(isUsualPortTaken)(
  "ls lists the tools that were served last when no gateway answers at the usual address",
  () => {
    const { code, stdout, stderr } = user.run("ls");
    expect(code, stderr).toBe(0);
    expect(stdout).toMatch(/^filesystem\.write_file {2,}needs approval {2,}/m);
    expect(stderr).toContain("no gateway answers at http://127.0.0.1:7420/mcp: application local as it served last");
  },
);

it("doctor checks one application with --app, and no unknown one", () => {
  const found = user.run("doctor", "--app", "local");
  expect(found.code, found.stdout).toBe(0);
  expect(found.stdout).toContain("policy of local: 5 rules");
  expect(found.stdout).toContain("a real call to local/filesystem: filesystem.list_allowed_directories answered");
  const unknown = user.run("doctor", "--app", "lokal");
  expect(unknown.code).toBe(64);
  expect(unknown.stderr).toContain("known: local");
});

it("policy explain requires --app where there are several applications, and policy check checks all of them without it", () => {
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
