// A replica's own copy of an application's history: a bare repository that follows the store. The store is the authority.
// Whatever is here is there too, so this directory may be lost, be old, or be shared by several processes.

import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { isJsonObject, type JsonValue } from "../../mcp/index.js";
import type { StoredPack, StoredRepository } from "../../storage/index.js";
import { Git, takePack, toMerge, withPack } from "./git.js";
import type { StateLimits } from "./settings.js";
import type { StoredHistory } from "./stored.js";
import { busy, removeStale } from "./turns.js";

const BRANCH = "refs/heads/main";
const ASIDE = "refs/portcullis/aside";
/** How often old objects are packed here. */
const TIDY_EVERY = 256;
/** A temporary index of this age belongs to a process that was killed. */
const LEFT_BEHIND_MS = 3_600_000;
/** Rounds of asking the store again because it has changed meanwhile. */
const MAX_ROUNDS = 20;
const MAX_MOVES = 5;
const MAX_PAGES = 1_000;

/** How far this copy is: everything that the store had at this number is here. */
interface Position {
  readonly store: string;
  readonly id: string;
  readonly seq: number;
  readonly head: string;
}

interface Reached extends StoredRepository {
  readonly parent: string | undefined;
}

/** Where the store stands. */
export interface Standing {
  readonly store: string;
  /** Absent: there is no history yet. */
  readonly repository?: StoredRepository;
}

export interface WorkingCopyOptions {
  readonly directory: string;
  readonly limits: StateLimits;
  readonly store: StoredHistory;
  /** This writer among all there are. */
  readonly name: string;
  /** Told when files were found that no other replica has. */
  readonly warn: (message: string, fields: Readonly<Record<string, string>>) => void;
}

export class WorkingCopy {
  readonly git: Git;
  readonly #options: WorkingCopyOptions;
  #made: Promise<void> | undefined;
  #catching: Promise<Standing> | undefined;
  #catchingNext: Promise<Standing> | undefined;
  #changes = 0;
  #tidying: Promise<unknown> | undefined;
  #merging: Promise<unknown> | undefined;

  constructor(options: WorkingCopyOptions) {
    this.#options = options;
    this.git = new Git(options.directory, options.limits.gitTimeoutMs);
  }

  /** Where the store stands, with everything up to there in this directory. */
  async current(): Promise<Standing> {
    await this.#make();
    // INVARIANT: a position is written after the store has got there. Read before the store is asked, it can be behind
    // and never ahead, unless the store itself was put back.
    const here = this.#position();
    const { store, repository } = await this.#options.store.state();
    return repository && isAt(here, store, repository) ? { store, repository } : await this.#catchUp();
  }

