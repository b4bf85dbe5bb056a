// Processes on one SQLite file, killed at any moment: what was acknowledged is there, once.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compileStorage } from "./fixtures/compile.js";
import { openStorage } from "./open.js";

const KILLS = Number(process.env.KILLS ?? (process.env.CI ? 10 : 40));
const PROCESSES = 3;

const directory = mkdtempSync(join(tmpdir(), "portcullis-kill-"));
let modules = "";
beforeAll(() => {
  modules = compileStorage(directory);
});
const running = new Set<ChildProcess>();
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(directory, { recursive: true, force: true });
});

it(`${KILLS} kills of processes that share a file lose and double nothing`, async () => {
  const address = `sqlite:${join(directory, "store.db")}`;
  const counted: number[] = [];
  const redeemed: string[] = [];
  let started = 0;
  const start = async (): Promise<ChildProcess> => {
    const counter = [join(modules, "fixtures/counter.js"), address, `p${++started}`];
    const child = spawn(process.execPath, counter, { stdio: ["ignore", "pipe", "inherit"] });
    running.add(child);
    child.once("close", () => running.delete(child));
    let rest = "";
    await new Promise<void>((resolve, reject) => {
      child.once("exit", (code, signal) => reject(new Error(`a process ended by itself: ${code ?? signal}`)));
      child.stdout?.setEncoding("utf8").on("data", (text: string) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (line === "ready") resolve();
          else if (line.startsWith("n ")) counted.push(Number(line.slice(2)));
          else redeemed.push(line);
        }
      });
    });
    return child;
  };
  const end = (child: ChildProcess): Promise<void> =>
    new Promise((resolve) => {
      child.once("close", () => resolve());
      child.kill("SIGKILL");
    });
  const children = await Promise.all(Array.from({ length: PROCESSES }, start));
  for (let kill = 0; kill < KILLS; kill++) {
    await new Promise((resolve) => setTimeout(resolve, 50 + Math.random() * 200));
    const at = kill % PROCESSES;
    await end(children[at] as ChildProcess);
    children[at] = await start();
  }
  await Promise.all(children.map(end));
  // No number twice: of two that read the same value one wrote it. No number is missing but those whose writer was
  // killed between the commit and the word of it.
  expect(new Set(counted).size).toBe(counted.length);
  const storage = await openStorage(address);
  const last = (await storage.values.get("blog", "n"))?.value as number;
  expect(Math.max(...counted)).toBeLessThanOrEqual(last);
  expect(last - counted.length).toBeLessThanOrEqual(KILLS + PROCESSES);
  expect(new Set(redeemed).size).toBe(redeemed.length);
  expect(redeemed.length).toBeGreaterThan(KILLS);
  await storage.close();
});
