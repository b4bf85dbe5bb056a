import { execFileSync } from "node:child_process";
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { isDenial } from "../denial.js";
import { type OpeningMethod, useOpeningMethod } from "../paths/locate.js";
import { parsePolicy } from "../policy/load.js";
import type { Policy } from "../policy/policy.js";
import { useTwoSteps } from "./entry-ref.js";
import {
  decideBy,
  executeBy,
  type Prepare,
  prepareDeleteDirectory,
  prepareDeleteFile,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
  prepareStat,
} from "./operations.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "folders-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const [root, writableRoot, outside, blind] = ["root", "root/zone", "outside", "blind"].map((name) =>
  join(base, name),
) as [string, string, string, string];

let policy: Policy;
beforeEach(() => {
  for (const directory of [root, outside, blind]) rmSync(directory, { recursive: true, force: true });
  for (const directory of [
    join(writableRoot, "sub"),
    join(writableRoot, "inner"),
    join(root, "read-only"),
    outside,
    blind,
  ]) {
    mkdirSync(directory, { recursive: true });
  }
  writeFileSync(join(writableRoot, "f"), "inside");
  writeFileSync(join(root, "read-only/f"), "inside");
  writeFileSync(join(outside, "f"), "OUTSIDE");
  writeFileSync(join(blind, "f"), "BLIND");
  symlinkSync(outside, join(writableRoot, "out"));
  symlinkSync(join(outside, "f"), join(writableRoot, "out-file"));
  symlinkSync("f", join(writableRoot, "own-link"));
  execFileSync("mkfifo", [join(writableRoot, "fifo")]);
  const rule = { recursive: true, createIfMissing: true };
  const loaded = parsePolicy(
    JSON.stringify({
      allowedRoots: [root],
      writeRules: [
        { path: writableRoot, ...rule, maxFileBytes: 100 },
        { path: join(writableRoot, "inner"), recursive: false, createIfMissing: false, maxFileBytes: 3 },
        { path: blind, ...rule },
      ],
    }),
    "test",
  );
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  policy = loaded.policy;
});

/** What came out, or the rule that refused; deciding says the same and changes nothing. */
function act<A, R>(prepare: Prepare<A, R>, args: A): R | string {
  const before = tree(base);
  const decided = decideBy(prepare, policy, args);
  expect(tree(base)).toEqual(before);
  const result = executeBy(prepare, policy, args) as object;
  if (decided.effect === "deny") expect(result).toEqual(decided.denial);
  return isDenial(result) ? result.rule : (result as R);
}

function tree(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const stats = lstatSync(join(directory, name));
      return `${name} ${stats.ino} ${stats.isFile() ? readFileSync(join(directory, name), "utf8") : ""}`;
    });
}

const linux = process.platform === "linux";

