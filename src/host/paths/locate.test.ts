import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  linkSync,
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
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type OpeningMethod, openingMethod, useOpeningMethod } from "./locate.js";
import { errnoName } from "./native.js";
import { openForRead } from "./read.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "jail-")));
const root = join(base, "root");
const outside = join(base, "outside");
const places = [{ path: root, written: root }];
const rules = { denyNetworkFS: true, hardLinks: "deny" } as const;

beforeAll(() => {
  mkdirSync(join(root, "src/deep"), { recursive: true });
  mkdirSync(outside);
  mkdirSync(`${root}-evil`);
  writeFileSync(join(root, "a.txt"), "inside");
  writeFileSync(join(root, "src/b.txt"), "inside");
  writeFileSync(join(root, "..dots"), "inside");
  writeFileSync(join(outside, "secret"), "secret");
  writeFileSync(join(`${root}-evil`, "secret"), "secret");
  writeFileSync(join(base, "root "), "secret");
  symlinkSync("src/b.txt", join(root, "relative"));
  symlinkSync(join(root, "src/b.txt"), join(root, "absolute"));
  symlinkSync("../a.txt", join(root, "src/up"));
  symlinkSync(root, join(base, "alias"));
  symlinkSync(outside, join(root, "out-dir"));
  symlinkSync(join(outside, "secret"), join(root, "out-file"));
  symlinkSync("../outside/secret", join(root, "out-relative"));
  symlinkSync("/proc/self/root", join(root, "proc-root"));
  symlinkSync("/dev/stdin", join(root, "stdin"));
  symlinkSync("loop-b", join(root, "loop-a"));
  symlinkSync("loop-a", join(root, "loop-b"));
  symlinkSync("nowhere", join(root, "dangling"));
  linkSync(join(outside, "secret"), join(root, "hard"));
  execFileSync("mkfifo", [join(root, "fifo")]);
});
afterAll(() => {
  useOpeningMethod(undefined);
  rmSync(base, { recursive: true, force: true });
});

/** The contents, or the rule that refused. */
function read(path: string): string {
  const opened = openForRead(path, places, rules, "path");
  if (!("fd" in opened)) {
    // What the caller wrote may be repeated; where a link leads may not.
    if (!path.includes(outside)) expect(opened.reason).not.toContain(outside);
    return opened.rule;
  }
  try {
    return readFileSync(opened.fd, "utf8");
  } finally {
    closeSync(opened.fd);
  }
}

test("this machine has openat2", () => {
  useOpeningMethod(undefined);
  expect(openingMethod()).toBe("openat2");
});

