// Policy files, watched and swapped whole. A call is decided under the set it began with; a new set takes effect alone
// when it is good and on record (see recorded-policy.ts), and a bad one changes nothing.

import { createHash } from "node:crypto";
import { type FSWatcher, watch } from "node:fs";
import { dirname } from "node:path";
import {
  loadPolicy,
  type LoadPolicyOptions,
  PolicyInvalid,
  type PolicyProblem,
  type PolicySet,
  type PolicySource,
  type ToolSummary,
  readPolicyFiles,
} from "./cedar/index.js";
import { type CheckFile, type LoadedCheck, readCheckFile, withChecks } from "./check-file.js";
import { type PendingPolicy, RecordedPolicy, type RecordedPolicyOptions } from "./recorded-policy.js";

export interface PolicySwap {
  readonly from: string;
  readonly to: string;
  /** Hash that decisions name until the change is recorded. */
  readonly interim: string;
  readonly files: readonly string[];
}

export interface PolicyRefusal {
  /** Hash of the policy that stays in force. */
  readonly kept: string;
  readonly problems: readonly PolicyProblem[];
  readonly error: Error;
}

export type Reload =
  | ({ readonly outcome: "swapped" } & Omit<PolicySwap, "interim">)
  | { readonly outcome: "unchanged"; readonly hash: string }
  /** Good, and not recorded yet: the stricter of both applies, and recording is tried again. */
  | { readonly outcome: "pending"; readonly from: string; readonly to: string; readonly error: Error }
  | ({ readonly outcome: "refused" } & PolicyRefusal);

export interface WatchPolicyOptions {
  /** Files, and folders whose `*.cedar` files count. */
  paths: readonly string[];
  /** A policy in another language, which is read, judged and swapped together with the Cedar files. */
  checkFile?: CheckFile | undefined;
  /** Gives the set of these texts where it is known without loading them. */
  known?: (sources: readonly PolicySource[]) => PolicySet | undefined;
  /** The tools that a policy is checked against, as they are at that moment. */
  tools: () => readonly ToolSummary[];
  /** Whoever keeps the policy; it is also told the texts, to load them again beside others. */
  gate: {
    readonly policy: PolicySet;
    swap(policy: PolicySet, sources: readonly PolicySource[], checks: readonly LoadedCheck[]): void;
  };
  unknownTools?: LoadPolicyOptions["unknownTools"];
  /**
   * Called before the new policy takes effect alone, to record it. While this fails, the stricter of both applies and it
   * is called again.
   */
  onSwap?: (swap: PolicySwap) => void | Promise<void>;
  /** The change could not be recorded at the first attempt. */
  onPending?: (pending: PendingPolicy) => void;
  retries?: Pick<RecordedPolicyOptions, "firstPauseMs" | "longestPauseMs" | "waitMs">;
  onRefused?: (refusal: PolicyRefusal) => void;
  /** Files must stand unchanged for this long before they are read as a policy. */
  debounceMs?: number;
  /** Files are also looked at this often, for file systems that report no change; 0 never looks. */
  pollMs?: number;
}

export interface PolicyWatcher {
  /** Reads the files now and swaps when they are good: for SIGHUP, and for when the tools have changed. */
  reload(): Promise<Reload>;
  readonly files: readonly string[];
  /** Milliseconds since the files were last read and compared, by the monotonic clock. */
  readonly ageMs: number;
  /** Why the files as they are now are not in force; undefined when they are. */
  readonly refusal: string | undefined;
  /** The change that is not recorded yet. */
  readonly pending: PendingPolicy | undefined;
  close(): void;
}

/** Files that never stop changing are left to the next look. */
const MAX_SETTLING = 20;

/** Loads the policy, and throws what is wrong with it; from then on a bad policy is refused and the old one stays. */
export async function watchPolicy(options: WatchPolicyOptions): Promise<PolicyWatcher> {
  const watcher = new Watcher(options);
  const first = await watcher.reload();
  if (first.outcome === "refused" || first.outcome === "pending") {
    watcher.close();
    throw first.error;
  }
  watcher.watch();
  return watcher;
}

/** The files as they stand. A watched folder without a policy is a mistake, not a policy that denies everything. */
async function readSources(paths: readonly string[]): Promise<PolicySource[]> {
  const sources = await readPolicyFiles(paths);
  if (sources.length > 0) return sources;
  const help = "add a file whose name ends in .cedar";
  throw new PolicyInvalid([{ file: paths.join(", "), line: 0, column: 0, message: "holds no policy", help }]);
}

interface Look {
  readonly mark: string;
  readonly sources?: readonly PolicySource[];
  readonly checkText?: string | undefined;
  readonly error?: Error;
}