describe.skipIf(!linux).each<OpeningMethod>(["openat2", "o_path"])("folders, opened by %s", (method) => {
  beforeEach(() => useOpeningMethod(method));
  afterAll(() => useOpeningMethod(undefined));

  it("are listed by name, in pages, without following links", () => {
    const listing = act(prepareList, { path: writableRoot });
    const names = ["f", "fifo", "inner", "out", "out-file", "own-link", "sub"];
    const types = ["file", "other", "folder", "link", "link", "link", "folder"];
    expect(listing).toMatchObject({ truncated: false, entries: names.map((name, i) => ({ name, type: types[i] })) });
    expect(act(prepareList, { path: writableRoot, limit: 2 })).toMatchObject({ truncated: true });
    expect(act(prepareList, { path: writableRoot, after: "out" })).toMatchObject({
      truncated: false,
      entries: [{ name: "out-file" }, { name: "own-link" }, { name: "sub" }],
    });
    expect(JSON.stringify(listing)).not.toContain(outside);
  });

  it("leave the insides of a repository alone", () => {
    mkdirSync(join(writableRoot, "sub/.git/hooks"), { recursive: true });
    writeFileSync(join(writableRoot, "sub/.git/config"), "");
    const rule = "writeRules.repositoryInternals";
    expect(act(prepareMakeDirectory, { path: join(writableRoot, ".git") })).toBe(rule);
    expect(act(prepareMakeDirectory, { path: join(writableRoot, "sub/.git/info") })).toBe(rule);
    expect(act(prepareDeleteFile, { path: join(writableRoot, "sub/.git/config") })).toBe(rule);
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "sub/.git/hooks") })).toBe(rule);
    expect(
      act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "sub/.GIT/hooks/pre-commit") }),
    ).toBe("notFound");
    expect(
      act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "sub/.git/hooks/pre-commit") }),
    ).toBe(rule);
    expect(act(prepareMove, { from: join(writableRoot, "sub"), to: join(writableRoot, ".Git") })).toBe(rule);
    expect(act(prepareMove, { from: join(writableRoot, "sub/.git"), to: join(writableRoot, "sub/g") })).toBe(rule);
  });

  it("say what a path is", () => {
    expect(act(prepareStat, { path: join(writableRoot, "f") })).toMatchObject({ type: "file", size: 6 });
    expect(act(prepareStat, { path: join(writableRoot, "own-link") })).toMatchObject({ type: "file", size: 6 });
    expect(act(prepareStat, { path: "zone" })).toMatchObject({ type: "folder" });
    expect(act(prepareStat, { path: join(writableRoot, "fifo") })).toMatchObject({ type: "other" });
  });

  it.each([
    ["outside", "outsideAllowedRoots"],
    ["root/../outside", "outsideAllowedRoots"],
    ["root/zone/out", "outsideAllowedRoots"],
    ["root/zone/out/f", "outsideAllowedRoots"],
    ["root/zone/out-file", "outsideAllowedRoots"],
    ["outside/nothing", "outsideAllowedRoots"],
    ["blind/f", "outsideAllowedRoots"],
    ["root/nothing", "notFound"],
  ])("looking at %s is refused", (path, rule) => {
    expect(act(prepareList, { path: join(base, path) })).toBe(rule);
    expect(act(prepareStat, { path: `${base}/${path}` })).toBe(rule);
  });

  it("are made, moved and deleted inside writable roots", () => {
    expect(act(prepareMakeDirectory, { path: join(writableRoot, "new") })).toEqual({ created: true });
    expect(lstatSync(join(writableRoot, "new")).mode & 0o777).toBe(0o700);
    expect(executeBy(prepareMakeDirectory, policy, { path: join(writableRoot, "new/") })).toEqual({ created: false });
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "new/g") })).toEqual({
      replaced: false,
    });
    expect(act(prepareMove, { from: join(writableRoot, "new"), to: join(writableRoot, "sub/newer") })).toEqual({
      replaced: false,
    });
    expect(readFileSync(join(writableRoot, "sub/newer/g"), "utf8")).toBe("inside");
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "sub/newer") })).toBe("notEmpty");
    expect(act(prepareDeleteFile, { path: join(writableRoot, "sub/newer/g") })).toEqual({});
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "sub/newer") })).toEqual({});
    expect(existsSync(join(writableRoot, "sub/newer"))).toBe(false);
  });

  it("a link is deleted itself, and what it leads to stays", () => {
    expect(act(prepareDeleteFile, { path: join(writableRoot, "out-file") })).toEqual({});
    expect(act(prepareDeleteFile, { path: join(writableRoot, "out") })).toEqual({});
    expect(readFileSync(join(outside, "f"), "utf8")).toBe("OUTSIDE");
  });

  it("a move replaces a file only when told, and never anything else", () => {
    writeFileSync(join(writableRoot, "g"), "other");
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "g") })).toBe("exists");
    expect(
      act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "out-file"), overwrite: true }),
    ).toBe("exists");
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "sub"), overwrite: true })).toBe(
      "exists",
    );
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "g"), overwrite: true })).toEqual({
      replaced: true,
    });
    expect(readFileSync(join(writableRoot, "g"), "utf8")).toBe("inside");
    expect(readlinkSync(join(writableRoot, "out-file"))).toBe(join(outside, "f"));
  });

  const changes: [string, Prepare<{ path: string }, unknown>][] = [
    ["making", prepareMakeDirectory],
    ["deleting a file", prepareDeleteFile],
    ["deleting a folder", prepareDeleteDirectory],
    ["moving from", (p, { path }) => prepareMove(p, { from: path, to: join(writableRoot, "moved") })],
    ["moving to", (p, { path }) => prepareMove(p, { from: join(writableRoot, "f"), to: path })],
  ];
  it.each(changes)("%s outside write zones is refused and changes nothing [H10]", (_, prepare) => {
    const before = tree(base);
    for (const path of [
      "read-only/f",
      "read-only/new",
      "../outside/f",
      "../outside/new",
      "zone/out/f",
      "zone/out/new",
    ]) {
      expect(act(prepare, { path: `${root}/${path}` })).toBe("outsideWriteZones");
    }
    for (const path of ["zone/..", "zone/.", "/", "zone/sub/.."]) {
      expect(["notAFileName", "outsideWriteZones"]).toContain(
        act(prepare, { path: path === "/" ? path : join(root, "x", "..") + `/${path}` }),
      );
    }
    for (const path of ["zone/a\0b", "zone/a\nb", `zone/${"x".repeat(300)}`, "~root/x"]) {
      expect(["controlCharacter", "pathTooLong", "tildeUser"]).toContain(act(prepare, { path }));
    }
    expect(tree(base)).toEqual(before);
  });

  it("special files, links and what the operator named are left alone", () => {
    expect(act(prepareDeleteFile, { path: join(writableRoot, "fifo") })).toBe("specialFile");
    expect(act(prepareDeleteFile, { path: join(writableRoot, "sub") })).toBe("specialFile");
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "f") })).toBe("notAFolder");
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "out") })).toBe("notAFolder");
    expect(act(prepareMove, { from: join(writableRoot, "own-link"), to: join(writableRoot, "x") })).toBe("specialFile");
    expect(act(prepareDeleteDirectory, { path: join(writableRoot, "inner") })).toBe("namedFolder");
    expect(act(prepareMove, { from: join(writableRoot, "inner"), to: join(writableRoot, "x") })).toBe("namedFolder");
    expect(act(prepareDeleteDirectory, { path: writableRoot })).toBe("outsideWriteZones");
  });

  it("a directory that holds a repository keeps its name", () => {
    mkdirSync(join(writableRoot, "a/project/.git"), { recursive: true });
    mkdirSync(join(writableRoot, "bare/objects"), { recursive: true });
    mkdirSync(join(writableRoot, "bare/refs"));
    writeFileSync(join(writableRoot, "bare/HEAD"), "ref: refs/heads/main\n");
    for (const name of ["a", "a/project", "bare"]) {
      const rule = act(prepareMove, { from: join(writableRoot, name), to: join(writableRoot, "other") });
      expect(rule, name).toBe("writeRules.repositoryInternals");
      expect(existsSync(join(writableRoot, name))).toBe(true);
    }
  });

  it("the rules of a writable root hold for what is made or moved", () => {
    expect(act(prepareMakeDirectory, { path: join(writableRoot, "inner/x") })).toBe("createIfMissing");
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "inner/x") })).toBe("maxFileBytes");
    expect(act(prepareMove, { from: join(writableRoot, "sub"), to: join(blind, "x") })).toBe("crossesZones");
    expect(act(prepareMove, { from: join(writableRoot, "sub"), to: join(writableRoot, "sub/x") })).toBe("io");
    for (const name of ["x.", "x ", "a\u202eb"]) {
      expect(act(prepareMakeDirectory, { path: `${writableRoot}/${name}` })).toMatch(
        /trailingDotOrSpace|lookAlikeName/,
      );
    }
    // What may be written but not read does not become readable by a move.
    expect(act(prepareMove, { from: join(blind, "f"), to: join(writableRoot, "x") })).toBe("outsideAllowedRoots");
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(blind, "x") })).toEqual({ replaced: false });
  });

  it("a hard link to a file outside is only a name", () => {
    linkSync(join(outside, "f"), join(writableRoot, "hard"));
    expect(act(prepareDeleteFile, { path: join(writableRoot, "hard") })).toEqual({});
    expect(readFileSync(join(outside, "f"), "utf8")).toBe("OUTSIDE");
  });

  it("no descriptor stays open", () => {
    const open = (): number =>
      readdirSync("/proc/self/fd").filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`).startsWith(base);
        } catch {
          return false;
        }
      }).length;
    const before = open();
    for (const path of ["f", "sub", "out", "nothing", "inner/x", "fifo", "../../outside/f"]) {
      const at = join(writableRoot, path);
      act(prepareList, { path: at });
      act(prepareStat, { path: at });
      act(prepareMove, { from: at, to: join(writableRoot, "inner/y") });
      act(prepareMove, { from: join(writableRoot, "nothing"), to: at });
      act(prepareMakeDirectory, { path: at });
      act(prepareDeleteDirectory, { path: at });
      act(prepareDeleteFile, { path: at });
    }
    expect(open()).toBe(before);
  });
});

describe.skipIf(!linux)("without renameat2", () => {
  beforeEach(() => useTwoSteps(true));
  afterAll(() => useTwoSteps(false));

  it("a move is the same", () => {
    expect(act(prepareMove, { from: join(writableRoot, "f"), to: join(writableRoot, "sub/g") })).toEqual({
      replaced: false,
    });
    expect(act(prepareMove, { from: join(writableRoot, "sub"), to: join(writableRoot, "moved") })).toEqual({
      replaced: false,
    });
    expect(readFileSync(join(writableRoot, "moved/g"), "utf8")).toBe("inside");
    expect(existsSync(join(writableRoot, "f"))).toBe(false);
    expect(act(prepareMove, { from: join(writableRoot, "moved"), to: join(writableRoot, "inner") })).toBe("exists");
    expect(act(prepareMove, { from: join(writableRoot, "moved"), to: join(writableRoot, "moved/x") })).toBe("io");
    expect(readdirSync(join(writableRoot, "moved"))).toEqual(["g"]);
  });
});
