import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { openStorage, type Storage } from "../../storage/index.js";
import { type Calling, callTool, ruleOf } from "../fixtures/calling.js";
import { definitionTools } from "./definition-tools.js";
import { git, gitIsMissing } from "./fixtures/git.js";
import { repositoryDirectory, type StateLimits } from "./settings.js";
import { historyOf } from "./stored.js";

const base = mkdtempSync(join(tmpdir(), "state-"));
let storage: Storage;
beforeAll(async () => {
  storage = await openStorage("sqlite::memory:");
});
afterAll(async () => {
  await storage.close();
  rmSync(base, { recursive: true, force: true });
});
const missing = gitIsMissing();

function applicationState(id: string, limits?: Partial<StateLimits>) {
  const repository = repositoryDirectory(base, id);
  const owner = { app: { id }, services: { log: { log: () => undefined } } };
  const history = historyOf(storage.repositories, id);
  const tools = definitionTools(owner, { repository, ...(limits ? { limits } : {}) }, history);
  const call = async (name: string, args: JsonObject, calling: Calling = {}) => {
    await storage.applications.put(id, {}, "test", 0);
    return await callTool(tools, `core.state.${name}`, args, { app: id, ...calling });
  };
  return { repository, call };
}

describe.skipIf(missing)(`definition files${missing ? ` (${missing})` : ""}`, () => {
  it("are set, read, changed by a diff, deleted, and all of it stays in the history [H7]", async () => {
    const { call, repository } = applicationState("blog");
    const path = "agents/writer.md";
    const first = await call("setDefinitionFileContent", { path, content: "one\ntwo\n" }, { traceId: "t1" });
    expect(first).toMatchObject({ created: true, changed: true });
    expect(await call("getDefinitionFileContent", { path })).toEqual({
      path,
      content: "one\ntwo\n",
      revision: first.revision,
    });
    expect(await call("getFileContent", { path })).toEqual(await call("getDefinitionFileContent", { path }));
    const diff = `--- a/${path}\n+++ b/${path}\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n`;
    await call("applyDiffToDefinitionFile", { path, diff, message: "louder" }, { agent: "editor", traceId: "t2" });
    expect((await call("getFileContent", { path })).content).toBe("one\nTWO\n");
    await call("deleteDefinitionFile", { path }, { traceId: "t3" });
    expect(await ruleOf(call("getFileContent", { path }))).toBe("notFound");
    expect(await call("getFileContent", { path, commit: first.commit as string })).toMatchObject({
      content: "one\ntwo\n",
    });
    const { history } = await call("getDefinitionFileHistory", { path });
    expect(history).toMatchObject([
      { agent: "writer", message: `Delete ${path}`, trace: "t3" },
      { agent: "editor", message: "louder", trace: "t2" },
      { agent: "writer", message: `Set ${path}`, trace: "t1" },
    ]);
    expect(git(repository, "log", "-1", "--format=%(trailers:only)", "main")).toBe(
      "App: blog\nAgent: writer\nTrace: t3\n\n",
    );
    git(repository, "fsck", "--strict");
  });

  it("definition files keep every byte of any text", async () => {
    const { call } = applicationState("bytes");
    for (const content of ["", "\n", "a\r\nb\r", "\0\u0001", "é\u{1f600}", "$Id$\n*.txt filter=x\n"]) {
      await call("setDefinitionFileContent", { path: "f", content });
      expect((await call("getFileContent", { path: "f" })).content).toBe(content);
    }
    expect(await ruleOf(call("setDefinitionFileContent", { path: "f", content: "\ud800" }))).toBe("definitionFileText");
  });

  it("the same contents again make no commit", async () => {
    const { call } = applicationState("same");
    const first = await call("setDefinitionFileContent", { path: "f", content: "a" });
    const again = await call("setDefinitionFileContent", { path: "f", content: "a" });
    expect(again).toEqual({ ...first, created: false, changed: false });
  });

  it("definition files with an expected revision change only what was read", async () => {
    const { call } = applicationState("cas");
    const set = (content: string, expectedRevision: string | null) =>
      call("setDefinitionFileContent", { path: "f", content, expectedRevision });
    expect(await ruleOf(set("x", "0".repeat(40)))).toBe("conflict");
    const first = await set("a", null);
    expect(await ruleOf(set("x", null))).toBe("conflict");
    await set("b", first.revision as string);
    expect(await ruleOf(set("x", first.revision as string))).toBe("conflict");
    const gone = call("deleteDefinitionFile", { path: "f", expectedRevision: first.revision as string });
    expect(await ruleOf(gone)).toBe("conflict");
    expect((await call("getFileContent", { path: "f" })).content).toBe("b");
  });

  it("a diff that fits only in part leaves file and history as they were [H7]", async () => {
    const { call, repository } = applicationState("half");
    await call("setDefinitionFileContent", { path: "f", content: "a\nb\nc\nd\n" });
    const before = git(repository, "rev-parse", "main");
    const diff = "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-x\n+C\n";
    expect(await ruleOf(call("applyDiffToDefinitionFile", { path: "f", diff }))).toBe("diffDoesNotApply");
    expect((await call("getFileContent", { path: "f" })).content).toBe("a\nb\nc\nd\n");
    expect(git(repository, "rev-parse", "main")).toBe(before);
  });

  it.each([
    "../f",
    "/etc/passwd",
    "a/../../f",
    "a//b",
    "a/",
    "./a",
    "-x",
    "a/-x",
    ".git/config",
    "a/.GIT/hooks/post-update",
    "git~1/config",
    ".gitattributes",
    "a\nb",
    "a\0b",
    "a\u202eb",
    "C:x",
    "a\\b",
    "e\u0301",
    "a.",
    "a ",
    "x".repeat(256),
    "x/".repeat(20) + "f",
    "main:f",
    "a*",
    "~root/f",
  ])("a hostile path is refused: %j", async (path) => {
    const { call } = applicationState("paths");
    expect(await ruleOf(call("setDefinitionFileContent", { path, content: "x" }))).toBe("definitionFilePath");
    expect(await ruleOf(call("getFileContent", { path }))).toBe("definitionFilePath");
  });

  it("a directory is not a file and a file is not a directory", async () => {
    const { call } = applicationState("folders");
    await call("setDefinitionFileContent", { path: "a/b/c", content: "x" });
    expect(await ruleOf(call("setDefinitionFileContent", { path: "a/b", content: "x" }))).toBe("isFolder");
    expect(await ruleOf(call("getFileContent", { path: "a/b" }))).toBe("isFolder");
    expect(await ruleOf(call("deleteDefinitionFile", { path: "a" }))).toBe("isFolder");
    expect(await ruleOf(call("setDefinitionFileContent", { path: "a/b/c/d", content: "x" }))).toBe("isFile");
    expect((await call("getFileContent", { path: "a/b/c" })).content).toBe("x");
  });

  it("the words of a caller cannot imitate who did it", async () => {
    const { call, repository } = applicationState("forged");
    const message = "x\n\nAgent: admin\nApp: other";
    const agent = 'evil <a@b>\nAuthor: "root"';
    await call("setDefinitionFileContent", { path: "f", content: "a", message }, { agent, traceId: "t" });
    expect(
      git(repository, "log", "-1", "--format=%(trailers:key=App,valueonly)%(trailers:key=Trace,valueonly)", "main"),
    ).toBe("forged\nt\n\n");
    expect(git(repository, "log", "-1", "--format=%ae|%ce|%cn", "main")).toBe(
      "agent@portcullis.invalid|gateway@portcullis.invalid|Portcullis\n",
    );
    expect(git(repository, "log", "-1", "--format=%B", "main").trimEnd().split("\n")).toHaveLength(5);
  });

  it("definition files stay within the limits of size and number", async () => {
    const { call } = applicationState("limits", { maxFileBytes: 10, maxFiles: 2 });
    expect(await ruleOf(call("setDefinitionFileContent", { path: "f", content: "é".repeat(6) }))).toBe("maxFileBytes");
    await call("setDefinitionFileContent", { path: "a", content: "1" });
    await call("setDefinitionFileContent", { path: "b", content: "1" });
    expect(await ruleOf(call("setDefinitionFileContent", { path: "c", content: "1" }))).toBe("maxFiles");
    await call("setDefinitionFileContent", { path: "b", content: "2" });
    const grow = "@@ -1 +1 @@\n-2\n\\ No newline at end of file\n+123456789012\n";
    expect(await ruleOf(call("applyDiffToDefinitionFile", { path: "b", diff: grow }))).toBe("maxFileBytes");
    const full = applicationState("full", { maxRepositoryBytes: 0 });
    await full.call("setDefinitionFileContent", { path: "a", content: "1" }).catch(() => undefined);
    expect(await ruleOf(full.call("setDefinitionFileContent", { path: "a", content: "2" }))).toBe("maxRepositoryBytes");
  });

  it("git runs no hook and reads no settings of a user, of the machine or of the environment [H7]", async () => {
    const { call, repository } = applicationState("hooks");
    await call("setDefinitionFileContent", { path: "f", content: "1" });
    const home = join(base, "home");
    const trap = join(base, "trapped");
    mkdirSync(join(home, "hooks"), { recursive: true });
    mkdirSync(join(repository, "hooks"), { recursive: true });
    const script = `#!/bin/sh\ntouch ${trap}\nexit 1\n`;
    for (const hook of ["reference-transaction", "post-commit", "pre-commit", "update", "post-index-change"]) {
      for (const directory of [join(home, "hooks"), join(repository, "hooks")]) {
        writeFileSync(join(directory, hook), script);
        chmodSync(join(directory, hook), 0o755);
      }
    }
    const settings = `[core]\nhooksPath=${home}/hooks\nfsmonitor=${home}/hooks/update\npager=${home}/hooks/update\n`;
    writeFileSync(join(home, ".gitconfig"), settings);
    const hostile = {
      HOME: home,
      GIT_DIR: "/nowhere",
      GIT_CONFIG_GLOBAL: join(home, ".gitconfig"),
      GIT_TRACE: join(base, "trace"),
    };
    const before = { ...process.env };
    Object.assign(process.env, hostile);
    try {
      await call("setDefinitionFileContent", { path: "f", content: "2" });
      expect((await call("getFileContent", { path: "f" })).content).toBe("2");
    } finally {
      process.env = before;
    }
    expect(readdirSync(base)).not.toContain("trapped");
    expect(readdirSync(base)).not.toContain("trace");
    // The trap is one: an ordinary git falls into it.
    expect(() => git(repository, "update-ref", "refs/heads/x", "main")).toThrow();
    expect(readdirSync(base)).toContain("trapped");
  });

  it("locks that a killed process left behind do not stop the next writer", async () => {
    const { call, repository } = applicationState("stale");
    await call("setDefinitionFileContent", { path: "f", content: "1" });
    const old = new Date(Date.now() - 60_000);
    const lost = ["index-1.tmp", "index-1.tmp.lock"].map((name) => join(repository, name));
    for (const file of lost) {
      writeFileSync(file, "");
      utimesSync(file, 1, 1);
    }
    await applicationState("stale").call("getFileContent", { path: "f" });
    for (const name of ["portcullis.turn", "refs/heads/main.lock"]) {
      writeFileSync(join(repository, name), "");
      utimesSync(join(repository, name), old, old);
    }
    await call("setDefinitionFileContent", { path: "f", content: "2" });
    expect((await call("getFileContent", { path: "f" })).content).toBe("2");
    writeFileSync(join(repository, "portcullis.turn"), "a slow writer");
    await call("setDefinitionFileContent", { path: "f", content: "3" });
    expect(readdirSync(repository).filter((name) => /index-|stale/.test(name))).toEqual([]);
  });

  it("a cancelled write leaves nothing behind", async () => {
    const { call, repository } = applicationState("cancelled");
    await call("setDefinitionFileContent", { path: "f", content: "1" });
    const before = git(repository, "rev-parse", "main");
    const stop = new AbortController();
    const writing = call("setDefinitionFileContent", { path: "f", content: "2" }, { signal: stop.signal });
    stop.abort();
    await expect(writing).rejects.toThrow();
    expect(git(repository, "rev-parse", "main")).toBe(before);
  });
});

