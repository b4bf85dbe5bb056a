// An application's definition files: one bare repository, one branch, one commit for each change. There is no work
// tree, so no name a caller chooses ever becomes a path on disk.

import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, isAbsolute, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../protocol/index.js";
import { type Author, authorEnvironment, commitMessage } from "./commit.js";
import { checkFilePath } from "./file-path.js";
import { Git } from "./git.js";
import { DEFAULT_STATE_LIMITS, type StateLimits, type StateSettings } from "./settings.js";
import { busy, inTurn, removeStale } from "./turns.js";

const BRANCH = "refs/heads/main";
/** How often the size on disk is looked at, and old objects are packed. */
const MEASURE_EVERY = 64;
const PACK_EVERY = 256;
/** A temporary index of this age belongs to a process that was killed. */
const LEFT_BEHIND_MS = 3_600_000;

export interface DefinitionFile {
  readonly content: string;
  /** Names these contents: the id of git's blob. */
  readonly revision: string;
}

export interface Change {
  readonly path: string;
  readonly author: Author;
  readonly message: string;
  /** What the file must be now; null: it must not exist. */
  readonly expectedRevision?: string | null;
  /** Given the contents there are now, says the new ones; undefined deletes. Asked again when another writer was faster. */
  readonly edit: (current: () => Promise<string | undefined>) => Promise<string | undefined> | string | undefined;
  readonly signal?: AbortSignal;
}

export interface Changed {
  readonly commit: string;
  /** Undefined: the file is gone. */
  readonly revision: string | undefined;
  readonly created: boolean;
  /** False when the file already was what it should become; then there is no new commit. */
  readonly changed: boolean;
}

interface Tip {
  readonly commit: string | undefined;
  readonly blob: string | undefined;
}

export class Repository {
  readonly limits: StateLimits;
  readonly #folder: string;
  readonly #git: Git;
  #made: Promise<void> | undefined;
  #writes = 0;
  #packing: Promise<unknown> | undefined;

  constructor(settings: StateSettings) {
    if (!isAbsolute(settings.repository)) throw new TypeError("state.repository must be an absolute path");
    this.limits = { ...DEFAULT_STATE_LIMITS, ...settings.limits };
    this.#folder = settings.repository;
    this.#git = new Git(settings.repository, this.limits.gitTimeoutMs);
  }

  /** Undefined: there is no such file, now or in that commit. */
  async read(path: string, commit?: string): Promise<DefinitionFile | undefined> {
    checkFilePath(path);
    await this.#make();
    if (commit !== undefined && !(await this.#isOurs(commit))) throw noSuchCommit();
    const out = await this.#git.ask(["cat-file", "--batch"], {
      input: `${commit ?? BRANCH}:${path}\n`,
      maxBytes: this.limits.maxFileBytes * 2 + 4_096,
    });
    const [revision, type, size] = out.subarray(0, out.indexOf(0x0a)).toString("utf8").split(" ");
    if (type === "tree") throw isFolder(path);
    if (type !== "blob" || revision === undefined) return undefined;
    const start = out.indexOf(0x0a) + 1;
    return { content: out.toString("utf8", start, start + Number(size)), revision };
  }

