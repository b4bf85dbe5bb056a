// Supervisors in stock: each confinement has its own, a free one is used again, idle ones go after a while.

import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { canonicalJson } from "../policy/policy.js";
import { bubblewrapArgs, bubblewrapFilter, changeUser } from "./bubblewrap.js";
import { makeCgroup, SUPERVISOR_THREADS } from "./cgroup.js";
import { type Confinement, mountsInside, type Protections, SCRATCH, type Without } from "./confinement.js";
import { supervisorEntry } from "./entry.js";
import { type Launchers, type LaunchLimits, launchers, launchPrefix, namespaceFlags } from "./launchers.js";
import type { StartMessage } from "./messages.js";
import { tasksOf } from "./processes.js";
import { Queue, type QueueLimits } from "./queue.js";
import { type Ending, type OutputStream, Supervisor, SupervisorFailed } from "./supervisor-link.js";

const run = promisify(execFile);

/** Of processor time, where a cgroup can limit it. */
const PROCESSORS = 2;
const MAX_IDLE_SUPERVISORS = 4;
const IDLE_MS = 60_000;

export interface RunRequest {
  readonly confinement: Confinement;
  readonly executable: string;
  /** Started in its place when only its reach is asked. */
  readonly startInstead?: string;
  readonly args: readonly string[];
  /** Paths that must be there too, or it cannot start. */
  readonly needs: readonly string[];
  /** Completed here with what depends on where the command runs (HOME, TMPDIR). */
  readonly env: (scratch: string) => Readonly<Record<string, string>>;
  readonly cwd: { readonly root: string; readonly rest: string } | undefined;
  readonly stdin: Buffer;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly limits: Omit<LaunchLimits, "processes">;
  readonly queue: QueueLimits;
  readonly signal?: AbortSignal | undefined;
  readonly onOutput?: ((stream: OutputStream, chunk: Buffer) => void) | undefined;
  /** Says no when what is in force is not enough; asked before anything runs. */
  readonly accept: (protections: Protections) => string | undefined;
}

export type RunOutcome =
  | { readonly kind: "ended"; readonly ending: Ending; readonly protections: Protections }
  | { readonly kind: "busy"; readonly why: "full" | "late" }
  | { readonly kind: "aborted" }
  | { readonly kind: "unavailable"; readonly reason: string }
  | { readonly kind: "refused"; readonly reason: string; readonly protections: Protections };

interface Kept {
  readonly key: string;
  readonly supervisor: Supervisor;
  readonly scratch: string;
  readonly confinement: Confinement;
  readonly byBubblewrap: boolean;
  readonly inUserNamespace: boolean;
  idleTimer: NodeJS.Timeout | undefined;
}

export class Sandbox {
  readonly #without: Without;
  readonly #idle: Kept[] = [];
  /** Being cleaned; the next command of the same kind waits for it rather than start another. */
  readonly #returning = new Map<Kept, Promise<void>>();
  readonly #all = new Set<Kept>();
  readonly #queue = new Queue();
  #closed = false;

  constructor(without: Without = {}) {
    this.#without = without;
  }