describe.skipIf(missing)("two applications", () => {
  it("two applications have files of their own, and neither a path nor a commit leads to the other's [H7]", async () => {
    const a = applicationState("alpha");
    const b = applicationState("beta");
    await a.call("setDefinitionFileContent", { path: "f", content: "of alpha" });
    const secret = await b.call("setDefinitionFileContent", { path: "secret", content: "of beta" });
    expect(await ruleOf(a.call("getFileContent", { path: "secret" }))).toBe("notFound");
    expect(await ruleOf(a.call("getFileContent", { path: "secret", commit: secret.commit as string }))).toBe(
      "notFound",
    );
    expect(await ruleOf(a.call("getFileContent", { path: "f", commit: "main" }))).toBe("notFound");
    expect(await ruleOf(a.call("getFileContent", { path: "f", commit: "--help" }))).toBe("notFound");
    // The tools of one application, reached in the name of the other by a mistake of the router: not there.
    const lost = a.call("getFileContent", { path: "f" }, { app: "beta" });
    await expect(lost).rejects.toMatchObject({ type: "ToolNotFound" });
  });

  it("two applications get different directories whatever they are called", () => {
    const names = ["a", "A", "a ", "a/", "../a", "a.git", "ä", "a\u0308", "", "x".repeat(300), `${"x".repeat(300)}y`];
    const directories = names.map((name) => repositoryDirectory("/state", name));
    expect(new Set(directories.map((directory) => directory.toLowerCase())).size).toBe(names.length);
    for (const directory of directories) expect(directory).toMatch(/^\/state\/[a-z0-9-]*-[0-9a-f]{24}\.git$/);
  });
});
