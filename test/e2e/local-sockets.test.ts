// A local socket of the gateway would be an entry point without the checks of its ports.

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { expect, it } from "vitest";
import { childrenOf, serve } from "./serving.js";

const ACCEPTS_CONNECTIONS = "00010000";

function targets(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

it.runIf(process.platform === "linux").each([[[]], [["--workers", "2"]]])(
  "a gateway started with %j listens on no local socket, by path or by name",
  async (args) => {
    const serving = await serve(["--log-level", "error", ...args]);
    try {
      const pid = serving.child.pid as number;
      if (args.length > 0) await expect.poll(() => childrenOf(pid).length, { timeout: 30_000 }).toBe(2);
      const open = [pid, ...childrenOf(pid)].flatMap(targets).filter((target) => target.startsWith("socket:"));
      expect(open.length).toBeGreaterThan(0);
      // Columns: number, references, protocol, flags, type, state, inode, name.
      const listening = readFileSync("/proc/net/unix", "utf8")
        .split("\n")
        .map((line) => line.trim().split(/\s+/))
        .filter(([, , , flags]) => flags === ACCEPTS_CONNECTIONS);
      expect(listening.filter(([, , , , , , inode]) => open.includes(`socket:[${inode}]`))).toEqual([]);
    } finally {
      await serving.stop();
    }
  },
  90_000,
);
