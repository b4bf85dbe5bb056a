// core.linux in the shipped deployments: a command never runs as the gateway's own user. Each deployment runs the gateway
// as an ordinary user without rights; where that user may open user namespaces, commands run in one, elsewhere they are refused.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { connect } from "../../src/mcp/client/index.js";
import { isRoot, unreachableForOthers } from "../host/support/machine.js";
import { has } from "../setup/programs.js";

const ROOT = resolve(import.meta.dirname, "../..");
const main = join(ROOT, "dist/cli/main.js");
const read = (name: string): string => readFileSync(join(ROOT, "deploy", name), "utf8");

const IMAGE_USER = /^USER (\d+):(\d+)$/m.exec(read("Dockerfile"))?.slice(1).map(Number) ?? [];

describe("the manifests of core.linux", () => {
  it("the manifests of core.linux run the gateway as an ordinary user of the image, which cannot gain rights [H9]", () => {
    expect(IMAGE_USER).toEqual([10_001, 10_001]);
    expect(read("Dockerfile")).toContain("useradd --system --uid 10001");
    const { gateway } = parse(read("compose.yaml")).services;
    expect(gateway).toMatchObject({ cap_drop: ["ALL"], security_opt: ["no-new-privileges:true"] });
    for (const field of ["user", "privileged", "cap_add", "pid", "userns_mode"])
      expect(gateway).not.toHaveProperty(field);
    const objects = parseAllDocuments(read("kubernetes/portcullis.yaml"), { merge: true }).map((each) => each.toJSON());
    const pod = objects.find(({ kind }) => kind === "StatefulSet").spec.template.spec;
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: IMAGE_USER[0] });
    for (const { securityContext } of pod.containers) {
      expect(securityContext).toMatchObject({ allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } });
      expect(securityContext).not.toHaveProperty("privileged");
    }
  });

  it("the manifests of core.linux close namespaces in the systemd unit, and the drop-in for commands opens them [H9]", () => {
    const unit = read("portcullis.service");
    for (const line of ["User=portcullis", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictNamespaces=yes"]) {
      expect(unit.split("\n")).toContain(line);
    }
    const dropIn = read("portcullis-commands.conf");
    expect(dropIn).toMatch(/^RestrictNamespaces=user mnt pid /m);
    // Nothing but namespaces, what they need, and limits.
    const settings = dropIn.split("\n").flatMap((line) => /^(\w+)=/.exec(line)?.[1] ?? []);
    expect(settings).toEqual(["RestrictNamespaces", "SystemCallFilter", "Delegate"]);
  });

  it("the units of core.linux are read by systemd together without a complaint", ({ skip }) => {
    if (!has("systemd-analyze")) return skip("systemd-analyze is not installed (a part of systemd)");
    const folder = mkdtempSync(join(tmpdir(), "portcullis-unit-"));
    try {
      const verify = (dropIn: string): string => {
        mkdirSync(join(folder, "portcullis.service.d"), { recursive: true });
        writeFileSync(join(folder, "portcullis.service"), read("portcullis.service"));
        writeFileSync(join(folder, "portcullis.service.d/commands.conf"), dropIn);
        const ran = spawnSync("systemd-analyze", ["verify", "portcullis.service"], {
          encoding: "utf8",
          env: { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` },
        });
        return ran.stderr
          .split("\n")
          .filter((line) => line.includes("portcullis"))
          .join("\n");
      };
      expect(verify(read("portcullis-commands.conf"))).toBe("");
      expect(verify(read("portcullis-commands.conf").replace("RestrictNamespaces", "RestrictNamespace"))).not.toBe("");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

const NO_RIGHTS = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"];
const asImageUser = isRoot
  ? ["setpriv", "--reuid", String(IMAGE_USER[0]), "--regid", String(IMAGE_USER[1]), "--clear-groups"]
  : [];
/** As the default seccomp profile of container engines does, and RestrictNamespaces=yes. */
const CLOSED = [
  ...asImageUser,
  ...["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"],
  `echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv ${NO_RIGHTS.join(" ")} "$@"`,
  "sh",
];
const OPEN = [...asImageUser, "setpriv", ...NO_RIGHTS];

const missing = ["setpriv", "unshare"].filter((program) => !has(program));
const cannot =
  process.platform !== "linux"
    ? "Linux only"
    : (unreachableForOthers() ?? (missing.length > 0 ? `needs ${missing.join(", ")}` : undefined));

describe.skipIf(cannot !== undefined)("a command of core.linux, with the rights of a shipped deployment", () => {
  const base = mkdtempSync(join(tmpdir(), "portcullis-commands-"));
  const [dir, files] = [join(base, "state"), join(base, "files")];
  const env = { PATH: process.env.PATH ?? "", HOME: base, PORTCULLIS_DIR: dir, NO_COLOR: "1" };
  const children: ChildProcess[] = [];

  beforeAll(() => {
    for (const each of [dir, files]) mkdirSync(each, { mode: 0o700 });
    chmodSync(base, 0o755);
    writeFileSync(join(base, "rules.cedar"), "permit (principal, action, resource);");
    const commands = [
      { id: "touch", exec: "/usr/bin/touch", args: { patterns: [{ value: ".*" }] } },
      { id: "status", exec: "/bin/cat", args: { allow: ["/proc/self/status"] } },
      { id: "cat", exec: "/bin/cat", args: { patterns: [{ value: ".*" }] } },
    ];
    const local = {
      permissions: ["core.linux.executeCommand"],
      policies: ["rules.cedar"],
      filesystem: { allowedRoots: [files], writeRules: [{ path: files, recursive: true, createIfMissing: true }] },
      linux: { commands },
    };
    writeFileSync(join(base, "portcullis.yaml"), JSON.stringify({ applications: { local } }));
    if (isRoot) for (const each of [base, dir, files]) chownSync(each, IMAGE_USER[0] ?? 0, IMAGE_USER[1] ?? 0);
    const [program = "", ...args] = [...OPEN, process.execPath, main, "app", "apply", join(base, "portcullis.yaml")];
    const applied = spawnSync(program, [...args, "--yes"], { env, encoding: "utf8", timeout: 60_000 });
    expect(applied.status, applied.stderr).toBe(0);
  });
  afterAll(() => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(base, { recursive: true, force: true });
  });

  interface Served {
    run(command: string, ...args: string[]): Promise<Readonly<Record<string, any>>>;
    stop(): Promise<number | null>;
  }

  async function serve(prefix: readonly string[]): Promise<Served> {
    const serving = [process.execPath, main, "serve", "--app", "local", "--port", "0", "--admin-port", "0"];
    const [program = "", ...args] = [...prefix, ...serving];
    const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
    children.push(child);
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said += String(chunk)));
    const ended = new Promise<number | null>((done) => child.once("exit", done));
    const until = Date.now() + 60_000;
    let url: string | undefined;
    while (url === undefined) {
      if (child.exitCode !== null || Date.now() > until) throw new Error(`serve did not start: ${said}`);
      await new Promise((done) => setTimeout(done, 50));
      url = /MCP\s+(http:\S+)/.exec(said)?.[1];
    }
    const client = await connect(url, { revision: "2026-07-28" });
    return {
      run: async (command, ...rest) => {
        const result = await client.callTool("core.linux.executeCommand", { command, args: rest });
        expect(result.structuredContent, JSON.stringify(result)).toBeTypeOf("object");
        return result.structuredContent as object;
      },
      stop: async () => {
        await client.close();
        child.kill("SIGTERM");
        return ended;
      },
    };
  }

  it("a command of core.linux is refused with the reason where user namespaces are closed, and has no effect [H9]", async () => {
    const gateway = await serve(CLOSED);
    try {
      const refused = await gateway.run("touch", join(files, "made"));
      expect(refused).toMatchObject({ code: "POLICY_DENY", rule: "sandboxRequired" });
      expect(refused.reason).toContain("a low-privilege user for commands (allow user namespaces");
      expect(existsSync(join(files, "made"))).toBe(false);
    } finally {
      await gateway.stop();
    }
  });

  it("a command of core.linux runs in a user namespace where they are open, without rights, and reaches nothing of the gateway [H9]", async () => {
    const gateway = await serve(OPEN);
    try {
      const made = await gateway.run("touch", join(files, "made"));
      expect(made, JSON.stringify(made)).toMatchObject({ exitCode: 0, protections: { userNamespace: true } });
      expect(existsSync(join(files, "made"))).toBe(true);
      const status = await gateway.run("status", "/proc/self/status");
      if (status.exitCode === 0) {
        expect(status.stdout).toMatch(/^CapEff:\s+0+$/m);
        expect(status.stdout).toMatch(/^NoNewPrivs:\s+1$/m);
      }
      for (const secret of ["operator.token", "seal.key", "portcullis.db"]) {
        const tried = await gateway.run("cat", join(dir, secret));
        expect(tried.exitCode, JSON.stringify(tried)).not.toBe(0);
      }
    } finally {
      await gateway.stop();
    }
  });
});
