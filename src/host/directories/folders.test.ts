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
import { execFileSync } from "node:child_process";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { isDenial } from "../denial.js";
import { type OpeningMethod, useOpeningMethod } from "../paths/index.js";
import { parsePolicy, type Policy } from "../policy/index.js";
import {
  decideBy,
  executeBy,
  type Prepare,
  prepareDeleteFile,
  prepareDeleteDirectory,
  prepareList,
  prepareMakeDirectory,
  prepareMove,
  prepareStat,
} from "./index.js";
import { useTwoSteps } from "./rename.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "folders-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const [root, zone, outside, blind] = ["root", "root/zone", "outside", "blind"].map((name) => join(base, name)) as [
  string,
  string,
  string,
  string,
];

let policy: Policy;
beforeEach(() => {
  for (const folder of [root, outside, blind]) rmSync(folder, { recursive: true, force: true });
  for (const folder of [join(zone, "sub"), join(zone, "inner"), join(root, "read-only"), outside, blind]) {
    mkdirSync(folder, { recursive: true });
  }
  writeFileSync(join(zone, "f"), "inside");
  writeFileSync(join(root, "read-only/f"), "inside");
  writeFileSync(join(outside, "f"), "OUTSIDE");
  writeFileSync(join(blind, "f"), "BLIND");
  symlinkSync(outside, join(zone, "out"));
  symlinkSync(join(outside, "f"), join(zone, "out-file"));
  symlinkSync("f", join(zone, "own-link"));
  execFileSync("mkfifo", [join(zone, "fifo")]);
  const rule = { recursive: true, createIfMissing: true };
  const loaded = parsePolicy(
    JSON.stringify({
      allowedRoots: [root],
      writeRules: [
        { path: zone, ...rule, maxFileBytes: 100 },
        { path: join(zone, "inner"), recursive: false, createIfMissing: false, maxFileBytes: 3 },
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

function tree(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const stats = lstatSync(join(folder, name));
      return `${name} ${stats.ino} ${stats.isFile() ? readFileSync(join(folder, name), "utf8") : ""}`;
    });
}

const linux = process.platform === "linux";

describe.skipIf(!linux).each<OpeningMethod>(["openat2", "o_path"])("folders, opened by %s", (method) => {
  beforeEach(() => useOpeningMethod(method));
  afterAll(() => useOpeningMethod(undefined));

  it("are listed by name, in pages, without following links", () => {
    const listing = act(prepareList, { path: zone });
    const names = ["f", "fifo", "inner", "out", "out-file", "own-link", "sub"];
    const types = ["file", "other", "folder", "link", "link", "link", "folder"];
    expect(listing).toMatchObject({ truncated: false, entries: names.map((name, i) => ({ name, type: types[i] })) });
    expect(act(prepareList, { path: zone, limit: 2 })).toMatchObject({ truncated: true });
    expect(act(prepareList, { path: zone, after: "out" })).toMatchObject({
      truncated: false,
      entries: [{ name: "out-file" }, { name: "own-link" }, { name: "sub" }],
    });
    expect(JSON.stringify(listing)).not.toContain(outside);
  });

  it("leave the insides of a repository alone", () => {
    mkdirSync(join(zone, "sub/.git/hooks"), { recursive: true });
    writeFileSync(join(zone, "sub/.git/config"), "");
    const rule = "writeRules.repositoryInternals";
    expect(act(prepareMakeDirectory, { path: join(zone, ".git") })).toBe(rule);
    expect(act(prepareMakeDirectory, { path: join(zone, "sub/.git/info") })).toBe(rule);
    expect(act(prepareDeleteFile, { path: join(zone, "sub/.git/config") })).toBe(rule);
    expect(act(prepareDeleteDirectory, { path: join(zone, "sub/.git/hooks") })).toBe(rule);
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "sub/.GIT/hooks/pre-commit") })).toBe("notFound");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "sub/.git/hooks/pre-commit") })).toBe(rule);
    expect(act(prepareMove, { from: join(zone, "sub"), to: join(zone, ".Git") })).toBe(rule);
    expect(act(prepareMove, { from: join(zone, "sub/.git"), to: join(zone, "sub/g") })).toBe(rule);
  });

  it("say what a path is", () => {
    expect(act(prepareStat, { path: join(zone, "f") })).toMatchObject({ type: "file", size: 6 });
    expect(act(prepareStat, { path: join(zone, "own-link") })).toMatchObject({ type: "file", size: 6 });
    expect(act(prepareStat, { path: "zone" })).toMatchObject({ type: "folder" });
    expect(act(prepareStat, { path: join(zone, "fifo") })).toMatchObject({ type: "other" });
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

  it("are made, moved and deleted inside write zones", () => {
    expect(act(prepareMakeDirectory, { path: join(zone, "new") })).toEqual({ created: true });
    expect(lstatSync(join(zone, "new")).mode & 0o777).toBe(0o700);
    expect(executeBy(prepareMakeDirectory, policy, { path: join(zone, "new/") })).toEqual({ created: false });
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "new/g") })).toEqual({ replaced: false });
    expect(act(prepareMove, { from: join(zone, "new"), to: join(zone, "sub/newer") })).toEqual({ replaced: false });
    expect(readFileSync(join(zone, "sub/newer/g"), "utf8")).toBe("inside");
    expect(act(prepareDeleteDirectory, { path: join(zone, "sub/newer") })).toBe("notEmpty");
    expect(act(prepareDeleteFile, { path: join(zone, "sub/newer/g") })).toEqual({});
    expect(act(prepareDeleteDirectory, { path: join(zone, "sub/newer") })).toEqual({});
    expect(existsSync(join(zone, "sub/newer"))).toBe(false);
  });

  it("a link is deleted itself, and what it leads to stays", () => {
    expect(act(prepareDeleteFile, { path: join(zone, "out-file") })).toEqual({});
    expect(act(prepareDeleteFile, { path: join(zone, "out") })).toEqual({});
    expect(readFileSync(join(outside, "f"), "utf8")).toBe("OUTSIDE");
  });

  it("a move replaces a file only when told, and never anything else", () => {
    writeFileSync(join(zone, "g"), "other");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "g") })).toBe("exists");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "out-file"), overwrite: true })).toBe("exists");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "sub"), overwrite: true })).toBe("exists");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "g"), overwrite: true })).toEqual({
      replaced: true,
    });
    expect(readFileSync(join(zone, "g"), "utf8")).toBe("inside");
    expect(readlinkSync(join(zone, "out-file"))).toBe(join(outside, "f"));
  });

  const changes: [string, Prepare<{ path: string }, unknown>][] = [
    ["making", prepareMakeDirectory],
    ["deleting a file", prepareDeleteFile],
    ["deleting a folder", prepareDeleteDirectory],
    ["moving from", (p, { path }) => prepareMove(p, { from: path, to: join(zone, "moved") })],
    ["moving to", (p, { path }) => prepareMove(p, { from: join(zone, "f"), to: path })],
  ];
  it.each(changes)("%s outside write zones is refused and changes nothing", (_, prepare) => {
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
    expect(act(prepareDeleteFile, { path: join(zone, "fifo") })).toBe("specialFile");
    expect(act(prepareDeleteFile, { path: join(zone, "sub") })).toBe("specialFile");
    expect(act(prepareDeleteDirectory, { path: join(zone, "f") })).toBe("notAFolder");
    expect(act(prepareDeleteDirectory, { path: join(zone, "out") })).toBe("notAFolder");
    expect(act(prepareMove, { from: join(zone, "own-link"), to: join(zone, "x") })).toBe("specialFile");
    expect(act(prepareDeleteDirectory, { path: join(zone, "inner") })).toBe("namedFolder");
    expect(act(prepareMove, { from: join(zone, "inner"), to: join(zone, "x") })).toBe("namedFolder");
    expect(act(prepareDeleteDirectory, { path: zone })).toBe("outsideWriteZones");
  });

  it("a directory that holds a repository keeps its name", () => {
    mkdirSync(join(zone, "a/project/.git"), { recursive: true });
    mkdirSync(join(zone, "bare/objects"), { recursive: true });
    mkdirSync(join(zone, "bare/refs"));
    writeFileSync(join(zone, "bare/HEAD"), "ref: refs/heads/main\n");
    for (const name of ["a", "a/project", "bare"]) {
      const rule = act(prepareMove, { from: join(zone, name), to: join(zone, "other") });
      expect(rule, name).toBe("writeRules.repositoryInternals");
      expect(existsSync(join(zone, name))).toBe(true);
    }
  });

  it("the rules of a zone hold for what is made or moved", () => {
    expect(act(prepareMakeDirectory, { path: join(zone, "inner/x") })).toBe("createIfMissing");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "inner/x") })).toBe("maxFileBytes");
    expect(act(prepareMove, { from: join(zone, "sub"), to: join(blind, "x") })).toBe("crossesZones");
    expect(act(prepareMove, { from: join(zone, "sub"), to: join(zone, "sub/x") })).toBe("io");
    for (const name of ["x.", "x ", "a\u202eb"]) {
      expect(act(prepareMakeDirectory, { path: `${zone}/${name}` })).toMatch(/trailingDotOrSpace|lookAlikeName/);
    }
    // What may be written but not read does not become readable by a move.
    expect(act(prepareMove, { from: join(blind, "f"), to: join(zone, "x") })).toBe("outsideAllowedRoots");
    expect(act(prepareMove, { from: join(zone, "f"), to: join(blind, "x") })).toEqual({ replaced: false });
  });

  it("a hard link to a file outside is only a name", () => {
    linkSync(join(outside, "f"), join(zone, "hard"));
    expect(act(prepareDeleteFile, { path: join(zone, "hard") })).toEqual({});
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
      const at = join(zone, path);
      act(prepareList, { path: at });
      act(prepareStat, { path: at });
      act(prepareMove, { from: at, to: join(zone, "inner/y") });
      act(prepareMove, { from: join(zone, "nothing"), to: at });
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
    expect(act(prepareMove, { from: join(zone, "f"), to: join(zone, "sub/g") })).toEqual({ replaced: false });
    expect(act(prepareMove, { from: join(zone, "sub"), to: join(zone, "moved") })).toEqual({ replaced: false });
    expect(readFileSync(join(zone, "moved/g"), "utf8")).toBe("inside");
    expect(existsSync(join(zone, "f"))).toBe(false);
    expect(act(prepareMove, { from: join(zone, "moved"), to: join(zone, "inner") })).toBe("exists");
    expect(act(prepareMove, { from: join(zone, "moved"), to: join(zone, "moved/x") })).toBe("io");
    expect(readdirSync(join(zone, "moved"))).toEqual(["g"]);
  });
});
