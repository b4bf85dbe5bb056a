// Policy files, watched and swapped whole. A call is decided under the set it began with; a new set takes effect alone
// when it is good and on record (see recorded-policy.ts), and a bad one changes nothing.

import { createHash } from "node:crypto";
import { type FSWatcher, readFileSync, statSync, watch } from "node:fs";
import { dirname } from "node:path";
import { type LoadPolicyOptions, loadPolicy } from "./cedar/load.js";
import { readPolicyFiles } from "./cedar/source.js";
import {
  PolicyInvalid,
  type PolicyProblem,
  type PolicySet,
  type PolicySource,
  type ToolSummary,
} from "./cedar/types.js";
import type { Check } from "./decide.js";
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
  /** Files, and directories whose `*.cedar` files count. */
  paths: readonly string[];
  /** Texts for which it is false are left out; those of all files count where it is not given. */
  isInForce?: (source: PolicySource) => boolean;
  /** A policy in another language, which is read, validated and replaced together with the Cedar files. */
  checkFile?: CheckFile | undefined;
  /** Gives the set of these texts where it is known without loading them. */
  known?: (sources: readonly PolicySource[]) => PolicySet | undefined;
  /** The tools that a policy is checked against, as they are at that moment. */
  tools: () => readonly ToolSummary[];
  /** Receives the policy, and its texts, so that it can load them again with others. */
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

/** Files that never stop changing are left to the next poll. */
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

/** The files as they are now. A watched directory without a policy is a mistake, not a policy that denies everything. */
async function readSources({ paths, isInForce = () => true }: WatchPolicyOptions): Promise<PolicySource[]> {
  const sources = (await readPolicyFiles(paths)).filter(isInForce);
  if (sources.length > 0) return sources;
  const help = "add a file whose name ends in .cedar";
  throw new PolicyInvalid([{ file: paths.join(", "), line: 0, column: 0, message: "holds no policy", help }]);
}

interface PolicyFiles {
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
  /** Content that was already validated: the same content is validated again only by `reload`. */
  #validated = "";
  #timer: NodeJS.Timeout | undefined;
  #again = false;
  #poll: NodeJS.Timeout | undefined;
  /** Reads and swaps happen one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #waiting: Promise<Reload> | undefined;
  #isWatching = false;
  #closed = false;
  #readAt = performance.now();
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
    return performance.now() - this.#readAt;
  }

  get refusal(): string | undefined {
    return this.#refusal;
  }

  get pending(): PendingPolicy | undefined {
    return this.#policy.pending;
  }

  reload(): Promise<Reload> {
    // Concurrent callers share one reload, which reads the files after all of them called.
    this.#waiting ??= this.#inTurn(async () => {
      this.#waiting = undefined;
      return this.#apply(await this.#readNow());
    });
    return this.#waiting;
  }

  watch(): void {
    this.#isWatching = true;
    // A file that is replaced by a rename is another file, so it is its directory that is watched.
    const { paths } = this.#options;
    const directories = new Set(paths.map((path) => (this.#files.includes(path) ? dirname(path) : path)));
    const { checkFile } = this.#options;
    if (checkFile) directories.add(dirname(checkFile.file));
    for (const directory of directories) this.#watchDirectory(directory);
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

  #watchDirectory(directory: string): void {
    try {
      const watcher = watch(directory, { persistent: false }, () => this.#noticed());
      // A removed directory reports no more events; polling continues.
      watcher.on("error", () => watcher.close());
      this.#watchers.push(watcher);
    } catch {
      // Without watching (too many watches, a file system without events) the files are polled.
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
      // What changed while the last change was validated is a change of its own.
      if (this.#again) this.#noticed();
    };
    this.#timer = setTimeout(() => void this.#inTurn(() => this.#settle()).then(done, done), this.#debounceMs);
    this.#timer.unref();
  }

  /** Waits until a file that is being written is complete: half of a policy may be valid. */
  async #settle(): Promise<void> {
    let before = await this.#readNow();
    for (let i = 0; i < MAX_SETTLING && before.mark !== this.#validated && !this.#closed; i++) {
      await new Promise((resolve) => setTimeout(resolve, this.#debounceMs).unref());
      const now = await this.#readNow();
      if (now.mark === before.mark) return void (await this.#apply(now));
      before = now;
    }
  }

  async #readNow(): Promise<PolicyFiles> {
    const found = await this.#read();
    // Files that cannot be read are as old as when they last could be.
    if (!found.error) this.#readAt = performance.now();
    return found;
  }

  async #read(): Promise<PolicyFiles> {
    try {
      const sources = await readSources(this.#options);
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

  async #apply(found: PolicyFiles): Promise<Reload> {
    const { tools, unknownTools, known, checkFile } = this.#options;
    const from = this.#policy.recorded;
    this.#validated = found.mark;
    try {
      if (found.error) throw found.error;
      const sources = found.sources as readonly PolicySource[];
      const { checkText } = found;
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
    // Errors at the start are thrown; later ones have no caller and are reported.
    if (this.#isWatching && !this.#closed) this.#options.onRefused?.(refusal);
    return { outcome: "refused", ...refusal };
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }
}

export interface CheckFile {
  readonly file: string;
  /** Throws when the text is not a valid policy. */
  load(text: string): LoadedCheck;
}

export interface LoadedCheck {
  readonly file: string;
  /** Names what the file decides. */
  readonly hash: string;
  readonly check: Check;
  /** Called when the check starts to decide, possibly more than once. */
  readonly onApplied?: () => void;
}

const MAX_BYTES = 16 * 1024 * 1024;

/** Throws PolicyInvalid. */
function readCheckFile(file: string): string {
  try {
    if (statSync(file).size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
    return readFileSync(file, "utf8");
  } catch (error) {
    const message = `cannot be read: ${(error as Error).message}`;
    throw new PolicyInvalid([{ file, line: 0, column: 0, message, help: "check the file" }]);
  }
}

/** The same rules with further checks. The hash names both, so that a record tells which of them decided. */
export function withChecks(set: PolicySet, checks: readonly LoadedCheck[]): PolicySet {
  if (checks.length === 0) return set;
  const hash = createHash("sha256").update(["with checks", set.hash, ...checks.map((each) => each.hash)].join("\n"));
  return {
    hash: hash.digest("hex"),
    rules: set.rules,
    warnings: set.warnings,
    usesWasmFallbackFor: set.usesWasmFallbackFor,
    conditions: set.conditions,
    checks: [...(set.checks ?? []), ...checks],
    decide: (request) => set.decide(request),
    explain: (request) => set.explain(request),
    outlook: (request) => set.outlook(request),
  };
}