class Watcher implements PolicyWatcher {
  readonly #options: WatchPolicyOptions;
  readonly #debounceMs: number;
  readonly #watchers: FSWatcher[] = [];
  #files: readonly string[] = [];
  /** Content that was already judged: the same content is not judged again unless someone asks. */
  #judged = "";
  #timer: NodeJS.Timeout | undefined;
  #again = false;
  #poll: NodeJS.Timeout | undefined;
  /** Whatever looks or swaps does so one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: Promise<Reload> | undefined;
  #isWatching = false;
  #closed = false;
  #lookedAt = performance.now();
  #refusal: string | undefined;
  readonly #policy: RecordedPolicy;
  #sources: readonly PolicySource[] = [];
  #checks: readonly LoadedCheck[] = [];

  constructor(options: WatchPolicyOptions) {
    this.#options = options;
    const { gate, onSwap, onPending, retries } = options;
    this.#policy = new RecordedPolicy({
      ...retries,
      apply: (policy) => gate.swap(policy, this.#sources, this.#checks),
      record: ({ from, to, interim }) => {
        const files = this.files;
        return onSwap?.({ from, to: to.hash, interim, files });
      },
      ...(onPending ? { onPending } : {}),
    });
    this.#debounceMs = options.debounceMs ?? 200;
  }

  get files(): readonly string[] {
    return this.#files;
  }

  get ageMs(): number {
    return performance.now() - this.#lookedAt;
  }

  get refusal(): string | undefined {
    return this.#refusal;
  }

  get pending(): PendingPolicy | undefined {
    return this.#policy.pending;
  }

  reload(): Promise<Reload> {
    // Someone who asks while another waits for its turn gets the same answer: it will read the files after both asked.
    this.#waiting ??= this.#inTurn(async () => {
      this.#waiting = undefined;
      return this.#judge(await this.#look());
    });
    return this.#waiting;
  }

  watch(): void {
    this.#isWatching = true;
    // A file that is replaced by a rename is another file, so it is its folder that is watched.
    const { paths } = this.#options;
    const folders = new Set(paths.map((path) => (this.#files.includes(path) ? dirname(path) : path)));
    const { checkFile } = this.#options;
    if (checkFile) folders.add(dirname(checkFile.file));
    for (const folder of folders) this.#watchFolder(folder);
    const pollMs = this.#options.pollMs ?? 5_000;
    if (pollMs <= 0) return;
    this.#poll = setInterval(() => this.#noticed(), pollMs);
    this.#poll.unref();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#poll);
    this.#policy.close();
    for (const watcher of this.#watchers.splice(0)) watcher.close();
  }

  #watchFolder(folder: string): void {
    try {
      const watcher = watch(folder, { persistent: false }, () => this.#noticed());
      // A folder that went away reports no more; looking from time to time goes on.
      watcher.on("error", () => watcher.close());
      this.#watchers.push(watcher);
    } catch {
      // No watching here (too many watches, a file system without events): looking from time to time has to do.
    }
  }

  #noticed(): void {
    if (this.#closed) return;
    if (this.#timer !== undefined) {
      this.#again = true;
      return;
    }
    this.#again = false;
    const done = (): void => {
      this.#timer = undefined;
      // What changed while the last change was judged is a change of its own.
      if (this.#again) this.#noticed();
    };
    this.#timer = setTimeout(() => void this.#inTurn(() => this.#settle()).then(done, done), this.#debounceMs);
    this.#timer.unref();
  }

  /** A file that is being written is let be: half a policy may well be a valid one. */
  async #settle(): Promise<void> {
    let before = await this.#look();
    for (let i = 0; i < MAX_SETTLING && before.mark !== this.#judged && !this.#closed; i++) {
      await new Promise((resolve) => setTimeout(resolve, this.#debounceMs).unref());
      const now = await this.#look();
      if (now.mark === before.mark) return void (await this.#judge(now));
      before = now;
    }
  }

  async #look(): Promise<Look> {
    const look = await this.#read();
    // Files that cannot be read are as old as when they last could be.
    if (!look.error) this.#lookedAt = performance.now();
    return look;
  }

  async #read(): Promise<Look> {
    try {
      const sources = await readSources(this.#options.paths);
      const hash = createHash("sha256");
      for (const { file, text } of sources) hash.update(`${JSON.stringify(file)} ${text.length} ${text}\n`);
      const { checkFile } = this.#options;
      const checkText = checkFile && readCheckFile(checkFile.file);
      if (checkText !== undefined) hash.update(`\n${checkText}`);
      return { mark: hash.digest("hex"), sources, checkText };
    } catch (error) {
      return { mark: `unreadable: ${(error as Error).message}`, error: error as Error };
    }
  }

  async #judge(look: Look): Promise<Reload> {
    const { tools, unknownTools, known, checkFile } = this.#options;
    const from = this.#policy.recorded;
    this.#judged = look.mark;
    try {
      if (look.error) throw look.error;
      const sources = look.sources as readonly PolicySource[];
      const { checkText } = look;
      const checks = checkFile && checkText !== undefined ? [checkFile.load(checkText)] : [];
      const policy = withChecks(known?.(sources) ?? loadPolicy(sources, tools(), { unknownTools }), checks);
      if (this.#closed) throw new Error("the watcher was closed");
      this.#refusal = undefined;
      this.#sources = sources;
      this.#checks = checks;
      this.#files = [...sources, ...checks].map(({ file }) => file);
      const put = await this.#policy.put(policy);
      if (put.outcome === "pending") return { outcome: "pending", from, to: policy.hash, error: put.error };
      if (policy.hash === from) return { outcome: "unchanged", hash: from };
      return { outcome: "swapped", from, to: policy.hash, files: this.#files };
    } catch (error) {
      return this.#refused(from, error as Error);
    }
  }

  #refused(kept: string, error: Error): Reload {
    this.#refusal = error.message;
    const refusal = { kept, problems: error instanceof PolicyInvalid ? error.problems : [], error };
    // What is wrong at the start is thrown; after that there is nobody to throw it at.
    if (this.#isWatching && !this.#closed) this.#options.onRefused?.(refusal);
    return { outcome: "refused", ...refusal };
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }
}