  /** INVARIANT: the branch moves from the very commit that the change was made on, or it does not move. */
  async change(change: Change): Promise<Changed> {
    checkFilePath(change.path);
    await this.#make();
    const done = await inTurn(this.#folder, this.limits, async () => {
      for (let attempt = 0; attempt < this.limits.maxAttempts; attempt++) {
        change.signal?.throwIfAborted();
        const result = await this.#tryChange(change);
        if (result !== undefined) return result;
        await pause(Math.random() * Math.min(100, 5 * 2 ** Math.min(attempt, 5)));
      }
      throw busy();
    });
    if (done.changed) this.#afterWrite();
    return done;
  }

  /** Newest first. */
  async history(path: string, max: number): Promise<HistoryEntry[]> {
    checkFilePath(path);
    await this.#make();
    if ((await this.#head()) === undefined) return [];
    const format = "--format=%H%x00%cI%x00%an%x00%s%x00%(trailers:key=Trace,valueonly,separator=)";
    const out = await this.#git.ask(["log", "-z", `--max-count=${max}`, format, BRANCH, "--", path]);
    const fields = out.toString("utf8").split("\0");
    const entries: HistoryEntry[] = [];
    for (let i = 0; i + 4 < fields.length; i += 5) {
      const [commit = "", at = "", agent = "", message = "", trace = ""] = fields.slice(i, i + 5);
      entries.push({ commit, at, agent, message, trace });
    }
    return entries;
  }

  /** Resolves when no packing is under way. */
  async idle(): Promise<void> {
    await this.#packing;
  }

  async #tryChange(change: Change): Promise<Changed | undefined> {
    const { path, expectedRevision } = change;
    const tip = await this.#tip(path);
    if (expectedRevision !== undefined && expectedRevision !== (tip.blob ?? null)) throw conflict(path, tip.blob);
    const wanted = await change.edit(async () => (await this.#blob(tip.blob))?.toString("utf8"));
    if (wanted === undefined && tip.blob === undefined) throw notThere(path);
    this.#checkContent(wanted);
    const blob = wanted === undefined ? undefined : await this.#store(wanted);
    const created = tip.blob === undefined;
    if (blob === tip.blob && tip.commit !== undefined) {
      return { commit: tip.commit, revision: blob, created: false, changed: false };
    }
    await this.#checkSize();
    const tree = await this.#tree(tip.commit, path, blob, created);
    const commit = await this.#commit(tree, tip.commit, change);
    change.signal?.throwIfAborted();
    return (await this.#move(tip.commit, commit)) ? { commit, revision: blob, created, changed: true } : undefined;
  }

  /** The commit first, then what is in it: if the branch moves in between, the commit is no longer its tip. */
  async #tip(path: string): Promise<Tip> {
    const names = path.split("/");
    const above = names.slice(1).map((_, i) => names.slice(0, i + 1).join("/"));
    const asked = [BRANCH, ...[...above, path].map((name) => `${BRANCH}:${name}`)];
    const out = await this.#git.ask(["cat-file", "--batch-check=%(objectname) %(objecttype)"], {
      input: `${asked.join("\n")}\n`,
    });
    const found = out
      .toString("utf8")
      .split("\n")
      .map((line) => /^([0-9a-f]{40,64}) (blob|tree|commit)$/.exec(line));
    const file = found[asked.length - 1];
    const blocking = found.slice(1, asked.length - 1).findIndex((entry) => entry?.[2] === "blob");
    if (blocking >= 0) throw isFile(above[blocking] as string);
    if (file?.[2] === "tree") throw isFolder(path);
    return { commit: found[0]?.[1], blob: file?.[1] };
  }

  async #head(): Promise<string | undefined> {
    const { code, stdout } = await this.#git.run(["rev-parse", "--verify", "--quiet", `${BRANCH}^{commit}`]);
    return code === 0 ? stdout.toString("utf8").trim() : undefined;
  }

  async #blob(id: string | undefined): Promise<Buffer | undefined> {
    if (id === undefined) return undefined;
    return await this.#git.ask(["cat-file", "blob", id], { maxBytes: this.limits.maxFileBytes * 2 });
  }

  async #isOurs(commit: string): Promise<boolean> {
    if (!/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(commit)) return false;
    return (await this.#git.run(["merge-base", "--is-ancestor", commit, BRANCH])).code === 0;
  }

  async #store(content: string): Promise<string> {
    const out = await this.#git.ask(["hash-object", "-w", "--no-filters", "--stdin"], { input: content });
    return out.toString("utf8").trim();
  }

  async #tree(parent: string | undefined, path: string, blob: string | undefined, created: boolean): Promise<string> {
    const index = join(this.#folder, `index-${randomUUID()}.tmp`);
    const env = { GIT_INDEX_FILE: index };
    try {
      if (parent !== undefined) await this.#git.ask(["read-tree", parent], { env });
      const none = "0".repeat(parent?.length ?? 40);
      const entry = blob === undefined ? `0 ${none}\t${path}\0` : `100644 ${blob}\t${path}\0`;
      await this.#git.ask(["update-index", "-z", "--index-info"], { env, input: entry });
      if (created) await this.#checkCount(env);
      return (await this.#git.ask(["write-tree"], { env })).toString("utf8").trim();
    } finally {
      rmSync(index, { force: true });
    }
  }

  async #commit(tree: string, parent: string | undefined, change: Change): Promise<string> {
    const parents = parent === undefined ? [] : ["-p", parent];
    const out = await this.#git.ask(["commit-tree", tree, ...parents, "-F", "-"], {
      input: commitMessage(change.message, change.author),
      env: authorEnvironment(change.author),
    });
    return out.toString("utf8").trim();
  }

  /** False: another writer was faster, or git's own lock is taken. */
  async #move(from: string | undefined, to: string): Promise<boolean> {
    const old = from ?? "0".repeat(to.length);
    const { code } = await this.#git.run(["update-ref", "--no-deref", "-m", "core.state", BRANCH, to, old]);
    if (code === 0) return true;
    // Ended while it wrote: what the branch says now is what happened.
    if ((await this.#git.run(["merge-base", "--is-ancestor", to, BRANCH])).code === 0) return true;
    removeStale(join(this.#folder, `${BRANCH}.lock`));
    removeStale(join(this.#folder, "packed-refs.lock"));
    return false;
  }

  #checkContent(content: string | undefined): void {
    if (content === undefined) return;
    const bytes = Buffer.byteLength(content);
    if (bytes > this.limits.maxFileBytes) {
      throw tooMuch("maxFileBytes", `the file would have ${bytes} bytes; ${this.limits.maxFileBytes} are allowed`);
    }
    if (!(content as string & { isWellFormed(): boolean }).isWellFormed()) {
      throw new Fault("ValidationError", "the contents hold half a character (a lone surrogate)", {
        rule: "definitionFileText",
        field: "content",
      });
    }
  }

  async #checkCount(env: Readonly<Record<string, string>>): Promise<void> {
    const names = await this.#git.ask(["ls-files", "-z"], { env, maxBytes: (this.limits.maxFiles + 1) * 1_100 });
    const count = names.reduce((sum, byte) => (byte === 0 ? sum + 1 : sum), 0);
    if (count > this.limits.maxFiles) {
      throw tooMuch("maxFiles", `there are ${this.limits.maxFiles} files already, as many as there may be`);
    }
  }

  async #checkSize(): Promise<void> {
    if (this.#writes % MEASURE_EVERY !== 0) return;
    const counted = (await this.#git.ask(["count-objects", "-v"])).toString("utf8");
    const kib = (name: string): number => Number(new RegExp(`^${name}: (\\d+)$`, "m").exec(counted)?.[1] ?? 0);
    if ((kib("size") + kib("size-pack")) * 1024 > this.limits.maxRepositoryBytes) {
      throw tooMuch("maxRepositoryBytes", "the files and their history take as much room as they may");
    }
  }

  #afterWrite(): void {
    if (++this.#writes % PACK_EVERY !== 0 || this.#packing !== undefined) return;
    const packing = this.#git.run(["gc", "--auto", "--quiet"]);
    this.#packing = packing.catch(() => undefined).finally(() => (this.#packing = undefined));
  }

  #make(): Promise<void> {
    this.#made ??= this.#makeOnce().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    });
    return this.#made;
  }

  #sweep(): void {
    for (const name of readdirSync(this.#folder)) {
      if (/^index-.*\.tmp(\.lock)?$/.test(name)) removeStale(join(this.#folder, name), LEFT_BEHIND_MS);
    }
  }

  /** Made aside and put in place whole, so that of two processes that begin at once neither sees half of it. */
  async #makeOnce(): Promise<void> {
    if (statSync(join(this.#folder, "HEAD"), { throwIfNoEntry: false }) !== undefined) return this.#sweep();
    mkdirSync(dirname(this.#folder), { recursive: true, mode: 0o700 });
    const draft = `${this.#folder}.${randomUUID()}.new`;
    const git = new Git(draft, this.limits.gitTimeoutMs);
    try {
      mkdirSync(draft, { mode: 0o700 });
      await git.ask(["init", "--quiet", "--bare", "--template=", "--initial-branch=main", draft]);
      renameSync(draft, this.#folder);
    } catch (error) {
      rmSync(draft, { recursive: true, force: true });
      if (statSync(join(this.#folder, "HEAD"), { throwIfNoEntry: false }) === undefined) throw error;
    }
  }
}

export interface HistoryEntry {
  readonly commit: string;
  readonly at: string;
  readonly agent: string;
  readonly message: string;
  readonly trace: string;
}

export function notThere(path: string): Fault {
  return new Fault("ToolExecution", `there is no definition file ${path}`, { rule: "notFound", field: "path" });
}

function isFolder(path: string): Fault {
  return new Fault("ToolExecution", `${path} is a folder of definition files`, { rule: "isFolder", field: "path" });
}

function isFile(path: string): Fault {
  return new Fault("ToolExecution", `${path} is a file, so nothing can lie below it`, {
    rule: "isFile",
    field: "path",
  });
}

function noSuchCommit(): Fault {
  return new Fault("ToolExecution", "there is no such commit", { rule: "notFound", field: "commit" });
}

function conflict(path: string, revision: string | undefined): Fault {
  const now = revision === undefined ? "it does not exist" : `it is ${revision}`;
  return new Fault("ToolExecution", `${path} is not the revision that was expected: ${now}; nothing was changed`, {
    rule: "conflict",
    field: "expectedRevision",
    suggestions: ["read the file again and decide anew"],
    extra: { revision: revision ?? null },
  });
}

function tooMuch(rule: string, reason: string): Fault {
  return new Fault("ToolExecution", `${reason}; nothing was changed`, { rule });
}
