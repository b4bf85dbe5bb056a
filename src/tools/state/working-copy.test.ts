// What becomes of the copies that replicas have in their directories, when they are old, alone, lost or in the way.

import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, describe, expect, it, vi } from "vitest";
import { openStorage, type Storage, StorageError, type StoredPack } from "../../storage/index.js";
import { git, gitIsMissing } from "./fixtures/git.js";
import { toMerge } from "./git.js";
import { Repository } from "./repository.js";
import type { StateLimits } from "./settings.js";
import { historyOf, type StoredHistory } from "./stored.js";

const base = mkdtempSync(join(tmpdir(), "copies-"));
const opened: Storage[] = [];
afterAll(async () => {
  for (const storage of opened) await storage.close();
  rmSync(base, { recursive: true, force: true });
});
const missing = gitIsMissing();
let count = 0;

async function newStore(file = join(base, `${++count}.db`)): Promise<Storage> {
  const storage = await openStorage(`sqlite:${file}`);
  opened.push(storage);
  await storage.applications.put("blog", {}, "test");
  return storage;
}

interface Replica {
  readonly directory: string;
  readonly warnings: Record<string, string>[];
  readonly files: Repository;
  set(path: string, content: string): Promise<unknown>;
  get(path: string): Promise<string | undefined>;
}

function replica(
  store: Storage | StoredHistory,
  directory = join(base, `${++count}.git`),
  limits: Partial<StateLimits> = {},
): Replica {
  const warnings: Record<string, string>[] = [];
  const history = "repositories" in store ? historyOf(store.repositories, "blog") : store;
  const files = new Repository({ repository: directory, limits }, history, (_, fields) => warnings.push({ ...fields }));
  const author = { app: "blog", agent: "writer", traceId: "t" };
  return {
    directory,
    warnings,
    files,
    set: (path, content) => files.change({ path, author, message: `Set ${path}`, edit: () => content }),
    get: async (path) => (await files.read(path))?.content,
  };
}

/** A repository from before the store had any: its history is in the directory and nowhere else. */
async function fromBefore(contents: Readonly<Record<string, string>>): Promise<string> {
  const one = replica(await newStore());
  for (const [path, content] of Object.entries(contents)) await one.set(path, content);
  rmSync(join(one.directory, "portcullis.position"));
  return one.directory;
}

const tipOf = (directory: string): string => git(directory, "rev-parse", "main").trim();
const packsOf = async (storage: Storage): Promise<StoredPack[]> => {
  const { repository } = await storage.repositories.state("blog");
  return repository === undefined ? [] : await storage.repositories.packs("blog", repository.id, 0);
};

