// Races against a second process that exchanges a directory (or a file) with a link to the outside, without pause.
// Each comes with a naive control that does what most servers do; a run in which the control does not escape is void.

import { execFile } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { executeCmdRun, executeFsWrite, loadYamlPolicy, type Policy, Sandbox } from "../../../src/host/index.js";
import { type OpeningMethod, useOpeningMethod } from "../../../src/host/paths/locate.js";
import { openForRead } from "../../../src/host/paths/read.js";
import { exchange, type Undo } from "./attack-setup.js";

const run = promisify(execFile);

export interface RaceResult {
  /** Refusals do not count: this many got through, rightly or wrongly. */
  readonly wanted: number;
  readonly tries: number;
  /** The right file, written or read. */
  readonly inside: number;
  readonly refused: number;
  readonly escaped: number;
  readonly naiveTries: number;
  readonly naiveEscaped: number;
}

/** A swap met on the way is a refusal, so more tries are needed than are to get through; but not without end. */
const MAX_TRIES_EACH = 200;

/** The control need not go on once it has shown what it can show, and on a busy machine it needs time, not tries. */
const ENOUGH_ESCAPES = 5;
const CONTROL_MS = 60_000;

async function control(
  attempt: (i: number) => boolean | Promise<boolean>,
): Promise<{ naiveTries: number; naiveEscaped: number }> {
  const until = Date.now() + CONTROL_MS;
  let naiveTries = 0;
  let naiveEscaped = 0;
  while (naiveEscaped < ENOUGH_ESCAPES && Date.now() < until) {
    if (await attempt(naiveTries)) naiveEscaped++;
    naiveTries++;
    await new Promise(setImmediate);
  }
  return { naiveTries, naiveEscaped };
}

interface Arena {
  readonly root: string;
  readonly writableRoot: string;
  readonly outside: string;
  readonly policy: Policy;
  readonly close: () => Promise<void>;
}

/** Pairs that are exchanged; few at a time, since the machine has few cores. */
type Swap = "root/sub" | "root/file" | "root/out/sub";

async function arena(sandbox: string, swaps: readonly Swap[]): Promise<Arena> {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "race-")));
  const [root, writableRoot, outside] = [join(base, "root"), join(base, "root/out"), join(base, "outside")];
  for (const directory of [join(root, "sub"), join(writableRoot, "sub"), outside])
    mkdirSync(directory, { recursive: true });
  for (const directory of [root, writableRoot]) writeFileSync(join(directory, "sub/f"), "INSIDE");
  writeFileSync(join(root, "file"), "INSIDE");
  writeFileSync(join(outside, "f"), "OUTSIDE");
  symlinkSync(outside, join(root, "sub-link"));
  symlinkSync(join(outside, "f"), join(root, "file-link"));
  symlinkSync(outside, join(writableRoot, "sub-link"));
  const file = join(base, "policy.yaml");
  const text = `version: 1
sandbox: ${sandbox}
allowedRoots: ["${root}"]
writeRules: [{ path: "${writableRoot}", recursive: true, createIfMissing: true }]
commands: [{ id: cat, exec: cat, args: { allow: [f] } }]
`;
  writeFileSync(file, text);
  const loaded = loadYamlPolicy(file);
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  const attackers: Undo[] = [];
  for (const swap of swaps) attackers.push(await exchange(join(base, swap), join(base, `${swap}-link`)));
  const close = async (): Promise<void> => {
    for (const stop of attackers) await stop();
    rmSync(base, { recursive: true, force: true });
  };
  return { root, writableRoot, outside, policy: loaded.policy, close };
}