  async run(request: RunRequest): Promise<RunOutcome> {
    const turn = await this.#queue.take(request.queue, request.signal);
    if (turn.kind === "aborted") return { kind: "aborted" };
    if (turn.kind !== "turn") return { kind: "busy", why: turn.kind };
    let kept: Kept | undefined;
    try {
      const tools = await launchers();
      kept = await this.#take(request.confinement, tools);
      const protections = reported(kept, tools);
      const refused = request.accept(protections);
      if (refused !== undefined) return { kind: "refused", reason: refused, protections };
      return { kind: "ended", ending: await this.#runIn(kept, request, tools), protections };
    } catch (error) {
      return { kind: "unavailable", reason: error instanceof Error ? error.message : String(error) };
    } finally {
      turn.release();
      // The supervisor's next command waits until nothing of this one is left; this one's answer does not.
      void this.#giveBack(kept).catch(() => undefined);
    }
  }

  /** What would be in force for commands of this confinement, found by starting a supervisor. */
  async probe(confinement: Confinement): Promise<Protections> {
    const tools = await launchers();
    const kept = await this.#take(confinement, tools);
    const protections = reported(kept, tools);
    await this.#giveBack(kept);
    return protections;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#all].map((kept) => this.#end(kept)));
  }

  /** For tests: process ids of the supervisors. */
  get supervisorPids(): number[] {
    return [...this.#all].flatMap((kept) => kept.supervisor.pid ?? []);
  }

  #runIn(kept: Kept, request: RunRequest, tools: Launchers): Promise<Ending> {
    const { supervisor, confinement } = kept;
    supervisor.cgroup?.setLimits({
      memoryBytes: request.limits.maxMemoryBytes,
      processes: request.limits.maxProcesses,
      processors: PROCESSORS,
    });
    const prefix = launchPrefix(tools, { ...request.limits, processes: processLimit(kept, request) });
    const command = [...prefix, request.startInstead ?? request.executable, ...request.args];
    const directory = request.cwd === undefined ? kept.scratch : join(request.cwd.root, request.cwd.rest);
    const argv = kept.byBubblewrap
      ? [
          tools.bubblewrap ?? "",
          ...bubblewrapArgs(confinement, directory, tools.bubblewrapProc),
          ...changeUser(tools.setpriv, confinement),
          ...command,
        ]
      : command;
    const message = {
      argv,
      executable: request.executable,
      checkVisible: !kept.byBubblewrap,
      needs: request.needs,
      env: request.env(kept.scratch),
      cwd: kept.byBubblewrap ? undefined : request.cwd,
      stdin: request.stdin.toString("base64"),
      filter: (kept.byBubblewrap ? bubblewrapFilter(confinement.network) : undefined)?.toString("base64") ?? "",
      maxOutputBytes: request.maxOutputBytes,
    };
    return supervisor.run(message, {
      timeoutMs: request.timeoutMs,
      signal: request.signal,
      onOutput: request.onOutput,
    });
  }

  async #take(confinement: Confinement, tools: Launchers): Promise<Kept> {
    const key = canonicalJson(confinement);
    const free = this.#takeIdle(key);
    if (free !== undefined) return free;
    for (const [kept, returned] of this.#returning) {
      if (kept.key !== key) continue;
      await returned;
      const now = this.#takeIdle(key);
      if (now !== undefined) return now;
    }
    if (this.#closed) throw new SupervisorFailed("the sandbox is closed");
    return await this.#start(key, confinement, tools);
  }

  #takeIdle(key: string): Kept | undefined {
    const index = this.#idle.findIndex((kept) => kept.key === key && kept.supervisor.alive);
    const [found] = index < 0 ? [] : this.#idle.splice(index, 1);
    clearTimeout(found?.idleTimer);
    return found;
  }