describe.each<OpeningMethod>(["openat2", "o_path"])("opening by %s", (method) => {
  beforeAll(() => useOpeningMethod(method));

  test.each([
    ["a file", "root/a.txt"],
    ["a name that begins with dots", "root/..dots"],
    ["a relative link that stays inside", "root/relative"],
    ["an absolute link that stays inside", "root/absolute"],
    ["a link up that stays inside", "root/src/up"],
    [".. that stays inside", "root/src/../a.txt"],
    [".. out and in again", "root/../root/a.txt"],
    ["doubled slashes and dots", "root//.//src/./b.txt"],
    ["a link from outside that leads in", "alias/a.txt"],
  ])("%s is read", (_, path) => expect(read(`${base}/${path}`)).toBe("inside"));

  test.each([
    ["a file outside", "outside/secret", "outsideAllowedRoots"],
    ["a path that does not exist outside looks the same", "outside/nothing", "outsideAllowedRoots"],
    [".. out", "root/../outside/secret", "outsideAllowedRoots"],
    [".. through a folder", "root/src/../../outside/secret", "outsideAllowedRoots"],
    [
      ".. through a link, where the kernel's way and the text's way differ",
      "root/out-dir/../secret",
      "outsideAllowedRoots",
    ],
    ["a link to a folder outside", "root/out-dir/secret", "outsideAllowedRoots"],
    ["a link to a file outside", "root/out-file", "outsideAllowedRoots"],
    ["a relative link outside", "root/out-relative", "outsideAllowedRoots"],
    ["a sibling that begins alike", "root-evil/secret", "outsideAllowedRoots"],
    ["a sibling that differs by a space", "root ", "outsideAllowedRoots"],
    ["the root in upper case", "ROOT/a.txt", "outsideAllowedRoots"],
    ["missing, then ..", "root/nope/../a.txt", "notFound"],
    ["a missing file", "root/nope", "notFound"],
    ["a file as a folder", "root/a.txt/x", "notFound"],
    ["a file with a slash behind it", "root/a.txt/", "notFound"],
    ["a dangling link", "root/dangling", "notFound"],
    ["a folder", "root/src", "notAFile"],
    ["the root itself", "root", "notAFile"],
    ["a pipe", "root/fifo", "specialFile"],
    ["a hard link", "root/hard", "hardLink"],
  ])("%s is refused", (_, path, rule) => expect(read(`${base}/${path}`)).toBe(rule));

  test("loops of links end", () => expect(["symlinkLoop", "outsideAllowedRoots"]).toContain(read(`${root}/loop-a`)));

  test.each([
    ["/proc/self/root in front", `/proc/self/root${root}/a.txt`],
    ["a link to /proc/self/root", `${root}/proc-root${outside}/secret`],
    ["a link to standard input", `${root}/stdin`],
    ["/dev/stdin", "/dev/stdin"],
    ["/proc/self/environ", "/proc/self/environ"],
    ["/proc/self/fd/0", "/proc/self/fd/0"],
    ["/dev/null", "/dev/null"],
    ["/etc/passwd", "/etc/passwd"],
  ])("%s is refused", (_, path) => expect(["outsideAllowedRoots", "symlinkLoop"]).toContain(read(path)));

  test("hard links are read where the policy allows them", () => {
    const opened = openForRead(`${root}/hard`, places, { ...rules, hardLinks: "allow" }, "path");
    expect("fd" in opened).toBe(true);
    if ("fd" in opened) closeSync(opened.fd);
  });

  test("a socket is refused", async () => {
    const path = join(root, `socket-${method}`);
    const server = createServer().listen(path);
    await new Promise((done) => server.once("listening", done));
    expect(read(path)).toBe("specialFile");
    server.close();
  });

  test("the same file is reached by either spelling of its root", () => {
    const aliased = [{ path: root, written: join(base, "alias") }];
    for (const path of [join(base, "alias/a.txt"), join(root, "a.txt")]) {
      const opened = openForRead(path, aliased, rules, "path");
      expect(opened).toMatchObject({ path: join(root, "a.txt") });
      if ("fd" in opened) closeSync(opened.fd);
    }
  });

  test("a root inside a root is the more specific one", () => {
    const nested = [...places, { path: join(root, "src"), written: join(root, "src") }];
    const opened = openForRead(join(root, "src/b.txt"), nested, rules, "path");
    expect("fd" in opened).toBe(true);
    if ("fd" in opened) closeSync(opened.fd);
  });

  test("no descriptor is left open", () => {
    const count = (): number =>
      readdirSync("/proc/self/fd").filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`).startsWith(base);
        } catch {
          return false;
        }
      }).length;
    const before = count();
    for (let i = 0; i < 50; i++)
      for (const path of ["a.txt", "out-file", "src", "nope", "hard", "fifo", "absolute"]) read(`${root}/${path}`);
    expect(count()).toBe(before);
  });
});

test("an error has the name by which it is asked for", () => {
  expect([-2, -11, -18, -40, -95].map(errnoName)).toEqual(["ENOENT", "EAGAIN", "EXDEV", "ELOOP", "ENOTSUP"]);
});

test("renames of other files on the machine never make a path with `..` fail", async () => {
  useOpeningMethod("openat2");
  if (openingMethod() !== "openat2") return;
  const busy = join(base, "busy");
  mkdirSync(busy);
  // The kernel answers EAGAIN to `..` below a root whenever anything at all is renamed meanwhile.
  const script = `const fs = require("fs"); fs.writeFileSync("a", ""); console.log("on");
    for (;;) { fs.renameSync("a", "b"); fs.renameSync("b", "a"); }`;
  const renamer = spawn(process.execPath, ["-e", script], { cwd: busy, stdio: ["ignore", "pipe", "ignore"] });
  try {
    await once(renamer.stdout, "data");
    const answers = new Map<string, number>();
    for (let i = 0; i < 3_000; i++) {
      const answer = read(join(root, "src/deep/../../src/deep/../up"));
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    }
    expect(Object.fromEntries(answers)).toEqual({ inside: 3_000 });
  } finally {
    renamer.kill("SIGKILL");
  }
});
