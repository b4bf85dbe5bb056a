// An application's definition files: one bare repository, one branch, one commit for each change. There is no work
// tree, so no name a caller chooses ever becomes a path on disk. Each replica has a copy; the store says which commit is
// the newest, and what it says is read by the commit's own name.

import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";
import { broken, type Git, withPack } from "./git.js";
import { DEFAULT_STATE_LIMITS, type StateLimits, type StateSettings } from "./settings.js";
import type { StoredHistory } from "./stored.js";
import { busy, inRepositoryTurn } from "./turns.js";
import { type Standing, WorkingCopy } from "./working-copy.js";

/** How long a writer may ask the others to wait: several times what a change takes. */
const CLAIM_MS = 2_000;
/** For so long after another writer was faster, turns are taken. */
const CONTENDED_MS = 5_000;
const POLL_MS = 20;

export interface DefinitionFile {
  readonly content: string;
  /** Names these contents: the id of git's blob. */
  readonly revision: string;
}

export interface RepositoryChange {
  readonly path: string;
  readonly author: Author;
  readonly message: string;
  /** What the file must be now; null: it must not exist. */
  readonly expectedRevision?: string | null;
  /** Given the contents there are now, says the new ones; undefined deletes. Asked again when another writer was faster. */
  readonly edit: (current: () => Promise<string | undefined>) => Promise<string | undefined> | string | undefined;
  readonly signal?: AbortSignal;
}

type Warn = (message: string, fields: Readonly<Record<string, string>>) => void;

export interface Changed {
  readonly commit: string;
  /** Undefined: the file is gone. */
  readonly revision: string | undefined;
  readonly created: boolean;
  /** False when the file already was what it should become; then there is no new commit. */
  readonly changed: boolean;
}

export class Repository {
  readonly limits: StateLimits;
  readonly #directory: string;
  readonly #name = randomUUID();
  readonly #store: StoredHistory;
  readonly #copy: WorkingCopy;
  readonly #git: Git;
  #claimed: string | undefined;
  #contendedUntil = 0;
  #servedAt = 0;

