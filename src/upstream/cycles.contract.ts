// Start and stop, again and again, with a daemon of its own session left behind each time: nothing may stay.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { expect, it } from "vitest";
import { type Containment, makeContainer } from "../host/index.js";
import { ownCgroupDirectory } from "../host/sandbox/cgroup.js";
import { closeAll, SERVER, structuredOf, tool, upstream } from "./fixtures/calling.js";

/** On the command line of every process that is started here. */
const MARK = randomUUID();

/** File descriptors of ours, with what they lead to. */
function descriptors(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`).replace(/\d+/g, "n")];
    } catch {
      return [];
    }
  });
}

function fixtureProcesses(): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
        return command.includes(MARK) ? [`${pid} ${command}`] : [];
      } catch {
        return [];
      }
    });
}

function cgroups(): string[] {
  const parent = ownCgroupDirectory();
  return parent === undefined ? [] : readdirSync(parent).filter((name) => name.includes(`-${process.pid}-`));
}

async function canHave(containment: Containment): Promise<boolean> {
  try {
    await (await makeContainer(containment)).remove();
    return true;
  } catch {
    return false;
  }
}

export function startStopCycles(cycles: number): void {
  it.runIf(process.platform === "linux").each(["cgroup", "pid-namespace", "process-group"] as const)(
    `${cycles} start-stop cycles leave no process and no file descriptor behind: %s [G8]`,
    async (containment) => {
      if (!(await canHave(containment))) return console.warn(`skipped: no ${containment} can be had here`);
      const before = descriptors().length;
      for (let cycle = 0; cycle < cycles; cycle++) {
        const args = [SERVER, `cycle-${MARK}`];
        const target = { transport: "stdio", command: process.execPath, args, containment } as const;
        const server = upstream({ name: "cycled", target });
        const mark = `leaked-${MARK}`;
        expect(
          structuredOf(
            await server.request(tool("leak", { mark, clean: cycle % 2 === 1 && containment !== "process-group" })),
          ),
        ).toHaveProperty("pid");
        // Every third one is ended in the middle of a call.
        if (cycle % 3 === 2) server.request(tool("hang")).catch(() => {});
        await server.close();
        await closeAll();
        if (cycle % 50 === 49) expect(fixtureProcesses()).toEqual([]);
      }
      expect(fixtureProcesses()).toEqual([]);
      expect(cgroups()).toEqual([]);
      await expect.poll(() => descriptors().length).toBeLessThanOrEqual(before + 1);
    },
  );
}
