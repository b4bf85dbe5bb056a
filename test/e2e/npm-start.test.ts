// `npm start` as a supervisor runs it: the signal goes to npm, and the gateway has to end in order.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { root } from "./serving.js";

const dirs: string[] = [];
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true, force: true });
});

it("ends the gateway when npm start gets SIGTERM [G5]", async () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-npm-start-"));
  dirs.push(dir);
  const args = ["start", "--silent", "--", "--port", "0", "--admin-port", "0"];
  const env = { ...process.env, PORTCULLIS_DIR: dir };
  const npm = spawn("npm", args, { cwd: root, env, stdio: ["ignore", "pipe", "pipe"] });
  children.push(npm);
  let text = "";
  for (const stream of [npm.stdout, npm.stderr]) stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
  for (let i = 0; i < 600 && !text.includes("admin"); i++) await sleep(100);
  const admin = /admin\s+(http:\S+)/.exec(text)?.[1];
  const alive = await (await fetch(`${admin}/livez`)).text();
  expect(alive).toContain("ok");
  npm.kill("SIGTERM");
  for (let i = 0; i < 300; i++) {
    const isUp = await fetch(`${admin}/livez`).then(
      () => true,
      () => false,
    );
    if (!isUp) return;
    await sleep(100);
  }
  throw new Error("the gateway still answers 30 s after SIGTERM");
}, 120_000);