  constructor(settings: StateSettings, store: StoredHistory, warn: Warn = () => undefined) {
    if (!isAbsolute(settings.repository)) throw new TypeError("state.repository must be an absolute path");
    this.limits = { ...DEFAULT_STATE_LIMITS, ...settings.limits };
    this.#directory = settings.repository;
    this.#store = store;
    this.#copy = new WorkingCopy({
      directory: settings.repository,
      limits: this.limits,
      store,
      name: this.#name,
      warn,
    });
    this.#git = this.#copy.git;
  }

  /** Undefined: there is no such file, now or in that commit. */
  async read(path: string, commit?: string): Promise<DefinitionFile | undefined> {
    checkFilePath(path);
    const head = await this.#head();
    if (commit !== undefined && !(await this.#isOurs(commit, head))) throw noSuchCommit();
    if (head === undefined) return undefined;
    const out = await this.#git.ask(["cat-file", "--batch"], {
      input: `${commit ?? head}:${path}\n`,
      maxBytes: this.limits.maxFileBytes * 2 + 4_096,
    });
    const [revision, type, size] = out.subarray(0, out.indexOf(0x0a)).toString("utf8").split(" ");
    if (type === "tree") throw isDirectory(path);
    if (type !== "blob" || revision === undefined) {
      await this.#checkWhole(head);
      return undefined;
    }
    const start = out.indexOf(0x0a) + 1;
    return { content: out.toString("utf8", start, start + Number(size)), revision };
  }

  /** INVARIANT: the store's head moves from the very commit that the change was made on, or it does not move. */
  async change(change: RepositoryChange): Promise<Changed> {
    checkFilePath(change.path);
    await this.#copy.current();
    return await inRepositoryTurn(this.#directory, this.limits, async () => {
      try {
        for (let attempt = 0; attempt < this.limits.maxAttempts; attempt++) {
          const at = await this.#afterOthers();
          change.signal?.throwIfAborted();
          const result = await this.#tryChange(change, at);
          if (result?.changed) {
            this.#claimed = undefined;
            this.#servedAt = performance.now();
          }
          if (result !== undefined) return result;
          this.#contendedUntil = performance.now() + CONTENDED_MS;
        }
        throw busy();
      } finally {
        if (this.#claimed !== undefined) await this.#store.claim(this.#claimed, this.#name, 0).catch(() => false);
        this.#claimed = undefined;
      }
    });
  }

  /**
   * Writers of several replicas take turns as soon as they have been in each other's way: a writer that has
   * to fetch first would be too slow each time. A turn guarantees nothing: after a while a writer continues without it.
   */
  async #afterOthers(): Promise<Standing> {
    const began = performance.now();
    // A writer that has just changed something lets the waiting ones come first.
    if (began < this.#contendedUntil && began < this.#servedAt + 2 * POLL_MS) await pause(2 * POLL_MS);
    for (const until = began + CLAIM_MS; ; await pause(POLL_MS * (0.5 + Math.random() / 2))) {
      const at = await this.#copy.current();
      const { id, claimedBy } = at.repository ?? {};
      const now = performance.now();
      if (id === undefined || claimedBy === this.#name || now > until) return at;
      if (claimedBy !== undefined) continue;
      if (now > this.#contendedUntil) return at;
      if (await this.#store.claim(id, this.#name, CLAIM_MS)) {
        this.#claimed = id;
        return await this.#copy.current();
      }
    }
  }

  /** Newest first. */
  async history(path: string, max: number): Promise<HistoryEntry[]> {
    checkFilePath(path);
    const head = await this.#head();
    if (head === undefined) return [];
    const format = "--format=%H%x00%cI%x00%an%x00%s%x00%(trailers:key=Trace,valueonly,separator=)";
    const out = await this.#git.ask(["log", "-z", `--max-count=${max}`, format, head, "--", path]);
    const fields = out.toString("utf8").split("\0");
    const entries: HistoryEntry[] = [];
    for (let i = 0; i + 4 < fields.length; i += 5) {
      const [commit = "", at = "", agent = "", message = "", trace = ""] = fields.slice(i, i + 5);
      entries.push({ commit, at, agent, message, trace });
    }
    return entries;
  }

  /** Resolves when nothing is being packed. */
  async idle(): Promise<void> {
    await this.#copy.idle();
  }

  async #head(): Promise<string | undefined> {
    return (await this.#copy.current()).repository?.head;
  }

  async #tryChange(change: RepositoryChange, at: Standing): Promise<Changed | undefined> {
    const { path, expectedRevision } = change;
    const head = at.repository?.head;
    const before = head === undefined ? undefined : await this.#blobIn(head, path);
    if (expectedRevision !== undefined && expectedRevision !== (before ?? null)) throw conflict(path, before);
    const wanted = await change.edit(async () => (await this.#blob(before))?.toString("utf8"));
    if (wanted === undefined && before === undefined) throw notThere(path);
    this.#checkContent(wanted);
    const blob = wanted === undefined ? undefined : await this.#write(wanted);
    const created = before === undefined;
    if (blob === before && head !== undefined) {
      return { commit: head, revision: blob, created: false, changed: false };
    }
    this.#checkSize(at);
    const tree = await this.#tree(head, path, blob, created);
    const commit = await this.#commit(tree, head, change);
    const pushed = await withPack(this.#git, commit, head, async (pack) => {
      change.signal?.throwIfAborted();
      return await this.#store.push(at.repository, commit, pack, this.#name);
    });
    if (pushed === undefined) return undefined;
    await this.#copy.moved(at, pushed);
    return { commit, revision: blob, created, changed: true };
  }

  /** Undefined: there is no such file in the commit. */
  async #blobIn(commit: string, path: string): Promise<string | undefined> {
    const names = path.split("/");
    const above = names.slice(1).map((_, i) => names.slice(0, i + 1).join("/"));
    const asked = [`${commit}^{tree}`, ...[...above, path].map((name) => `${commit}:${name}`)];
    const out = await this.#git.ask(["cat-file", "--batch-check=%(objectname) %(objecttype)"], {
      input: `${asked.join("\n")}\n`,
    });
    const found = out
      .toString("utf8")
      .split("\n")
      .map((line) => /^([0-9a-f]{40,64}) (blob|tree)$/.exec(line));
    // What is lost must not look like what never was: the next change would leave it out.
    if (found[0]?.[2] !== "tree") throw this.#lost(commit);
    const file = found[asked.length - 1];
    const blocking = found.slice(1, asked.length - 1).findIndex((entry) => entry?.[2] === "blob");
    if (blocking >= 0) throw isFile(above[blocking] as string);
    if (file?.[2] === "tree") throw isDirectory(path);
    return file?.[1];
  }

  async #checkWhole(commit: string): Promise<void> {
    if ((await this.#git.run(["cat-file", "-e", `${commit}^{tree}`])).code !== 0) throw this.#lost(commit);
  }

  #lost(commit: string): Fault {
    this.#copy.distrust();
    return broken(`commit ${commit} is not whole in ${this.#directory}; it is fetched anew`);
  }

  async #blob(id: string | undefined): Promise<Buffer | undefined> {
    if (id === undefined) return undefined;
    return await this.#git.ask(["cat-file", "blob", id], { maxBytes: this.limits.maxFileBytes * 2 });
  }

  async #isOurs(commit: string, head: string | undefined): Promise<boolean> {
    if (head === undefined || !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(commit)) return false;
    return (await this.#git.run(["merge-base", "--is-ancestor", commit, head])).code === 0;
  }

  async #write(content: string): Promise<string> {
    const out = await this.#git.ask(["hash-object", "-w", "--no-filters", "--stdin"], { input: content });
    return out.toString("utf8").trim();
  }

  async #tree(parent: string | undefined, path: string, blob: string | undefined, created: boolean): Promise<string> {
    const index = join(this.#directory, `index-${randomUUID()}.tmp`);
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

  async #commit(tree: string, parent: string | undefined, change: RepositoryChange): Promise<string> {
    const parents = parent === undefined ? [] : ["-p", parent];
    const out = await this.#git.ask(["commit-tree", tree, ...parents, "-F", "-"], {
      input: commitMessage(change.message, change.author),
      env: authorEnvironment(change.author),
    });
    return out.toString("utf8").trim();
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

  #checkSize({ repository }: Standing): void {
    if ((repository?.bytes ?? 0) <= this.limits.maxRepositoryBytes) return;
    throw tooMuch("maxRepositoryBytes", "the files and their history take as much room as they may");
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

