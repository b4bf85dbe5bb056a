// Two replicas with working folders of their own: an application's definition files and their history are the same at both,
// whichever of them is asked.

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Client } from "../../src/mcp/client/index.js";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { git, gitIsMissing } from "../../src/tools/state/fixtures/git.js";
import { type Deployment, deploy } from "./gateway-world.js";

type Json = Record<string, any>;

const missing = gitIsMissing();
const path = "agents/writer.md";

describe.skipIf(missing).each(["postgres", "sqlite"] as const)("definition files of two replicas on one %s", (kind) => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-files-"));
  let cluster: PostgresCluster | undefined;
  let start: (replica: string) => Promise<Deployment>;
  let deployments: Deployment[] = [];
  let token: string;
  let a: Client;
  let b: Client;

  beforeAll(async () => {
    writeFileSync(join(dir, "seal.key"), `${Buffer.alloc(32, 7).toString("base64")}\n`, { mode: 0o600 });
    cluster = kind === "postgres" ? await startPostgres() : undefined;
    const storage = cluster ? await cluster.database() : `sqlite:${join(dir, "store.db")}`;
    start = (replica) =>
      deploy("permit (principal, action, resource);", { storage, replica, sealKey: `file:${join(dir, "seal.key")}` });
    deployments = [await start("a"), await start("b")];
    const [first, second] = deployments as [Deployment, Deployment];
    await first.put("blog", { permissions: ["core.state.*"] });
    token = await first.key("blog", "bot");
    a = await first.client(token);
    b = await second.client(token);
  });
  afterAll(async () => {
    await a?.close();
    await b?.close();
    for (const deployment of deployments) await deployment.close();
    await cluster?.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  const call = async (at: Client, tool: string, args: Json): Promise<Json> =>
    (await at.callTool(`core.state.${tool}`, args)).structuredContent as Json;
  const ruleOf = async (calling: Promise<Json>): Promise<unknown> => (await calling).rule;
  const history = async (at: Client): Promise<Json[]> =>
    (await call(at, "getDefinitionFileHistory", { path })).history as Json[];
  /** The replica's own repository, as its operator's git sees it. */
  const repositoryOf = (deployment: Deployment | undefined): string => {
    const folder = join(deployment?.dir as string, "repositories");
    return join(folder, readdirSync(folder)[0] as string);
  };

  it("a definition file that is written, diffed and deleted at one replica is read at the other, with one history [H7]", async () => {
    const made = await call(a, "setDefinitionFileContent", { path, content: "one\ntwo\n", expectedRevision: null });
    expect(await call(b, "getDefinitionFileContent", { path })).toEqual({
      path,
      content: "one\ntwo\n",
      revision: made.revision,
    });
    const diff = "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n";
    const changed = await call(b, "applyDiffToDefinitionFile", { path, diff, expectedRevision: made.revision });
    expect(await call(a, "getFileContent", { path })).toMatchObject({
      content: "one\nTWO\n",
      revision: changed.revision,
    });
    expect(await call(b, "getFileContent", { path, commit: made.commit })).toMatchObject({ content: "one\ntwo\n" });
    await call(a, "deleteDefinitionFile", { path, expectedRevision: changed.revision });
    expect(await ruleOf(call(b, "getFileContent", { path }))).toBe("notFound");
    expect(await ruleOf(call(b, "deleteDefinitionFile", { path }))).toBe("notFound");
    await call(b, "setDefinitionFileContent", { path, content: "again\n", expectedRevision: null, message: "back" });
    const all = await history(a);
    expect(all.map(({ message }) => message)).toEqual([
      "back",
      `Delete ${path}`,
      `Apply a diff to ${path}`,
      `Set ${path}`,
    ]);
    expect(await history(b)).toEqual(all);
    const [one, two] = deployments.map(repositoryOf) as [string, string];
    expect(one).not.toBe(two);
    expect(git(one, "rev-parse", "main")).toBe(git(two, "rev-parse", "main"));
    expect(git(one, "ls-tree", "-r", "main")).toBe(git(two, "ls-tree", "-r", "main"));
    for (const repository of [one, two]) git(repository, "fsck", "--strict");
  });

  it("an expected revision of a definition file that the other replica has changed is a conflict [H12]", async () => {
    const file = { path: "cas", expectedRevision: null };
    const first = await call(a, "setDefinitionFileContent", { ...file, content: "of a" });
    expect(await ruleOf(call(b, "setDefinitionFileContent", { ...file, content: "of b" }))).toBe("conflict");
    const expectedRevision = first.revision;
    await call(b, "setDefinitionFileContent", { path: "cas", content: "of b", expectedRevision });
    for (const at of [a, b]) {
      const late = call(at, "setDefinitionFileContent", { path: "cas", content: "late", expectedRevision });
      expect(await ruleOf(late)).toBe("conflict");
      expect(await ruleOf(call(at, "deleteDefinitionFile", { path: "cas", expectedRevision }))).toBe("conflict");
      expect((await call(at, "getFileContent", { path: "cas" })).content).toBe("of b");
    }
  });

  it("one of many concurrent creations of a definition file at two replicas succeeds, and no line of a diff is lost [H12]", async () => {
    const create = (i: number) =>
      ruleOf(call(i % 2 ? a : b, "setDefinitionFileContent", { path: "race", content: "", expectedRevision: null }));
    const created = await Promise.all(Array.from({ length: 6 }, (_, i) => create(i)));
    expect(created.filter((rule) => rule === "conflict")).toHaveLength(5);
    const lines = Array.from({ length: 6 }, (_, i) => `line ${i}`);
    await Promise.all(
      lines.map((line, i) =>
        call(i % 2 ? a : b, "applyDiffToDefinitionFile", { path: "race", diff: `@@ -0,0 +1 @@\n+${line}\n` }),
      ),
    );
    for (const at of [a, b]) {
      const { content } = await call(at, "getFileContent", { path: "race" });
      expect(content.trimEnd().split("\n").sort()).toEqual(lines);
    }
  });

  it("a replica that starts later with an empty directory has all definition files [H12]", async () => {
    const late = await start("c");
    deployments.push(late);
    const c = await late.client(token);
    expect(await history(c)).toEqual(await history(a));
    expect((await call(c, "getFileContent", { path })).content).toBe("again\n");
    await c.close();
  });

  it("definition files are removed with their application, and the next one of that name starts without any [H7]", async () => {
    const [first] = deployments as [Deployment];
    await first.runtime.storage.applications.remove("blog", "test");
    await first.put("blog", { permissions: ["core.state.*"] });
    const again = await first.key("blog", "bot");
    for (const deployment of deployments.slice(0, 2)) {
      const client = await deployment.client(again);
      expect(await ruleOf(call(client, "getFileContent", { path }))).toBe("notFound");
      expect(await history(client)).toEqual([]);
      await client.close();
    }
  });
});