  /** The store has moved by a change that was made here. What goes wrong now the next `current` puts right. */
  async moved({ store, repository }: Standing, to: StoredRepository): Promise<void> {
    try {
      if (!(await this.#move(repository?.head, to.head)) && !(await this.#forward(to.head))) return;
      this.#write({ store, id: to.id, seq: to.seq, head: to.head });
    } catch {
      return;
    }
    this.#tidy();
    if (to.seq % this.#options.limits.mergeEvery === 0) this.#merge(to);
  }

  /** Something that should be here is not: the next `current` fetches everything anew. */
  distrust(): void {
    rmSync(this.#positionFile, { force: true });
  }

  /** Resolves when nothing is being packed. */
  async idle(): Promise<void> {
    await this.#tidying;
    await this.#merging;
  }

  /** One at a time. Those who come meanwhile share the next, since this one may have asked the store before. */
  #catchUp(): Promise<Standing> {
    if (this.#catching === undefined) {
      this.#catching = this.#catchUpNow().finally(() => (this.#catching = undefined));
      return this.#catching;
    }
    this.#catchingNext ??= this.#catching
      .catch(() => undefined)
      .then(() => {
        this.#catchingNext = undefined;
        return this.#catchUp();
      });
    return this.#catchingNext;
  }

  async #catchUpNow(): Promise<Standing> {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const here = this.#position();
      const { store, repository } = await this.#options.store.state();
      const isOfThisStore = here?.store === store;
      if (repository === undefined) {
        const tip = await this.#tip();
        if (tip === undefined) return { store };
        if (isOfThisStore) await this.#forget(tip);
        else await this.#takeOver(tip, store);
        continue;
      }
      if (isAt(here, store, repository)) return { store, repository };
      const isOfThisRepository = isOfThisStore && here.id === repository.id;
      // Of an application of this name that was removed: gone like everything else that was its own.
      if (isOfThisStore && !isOfThisRepository) await this.#forget(await this.#tip());
      const followed = isOfThisRepository ? await this.#follow(here, repository) : undefined;
      const reached = followed ?? (await this.#fetch(repository));
      if (reached === undefined) continue;
      if ((followed && (await this.#move(here?.head, reached.head))) || (await this.#forward(reached.head))) {
        this.#write({ store, id: reached.id, seq: reached.seq, head: reached.head });
      }
      this.#tidy();
      return { store, repository: reached };
    }
    throw busy();
  }

  /** Only what is new. Undefined when it does not lead on from what is here: then everything is fetched. */
  async #follow(here: Position, repository: StoredRepository): Promise<StoredRepository | undefined> {
    // The store was put back to what it had before.
    if (here.seq >= repository.seq) return undefined;
    try {
      const reached = await this.#fetch(repository, here);
      return reached && (reached.parent === here.head || (await this.#leadsTo(here.head, reached.head)))
        ? reached
        : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * At least up to `repository`, further where packs have been merged, with the parent of the first pack.
   * Undefined: the store has changed meanwhile.
   */
  async #fetch(repository: StoredRepository, after = { seq: 0, head: "" }): Promise<Reached | undefined> {
    let { seq, head } = after;
    let first: StoredPack | undefined;
    for (let page = 0; seq < repository.seq && page < MAX_PAGES; page++) {
      const packs = await this.#options.store.packs(repository.id, seq);
      if (packs.length === 0) return undefined;
      first ??= packs[0];
      for (const pack of packs) {
        if (!(await takePack(this.git, this.#options.store, pack))) return undefined;
        ({ seq, head } = pack);
      }
    }
    return seq < repository.seq ? undefined : { ...repository, seq, head, parent: first?.parent };
  }

  /** What this replica had before the store had anything is where everybody begins, unless another was faster. */
  async #takeOver(tip: string, store: string): Promise<void> {
    const taken = await withPack(this.git, tip, undefined, (pack) =>
      this.#options.store.push(undefined, tip, pack, this.#options.name),
    );
    if (taken !== undefined) await this.moved({ store }, taken);
  }

  async #tip(): Promise<string | undefined> {
    const { code, stdout } = await this.git.run(["rev-parse", "--verify", "--quiet", `${BRANCH}^{commit}`]);
    return code === 0 ? stdout.toString("utf8").trim() : undefined;
  }

  async #leadsTo(from: string, to: string): Promise<boolean> {
    return (await this.git.run(["merge-base", "--is-ancestor", from, to])).code === 0;
  }

  /** The branch is what any git shows, and what keeps objects from being tidied away. False: it could not be moved. */
  async #forward(head: string): Promise<boolean> {
    for (let attempt = 0; attempt < MAX_MOVES; attempt++) {
      const tip = await this.#tip();
      if (tip === head) return true;
      if (tip !== undefined && !(await this.#leadsTo(tip, head))) {
        // Another process on this directory was faster.
        if (await this.#leadsTo(head, tip)) return true;
        await this.#keepAside(tip);
      }
      if (await this.#move(tip, head)) return true;
      await pause(Math.random() * 10 * 2 ** attempt);
    }
    return false;
  }

  /** False: another process was faster, or git's own lock is taken. */
  async #move(from: string | undefined, to: string): Promise<boolean> {
    const old = from ?? "0".repeat(to.length);
    const { code } = await this.git.run(["update-ref", "--no-deref", "-m", "core.state", BRANCH, to, old]);
    if (code !== 0) this.#removeStaleLocks();
    return code === 0;
  }

  #removeStaleLocks(): void {
    removeStale(join(this.git.directory, `${BRANCH}.lock`));
    removeStale(join(this.git.directory, "packed-refs.lock"));
  }

  /** A history that the store does not have is never deleted: it may be the only copy. */
  async #keepAside(tip: string): Promise<void> {
    const ref = `${ASIDE}/${tip}`;
    await this.git.ask(["update-ref", "--no-deref", ref, tip]);
    this.#options.warn("definition files of this replica differ from those of the store; they are kept aside", {
      directory: this.git.directory,
      ref,
      remedy: `look at them with git --git-dir=${this.git.directory} log ${ref}, and write again what is missing`,
    });
  }

  async #forget(tip: string | undefined): Promise<void> {
    if (tip === undefined) return;
    const { code } = await this.git.run(["update-ref", "--no-deref", "-d", BRANCH, tip]);
    if (code === 0) this.distrust();
    else this.#removeStaleLocks();
  }

  #tidy(): void {
    if (++this.#changes % TIDY_EVERY !== 0 || this.#tidying !== undefined) return;
    const tidying = this.git.run(["gc", "--auto", "--quiet"]);
    this.#tidying = tidying.catch(() => undefined).finally(() => (this.#tidying = undefined));
  }

  /** Of many small packs one, so that a new replica has little to fetch. Without it everything works, only slower. */
  #merge({ id, seq }: StoredRepository): void {
    const merging = async (): Promise<void> => {
      const packs = (await this.#options.store.packs(id, 0)).filter((pack) => pack.seq <= seq);
      const some = toMerge(packs);
      const last = some.at(-1);
      if (last === undefined) return;
      const before = packs[packs.length - some.length - 1]?.head;
      await withPack(this.git, last.head, before, (pack) => this.#options.store.merge(id, some, pack));
    };
    this.#merging ??= merging()
      .catch(() => undefined)
      .finally(() => (this.#merging = undefined));
  }

  get #positionFile(): string {
    return join(this.git.directory, "portcullis.position");
  }

  #position(): Position | undefined {
    let value: JsonValue;
    try {
      value = JSON.parse(readFileSync(this.#positionFile, "utf8")) as JsonValue;
    } catch {
      // None yet, or half of one after the power failed: everything is fetched.
      return undefined;
    }
    if (!isJsonObject(value)) return undefined;
    const { store, id, seq, head } = value;
    if (typeof store !== "string" || typeof id !== "string" || typeof head !== "string") return undefined;
    return typeof seq === "number" ? { store, id, seq, head } : undefined;
  }

  #write(position: Position): void {
    const draft = `${this.#positionFile}.${randomUUID()}.tmp`;
    writeFileSync(draft, JSON.stringify(position), { mode: 0o600 });
    renameSync(draft, this.#positionFile);
  }

  #make(): Promise<void> {
    this.#made ??= this.#makeOnce().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    });
    return this.#made;
  }

  #sweep(): void {
    for (const name of readdirSync(this.git.directory)) {
      if (/^(index|pack|portcullis)\b.*\.tmp(\.lock)?$/.test(name)) {
        removeStale(join(this.git.directory, name), LEFT_BEHIND_MS);
      }
    }
  }

  /** Made aside and put in place whole, so that of two processes that begin at once neither sees half of it. */
  async #makeOnce(): Promise<void> {
    const { directory } = this.git;
    if (statSync(join(directory, "HEAD"), { throwIfNoEntry: false }) !== undefined) return this.#sweep();
    mkdirSync(dirname(directory), { recursive: true, mode: 0o700 });
    const draft = `${directory}.${randomUUID()}.new`;
    const git = new Git(draft, this.#options.limits.gitTimeoutMs);
    try {
      mkdirSync(draft, { mode: 0o700 });
      await git.ask(["init", "--quiet", "--bare", "--template=", "--initial-branch=main", draft]);
      renameSync(draft, directory);
    } catch (error) {
      rmSync(draft, { recursive: true, force: true });
      if (statSync(join(directory, "HEAD"), { throwIfNoEntry: false }) === undefined) throw error;
    }
  }
}

function isAt(here: Position | undefined, store: string, { id, seq, head }: StoredRepository): boolean {
  return here !== undefined && here.store === store && here.id === id && here.seq === seq && here.head === head;
}