  /** Best way first; a way that cannot even start leaves the next. */
  async #start(key: string, confinement: Confinement, tools: Launchers): Promise<Kept> {
    const without = this.#without;
    const isOff = confinement.mode === "off";
    const ownNamespaces = !isOff && tools.unshare !== undefined && without.userNamespace !== true;
    const ways = [
      ...(ownNamespaces ? [{ without, ownNamespaces: true }] : []),
      { without, ownNamespaces: false },
      { without: { ...without, view: true }, ownNamespaces: false },
      { without: { ...without, view: true, pidNamespace: true }, ownNamespaces: false },
    ];
    let failure: unknown;
    for (const way of ways) {
      try {
        const kept = await this.#startOne(key, confinement, tools, way.without, way.ownNamespaces, false);
        const isEnough = isOff || kept.supervisor.protections.files !== "none";
        if (isEnough || tools.bubblewrap === undefined || without.bubblewrap === true) return kept;
        await this.#end(kept);
        return await this.#startOne(key, confinement, tools, without, false, true);
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  async #startOne(
    key: string,
    confinement: Confinement,
    tools: Launchers,
    without: Without,
    hasOwnNamespaces: boolean,
    byBubblewrap: boolean,
  ): Promise<Kept> {
    const inUserNamespace = hasOwnNamespaces && process.geteuid?.() !== 0;
    const start: StartMessage = {
      type: "start",
      confinement,
      without,
      tmpdir: tmpdir(),
      inUserNamespace,
      hasOwnProcesses: hasOwnNamespaces,
      byBubblewrap,
    };
    const node = [process.execPath, "--max-old-space-size=256", supervisorEntry()];
    const argv =
      hasOwnNamespaces && tools.unshare !== undefined ? [tools.unshare, ...namespaceFlags(true), ...node] : node;
    const supervisor = await Supervisor.start(argv, start);
    const needsKill = supervisor.protections.processTree !== "pid-namespace";
    const cgroup = without.cgroup === true ? undefined : makeCgroup({ limits: true, kill: needsKill });
    if (cgroup !== undefined) supervisor.attach(cgroup);
    const kept: Kept = {
      key,
      supervisor,
      scratch: supervisor.scratch,
      confinement,
      byBubblewrap,
      inUserNamespace,
      idleTimer: undefined,
    };
    this.#all.add(kept);
    return kept;
  }

  async #giveBack(kept: Kept | undefined): Promise<void> {
    if (kept === undefined) return;
    const returned = this.#cleanAndKeep(kept).finally(() => this.#returning.delete(kept));
    this.#returning.set(kept, returned);
    await returned;
  }

  async #cleanAndKeep(kept: Kept): Promise<void> {
    const canStay = (await kept.supervisor.clean()) && !this.#closed;
    if (!canStay) return this.#end(kept);
    this.#idle.push(kept);
    kept.idleTimer = setTimeout(() => void this.#end(kept), IDLE_MS).unref();
    const oldest = this.#idle.length > MAX_IDLE_SUPERVISORS ? this.#idle[0] : undefined;
    if (oldest !== undefined) await this.#end(oldest);
  }

  async #end(kept: Kept): Promise<void> {
    clearTimeout(kept.idleTimer);
    const index = this.#idle.indexOf(kept);
    if (index >= 0) this.#idle.splice(index, 1);
    this.#all.delete(kept);
    await kept.supervisor.close();
    if (kept.scratch !== SCRATCH) await removeTree(kept.scratch);
  }
}

/** `rm` goes down by descriptors, so neither depth nor missing rights on a directory of our own stop it. */
async function removeTree(directory: string): Promise<void> {
  try {
    await run("chmod", ["-R", "u+rwX", "--", directory]).catch(() => undefined);
    await run("rm", ["-rf", "--", directory]);
  } catch {
    rmSync(directory, { recursive: true, force: true, maxRetries: 2 });
  }
}

function reported(kept: Kept, tools: Launchers): Protections {
  return {
    ...kept.supervisor.protections,
    rlimits: (tools.prlimit ?? tools.shell) !== undefined,
    parentDeathSignal: tools.setpriv !== undefined,
    // Looked at for every call: a mount can come at any time. Landlock's rules go on below it, a view leaves it out.
    openMounts: kept.supervisor.protections.files === "landlock" ? mountsInside(kept.confinement) : [],
  };
}

/** The limit counts everything of that user, so what the user already has is added, and it never binds root. */
function processLimit(kept: Kept, request: RunRequest): number | undefined {
  const { maxProcesses } = request.limits;
  const isOwnUser = kept.supervisor.protections.user !== "same";
  if (isOwnUser) return maxProcesses * request.queue.concurrency;
  const uid = process.geteuid?.();
  if (uid === undefined || uid === 0) return undefined;
  return maxProcesses + (kept.inUserNamespace ? SUPERVISOR_THREADS : tasksOf(uid));
}