export async function raceOpens(count: number, method?: OpeningMethod): Promise<RaceResult> {
  useOpeningMethod(method);
  const world = await arena("off", ["root/sub", "root/file"]);
  const tally = { inside: 0, refused: 0, escaped: 0 };
  const paths = [join(world.root, "sub/f"), join(world.root, "file"), join(world.root, "sub/../sub/f")];
  const buffer = Buffer.alloc(16);
  try {
    let i = 0;
    for (; tally.inside + tally.escaped < count && i < count * MAX_TRIES_EACH; i++) {
      const opened = openForRead(paths[i % paths.length] ?? "", world.policy.readableRoots, world.policy, "path");
      if (!("fd" in opened)) {
        tally.refused++;
        continue;
      }
      const text = buffer.toString("utf8", 0, readSync(opened.fd, buffer, 0, 16, 0));
      closeSync(opened.fd);
      if (text === "INSIDE") tally.inside++;
      else tally.escaped++;
      if (i % 5000 === 0) await new Promise(setImmediate);
    }
    const naive = await control((n) => naiveRead(paths[n % 2] ?? "", world.root) === "OUTSIDE");
    return { wanted: count, tries: i, ...tally, ...naive };
  } finally {
    useOpeningMethod(undefined);
    await world.close();
  }
}

function naiveRead(path: string, root: string): string {
  try {
    return realpathSync(path).startsWith(`${root}/`) ? readFileSync(path, "utf8") : "refused";
  } catch {
    return "refused";
  }
}

export async function raceWrites(count: number, method?: OpeningMethod): Promise<RaceResult> {
  useOpeningMethod(method);
  const world = await arena("off", ["root/out/sub"]);
  const tally = { inside: 0, refused: 0 };
  try {
    let i = 0;
    for (; tally.inside < count && i < count * MAX_TRIES_EACH; i++) {
      const name = `w-${i % 500}`;
      const outcome = await executeFsWrite(world.policy, {
        path: join(world.writableRoot, "sub", name),
        data: "DATA",
        overwrite: true,
      });
      if (outcome.ok) tally.inside++;
      else tally.refused++;
    }
    const escaped = readdirSync(world.outside).length - 1;
    const naive = await control((n) => {
      naiveWrite(join(world.writableRoot, "sub", `n-${n}`), world.writableRoot);
      return readdirSync(world.outside).includes(`n-${n}`);
    });
    return { wanted: count, tries: i, ...tally, escaped, ...naive };
  } finally {
    useOpeningMethod(undefined);
    await world.close();
  }
}

function naiveWrite(path: string, writableRoot: string): void {
  try {
    if (!realpathSync(dirname(path)).startsWith(`${writableRoot}/`)) return;
    writeFileSync(`${path}.tmp`, "NAIVE");
    renameSync(`${path}.tmp`, path);
  } catch {
    // Swapped between the two: not there any more.
  }
}

/**
 * With the sandbox off, so that nothing but the way the working directory is entered stands in the way. In a view the
 * writable root is a mount of its own, entered another way than the root around it.
 */
export async function raceSpawns(
  count: number,
  mode: "off" | "required",
  directory: "root/sub" | "root/out/sub" = "root/sub",
): Promise<RaceResult> {
  const world = await arena(mode, [directory]);
  const sandbox = new Sandbox();
  const tally = { inside: 0, refused: 0, escaped: 0 };
  try {
    const cwd = join(dirname(world.root), directory);
    const one = async (): Promise<void> => {
      const outcome = await executeCmdRun(world.policy, { commandId: "cat", args: ["f"], cwd }, { sandbox });
      if (!outcome.ok) tally.refused++;
      else if (outcome.result.stdout === "INSIDE") tally.inside++;
      else tally.escaped++;
    };
    let i = 0;
    for (; tally.inside + tally.escaped < count && i < count * MAX_TRIES_EACH; i += 2)
      await Promise.all([one(), one()]);
    const naive = await control(() => naiveSpawn(cwd, world.root));
    return { wanted: count, tries: i, ...tally, ...naive };
  } finally {
    await sandbox.close();
    await world.close();
  }
}

async function naiveSpawn(cwd: string, root: string): Promise<boolean> {
  try {
    if (!realpathSync(cwd).startsWith(`${root}/`)) return false;
    return (await run("cat", ["f"], { cwd })).stdout === "OUTSIDE";
  } catch {
    return false;
  }
}