describe.skipIf(missing)(`copies of a history${missing ? ` (${missing})` : ""}`, () => {
  it("copies of a history from before the store had one are taken over, with their history, by a read as by a write", async () => {
    for (const first of ["read", "write"]) {
      const directory = await fromBefore({ f: "1", g: "2" });
      const before = tipOf(directory);
      const storage = await newStore();
      const one = replica(storage, directory);
      if (first === "read") expect(await one.get("f")).toBe("1");
      else await one.set("h", "3");
      const two = replica(storage);
      expect(await two.get("f")).toBe("1");
      expect((await two.files.history("f", 10)).map(({ message }) => message)).toEqual(["Set f"]);
      git(two.directory, "merge-base", "--is-ancestor", before, "main");
      expect([...one.warnings, ...two.warnings]).toEqual([]);
    }
  });

  it("that differ from what the store has are kept aside, and the operator is told where [H7]", async () => {
    const [mine, other] = [await fromBefore({ f: "first" }), await fromBefore({ f: "other", only: "here" })];
    const before = tipOf(other);
    const storage = await newStore();
    expect(await replica(storage, mine).get("f")).toBe("first");
    const two = replica(storage, other);
    expect(await two.get("f")).toBe("first");
    expect(await two.get("only")).toBeUndefined();
    const ref = `refs/portcullis/aside/${before}`;
    expect(two.warnings).toMatchObject([{ directory: other, ref }]);
    expect(git(other, "show", `${ref}:only`)).toBe("here");
    expect(tipOf(other)).toBe(tipOf(mine));
    await two.set("f", "on");
    expect(await replica(storage, mine).get("f")).toBe("on");
    expect(two.warnings).toHaveLength(1);
    // An old commit that was set aside is not part of the history that callers see.
    await expect(two.files.read("only", before)).rejects.toThrow("there is no such commit");
  });

  it("copies of a history come along to another store, and are gone after their application was removed from this one", async () => {
    const old = await newStore();
    const { directory, set } = replica(old);
    await set("f", "1");
    const next = await newStore();
    const one = replica(next, directory);
    expect(await one.get("f")).toBe("1");
    expect(await replica(next).get("f")).toBe("1");
    await next.applications.remove("blog", "test");
    await expect(one.set("f", "2")).rejects.toThrow("there is no application");
    await next.applications.put("blog", {}, "test");
    expect(await one.get("f")).toBeUndefined();
    const other = replica(next);
    await other.set("g", "of the next");
    expect([await one.get("f"), await one.get("g")]).toEqual([undefined, "of the next"]);
    expect(one.warnings).toEqual([]);
  });

  it("copies of a history are older than the removal of their application: then they follow the one that came after", async () => {
    const storage = await newStore();
    const [one, two] = [replica(storage), replica(storage)];
    for (const content of ["1", "2", "3"]) await one.set("f", content);
    await storage.applications.remove("blog", "test");
    await storage.applications.put("blog", {}, "test");
    for (const content of ["a", "b", "c"]) await two.set("g", content);
    // As many changes as before: the number alone would not tell.
    expect([await one.get("f"), await one.get("g")]).toEqual([undefined, "c"]);
    git(one.directory, "fsck", "--strict");
    expect(one.warnings).toEqual([]);
  });

  it("copies of a history are ahead of a store that was put back: they follow it, and what it lost is kept aside", async () => {
    const storage = await newStore(join(base, "lost.db"));
    const [one, two] = [replica(storage), replica(storage)];
    await one.set("f", "1");
    expect(await two.get("f")).toBe("1");
    for (const suffix of ["", "-wal"]) copyFileSync(join(base, `lost.db${suffix}`), join(base, `back.db${suffix}`));
    await one.set("f", "lost");
    await two.set("g", "lost");
    const three = replica(storage);
    expect(await three.get("g")).toBe("lost");
    const back = await newStore(join(base, "back.db"));
    const [here, there] = [replica(back, one.directory), replica(back, two.directory)];
    expect([await here.get("f"), await here.get("g")]).toEqual(["1", undefined]);
    for (const content of ["2", "3"]) await here.set("f", content);
    // As many changes as it has seen, and others.
    expect([await there.get("f"), await there.get("g")]).toEqual(["3", undefined]);
    await there.set("g", "new");
    const late = replica(back, three.directory);
    for (const each of [here, there, late]) {
      expect([await each.get("f"), await each.get("g")]).toEqual(["3", "new"]);
      expect(each.warnings).toHaveLength(1);
      git(each.directory, "fsck", "--strict");
    }
  });

  it("that have lost what they had fetch it again, and leave no file out of the next change [H7]", async () => {
    const storage = await newStore();
    const { directory, set } = replica(storage);
    for (const path of ["a", "b/c", "d"]) await set(path, path);
    for (const name of readdirSync(join(directory, "objects"))) {
      rmSync(join(directory, "objects", name), { recursive: true });
    }
    const again = replica(storage, directory);
    await expect(again.set("e", "e")).rejects.toMatchObject({ type: "IoError" });
    await again.set("e", "e");
    for (const path of ["a", "b/c", "d", "e"]) expect(await again.get(path)).toBe(path);
    git(directory, "fsck", "--strict");
    rmSync(directory, { recursive: true });
    expect(await replica(storage, directory).get("b/c")).toBe("b/c");
  });

  it("a change whose acknowledgement was lost is there once, for everybody", async () => {
    const storage = await newStore();
    const real = historyOf(storage.repositories, "blog");
    let isCut = true;
    const cut: StoredHistory = {
      ...real,
      async push(...args) {
        const done = await real.push(...args);
        if (isCut) throw new StorageError("STORAGE_UNCERTAIN", "the line broke");
        return done;
      },
    };
    const one = replica(cut);
    await expect(one.set("f", "1")).rejects.toThrow("the line broke");
    isCut = false;
    expect(await one.get("f")).toBe("1");
    await one.set("f", "2");
    const two = replica(storage);
    expect((await two.files.history("f", 10)).length).toBe(2);
    expect(tipOf(one.directory)).toBe(tipOf(two.directory));
  });

  it("a store that is away is said to be, and nothing is changed", async () => {
    const storage = await newStore();
    const one = replica(storage);
    await one.set("f", "1");
    const before = tipOf(one.directory);
    await storage.close();
    await expect(one.set("f", "2")).rejects.toMatchObject({ type: "Unavailable" });
    await expect(one.get("f")).rejects.toMatchObject({ type: "Unavailable" });
    expect(tipOf(one.directory)).toBe(before);
  });

  it("packs of the store are merged, and copies that are new, behind or in the middle of it lose nothing [H7]", async () => {
    const storage = await newStore();
    const real = historyOf(storage.repositories, "blog");
    const limits = { mergeEvery: 4 };
    const [one, behind] = [replica(storage, undefined, limits), replica(storage)];
    for (let i = 1; i <= 10; i++) {
      await one.set(`f${i % 3}`, `${i}`);
      await one.files.idle();
      if (i === 2) expect(await behind.get("f2")).toBe("2");
    }
    expect((await packsOf(storage)).length).toBeLessThan(6);
    // Merged while it is being read: the first part that is asked for is gone.
    let merges = 0;
    const slow: StoredHistory = {
      ...real,
      async part(...args) {
        if (merges++ === 0) {
          for (const i of [11, 12]) await one.set("f0", `${i}`);
          await one.files.idle();
        }
        return await real.part(...args);
      },
    };
    for (const each of [replica(slow), behind, replica(storage)]) {
      expect([await each.get("f0"), await each.get("f1"), await each.get("f2")]).toEqual(["12", "10", "8"]);
      expect(tipOf(each.directory)).toBe(tipOf(one.directory));
      expect(Number(git(each.directory, "rev-list", "--count", "main"))).toBe(12);
      git(each.directory, "fsck", "--strict");
      expect(existsSync(join(each.directory, "refs/portcullis"))).toBe(false);
    }
    const { repository } = await storage.repositories.state("blog");
    const total = (await packsOf(storage)).reduce((sum, { bytes }) => sum + bytes, 0);
    expect(repository?.bytes).toBe(total);
  });

  it("a writer lets another go first who asked for it, and waits for none that has ended", async () => {
    const storage = await newStore();
    const one = replica(storage);
    await one.set("f", "1");
    const { repository } = await storage.repositories.state("blog");
    const claim = (ms: number) => storage.repositories.claim("blog", repository?.id as string, "another", ms);
    const claimed = performance.now();
    await claim(60_000);
    const writing = one.set("f", "2").then(() => performance.now());
    await setTimeout(300);
    expect((await storage.repositories.state("blog")).repository?.seq).toBe(1);
    await claim(0);
    expect((await writing) - claimed).toBeGreaterThan(290);
    // A writer that was killed while it had the turn does not delay the others for long.
    await claim(60_000);
    await one.set("f", "3");
    expect((await storage.repositories.state("blog")).repository).toMatchObject({ seq: 3, claimedBy: "another" });
  });

  it("many that read at once from a copy that is behind fetch once", async () => {
    const storage = await newStore();
    const one = replica(storage);
    for (const i of [1, 2, 3]) await one.set("f", `${i}`);
    const real = historyOf(storage.repositories, "blog");
    const part = vi.fn(real.part);
    const two = replica({ ...real, part });
    const all = await Promise.all(Array.from({ length: 100 }, () => two.files.history("f", 1)));
    expect(new Set(all.map(([newest]) => newest?.commit))).toEqual(new Set([tipOf(one.directory)]));
    expect(part).toHaveBeenCalledTimes(3);
  });
});

describe("merging packs", () => {
  it("merging packs keeps them few and writes no byte often, whatever their sizes", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 150, max: 2_000_000 }), { minLength: 1, maxLength: 600 }), (sizes) => {
        let packs: StoredPack[] = [];
        let written = 0;
        for (const [i, bytes] of sizes.entries()) {
          packs.push({ name: `${i}`, head: `${i}`, seq: i + 1, bytes });
          if ((i + 1) % 32 !== 0) continue;
          const some = toMerge(packs);
          const sum = some.reduce((all, pack) => all + pack.bytes, 0);
          if (some.length > 0)
            packs = [...packs.slice(0, -some.length), { ...(some.at(-1) as StoredPack), bytes: sum }];
          written += sum;
          expect(packs.length).toBeLessThanOrEqual(32);
        }
        const total = sizes.reduce((all, bytes) => all + bytes, 0);
        expect(written).toBeLessThanOrEqual(8 * total);
      }),
      { numRuns: 50 },
    );
  });
});