function isDirectory(path: string): Fault {
  return new Fault("ToolExecution", `${path} is a directory of definition files`, { rule: "isFolder", field: "path" });
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

// Who made a change and on whose behalf, written into the commit where a caller's words cannot imitate it.

export interface Author {
  readonly app: string;
  readonly agent: string;
  readonly traceId: string;
}

const MAX_SUBJECT_CHARS = 500;
const MAX_NAME_CHARS = 200;

/** The caller's words are one line; the trailers are the last paragraph, which a line above cannot join. */
export function commitMessage(words: string, author: Author): string {
  const subject = oneLine(words, MAX_SUBJECT_CHARS).trim() || "Change";
  return [
    subject,
    "",
    `App: ${oneLine(author.app, MAX_NAME_CHARS)}`,
    `Agent: ${oneLine(author.agent, MAX_NAME_CHARS)}`,
    `Trace: ${oneLine(author.traceId, MAX_NAME_CHARS)}`,
    "",
  ].join("\n");
}

export function authorEnvironment(author: Author): Record<string, string> {
  return {
    GIT_AUTHOR_NAME: personName(author.agent),
    GIT_AUTHOR_EMAIL: "agent@portcullis.invalid",
    GIT_COMMITTER_NAME: "Portcullis",
    GIT_COMMITTER_EMAIL: "gateway@portcullis.invalid",
  };
}

function oneLine(text: string, max: number): string {
  return visible(text.slice(0, max));
}

/** git drops these characters from names, and refuses a name of nothing else. */
function personName(agent: string): string {
  return (
    oneLine(agent, MAX_NAME_CHARS)
      .replace(/[<>]/g, "")
      .replace(/^[\s.,:;"'\\]+|[\s.,:;"'\\]+$/g, "") || "agent"
  );
}

// Which names a definition file may have: names that mean the same in every repository, work tree and terminal.

const MAX_PATH_BYTES = 1_024;
const MAX_NAME_BYTES = 255;
const MAX_DEPTH = 16;

/** Controls, bidirectional marks and other characters that draw nothing, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}]/u;
/** What some file system or program takes for something else. */
const SPECIAL = /[\\:*?"<>|]/;
/** `.git` in every spelling that some file system takes for it. */
const GIT_DIRECTORY = /^(\.git|git~\d+|\.git(modules|attributes|ignore|keep)?)$/i;

/** Throws a `Fault` that says which rule the path breaks. */
export function checkFilePath(path: string): void {
  const problem = problemOf(path);
  if (problem === undefined) return;
  throw new Fault("ValidationError", `path ${problem}`, {
    rule: "definitionFilePath",
    field: "path",
    suggestions: ["use a relative path such as agents/writer.md"],
  });
}

function problemOf(path: string): string | undefined {
  if (path === "") return "is empty";
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return `has more than ${MAX_PATH_BYTES} bytes`;
  if (UNSEEN.test(path)) return "contains control characters or characters that cannot be seen";
  if (SPECIAL.test(path)) return 'contains one of \\ : * ? " < > |';
  if (path.normalize("NFC") !== path) return "is not in Unicode normal form C";
  const names = path.split("/");
  if (names.length > MAX_DEPTH) return `has more than ${MAX_DEPTH} parts`;
  for (const name of names) {
    if (name === "") return "begins or ends with a slash, or has two in a row";
    if (name === "." || name === "..") return "contains . or ..";
    if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `has a part of more than ${MAX_NAME_BYTES} bytes`;
    if (GIT_DIRECTORY.test(name)) return "contains a name that git itself uses";
    if (/^[-~ ]/.test(name)) return "has a part that begins with a dash, a tilde or a space";
    if (/[. ]$/.test(name)) return "has a part that ends with a dot or a space";
  }
  return undefined;
}
