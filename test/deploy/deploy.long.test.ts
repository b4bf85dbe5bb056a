// deploy/: each file is judged by a tool that others wrote, and what the container runs is run here.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { fromNpm, fromPython, fromSystemd, type Linter } from "./linters.js";

const ROOT = resolve(import.meta.dirname, "../..");
const DEPLOY = join(ROOT, "deploy");
const read = (name: string): string => readFileSync(join(DEPLOY, name), "utf8");

describe("files to deploy with", { timeout: 200_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "portcullis-deploy-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Good as it is, and a mistake in it is found. */
  const judged = (lint: Linter, name: string, mistake: [string, string]): void => {
    const good = lint(join(DEPLOY, name));
    expect(good.code, good.said).toBe(0);
    const broken = join(folder, name.split("/").at(-1) as string);
    expect(read(name)).toContain(mistake[0]);
    writeFileSync(broken, read(name).replace(mistake[0], mistake[1]));
    const bad = lint(broken);
    expect(bad.code, `${mistake[1]} was not found`).not.toBe(0);
  };

  it("Dockerfile: hadolint finds nothing [H12]", ({ skip }) => {
    const linters = fromPython(ROOT);
    if (typeof linters === "string") return skip(linters);
    judged(linters.hadolint, "Dockerfile", ["RUN npm ci", "RUN cd x && npm ci"]);
  });

  it("kubernetes: every object has only fields that the API accepts [H12]", ({ skip }) => {
    const linters = fromPython(ROOT);
    if (typeof linters === "string") return skip(linters);
    judged(linters.kubernetes, "kubernetes/portcullis.yaml", ["runAsNonRoot: true", "runAsNonroot: true"]);
  });

  it("compose: dclint finds nothing [H12]", ({ skip }) => {
    const lint = fromNpm();
    if (typeof lint === "string") return skip(lint);
    judged(lint, "compose.yaml", ["    build:\n", "    image: portcullis\n    build:\n"]);
  });

  it("systemd: the unit is read without a complaint and has a low exposure score [H12]", ({ skip }) => {
    const lint = fromSystemd(1.5);
    if (typeof lint === "string") return skip(lint);
    judged(lint, "portcullis.service", ["NoNewPrivileges=", "NoNewPrivilege="]);
    judged(lint, "portcullis.service", ["User=portcullis", "User=root"]);
  });

  it("every file that the image copies exists and passes its ignore list", () => {
    const ignored = read("Dockerfile.dockerignore").split("\n");
    const sources = [...read("Dockerfile").matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, all = ""]) =>
      all.split(" "),
    );
    expect(sources.length).toBeGreaterThan(3);
    for (const source of sources) {
      expect(ignored, source).toContain(`!${source.replace("./", "")}`);
      if (!source.includes("*")) expect(existsSync(join(ROOT, source)), source).toBe(true);
    }
  });
});

describe("what the container runs", { timeout: 120_000 }, () => {
  let postgres: PostgresCluster;
  const dir = mkdtempSync(join(tmpdir(), "portcullis-container-"));
  const children = new Set<ChildProcess>();
  beforeAll(async () => {
    postgres = await startPostgres();
  }, 120_000);
  afterAll(async () => {
    for (const child of children) child.kill("SIGKILL");
    await postgres?.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  const instruction = (name: string): string[] => {
    const text = read("Dockerfile").replaceAll("\\\n", "");
    const last = [...text.matchAll(new RegExp(`^\\s*${name}.*?(\\[.*\\])$`, "gm"))].at(-1)?.[1];
    return JSON.parse(last as string) as string[];
  };

  it("the container's command starts, is healthy, ends at SIGTERM and starts again on the same volume [H12]", async () => {
    const [port, admin] = [await freePort(), await freePort()];
    const storage = await postgres.database();
    const sealKey = Buffer.alloc(32, 7).toString("base64");
    const env = {
      PATH: process.env.PATH,
      PORTCULLIS_DIR: dir,
      PORTCULLIS_STORAGE: storage,
      PORTCULLIS_SEAL_KEY: sealKey,
    };
    const main = join(ROOT, "dist", "cli", "main.js");
    const isHealthy = (): boolean => {
      const [program, ...args] = instruction("HEALTHCHECK").map((word) => word.replace("7421", String(admin)));
      expect(program).toBe("node");
      return spawnSync(process.execPath, args, { timeout: 10_000 }).status === 0;
    };
    expect(isHealthy()).toBe(false);
    for (const _start of ["first", "second"]) {
      const args = [main, ...instruction("CMD"), "--port", String(port), "--admin-port", String(admin)];
      const child = spawn(process.execPath, args, { env, stdio: ["ignore", "ignore", "pipe"] });
      children.add(child);
      let said = "";
      child.stderr.on("data", (chunk) => {
        said += String(chunk);
      });
      const ended = new Promise<number | null>((done) => child.once("exit", done));
      for (let tries = 0; tries < 60 && !isHealthy() && child.exitCode === null; tries++) await pause(250);
      expect(isHealthy(), said).toBe(true);
      const answer = await fetch(`http://127.0.0.1:${port}/mcp`, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }),
      });
      expect(answer.status).toBe(401);
      child.kill("SIGTERM");
      expect(await ended, said).toBe(0);
    }
    const verified = spawnSync(process.execPath, [main, "audit", "verify"], { env, encoding: "utf8" });
    expect(verified.status, verified.stdout + verified.stderr).toBe(0);
  });
});

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

function freePort(): Promise<number> {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => done(port));
    });
  });
}
