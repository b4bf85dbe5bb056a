// What `portcullis doctor` finds on this machine, in the data directory and in running gateways.

import { existsSync, mkdtempSync, rmSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import type { Command } from "commander";
import { verify } from "../ledger/index.js";
import type { Finding } from "../lib/finding.js";
import { counted } from "../lib/print.js";
import { describeProblem, PolicyInvalid } from "../policy/index.js";
import { type AdminPlace, askPlace, knownAdmins } from "./admin-client.js";
import { statePaths } from "./data-directory.js";
import type { HostFileOptions } from "./host/config/files.js";
import { knownLedgers } from "./ledgers.js";
import { hostDirectory, shared } from "./options.js";
import { hostApps, servedApps, servedBy } from "./served.js";
import { storeAddressOf, withStore } from "./store/open.js";

const MIN_FREE_BYTES = 256 * 1024 * 1024;

export type DoctorOptions = HostFileOptions & { readonly port: number; readonly app?: string };

export async function examineGateway(command: Command, { port, app }: DoctorOptions): Promise<Finding[]> {
  const { dir } = shared(command);
  const { serverSandboxFindings } = await import("./server-sandbox.js");
  return [
    directory(dir),
    space(dir),
    await portFree(port),
    ...(await policies(command, app)),
    ...(await ledgers(command)),
    ...(await running(command)),
    ...(await serverSandboxFindings(statePaths(dir).dir, app)),
    ...(await callsOf(command, dir, app)),
  ];
}

export function node(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const ok = major > 20 || (major === 20 && minor >= 19);
  return { check: "node", ok, detail: process.versions.node, remedy: "install Node 20.19 or later" };
}

function directory(dir: string): Finding {
  const { dir: path } = statePaths(dir);
  const isThere = existsSync(path);
  let parent = path;
  while (!existsSync(parent)) parent = dirname(parent);
  try {
    // Permissions do not show a disk that is mounted read-only: a file is created.
    rmSync(mkdtempSync(join(parent, ".portcullis-doctor-")), { recursive: true });
  } catch (error) {
    return {
      check: "data directory",
      ok: false,
      detail: `${isThere ? path : `${path} cannot be created: ${parent}`} cannot be written (${(error as NodeJS.ErrnoException).code})`,
      remedy: `make it writable for user ${process.getuid?.()}, or choose another with --dir`,
    };
  }
  if (!isThere) return { check: "data directory", ok: true, detail: `${path} will be created by \`serve\`` };
  const open = process.platform !== "win32" && (statSync(path).mode & 0o077) !== 0;
  return open
    ? { check: "data directory", ok: false, detail: `${path} is open to other users`, remedy: `chmod 700 ${path}` }
    : { check: "data directory", ok: true, detail: path };
}

function space(dir: string): Finding {
  const { dir: path } = statePaths(dir);
  const { bavail, bsize } = statfsSync(existsSync(path) ? path : ".");
  const free = bavail * bsize;
  return {
    check: "disk",
    ok: free >= MIN_FREE_BYTES,
    detail: `${Math.floor(free / 1024 / 1024)} MiB free for the ledger`,
    remedy: "free disk space: when the ledger cannot be written, no call runs",
  };
}

function portFree(port: number): Promise<Finding> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", (error: NodeJS.ErrnoException) => {
      const detail = error.code === "EADDRINUSE" ? `${port} is taken (perhaps by this gateway)` : error.message;
      resolve({ check: "port", ok: error.code === "EADDRINUSE", detail, remedy: "choose another with --port" });
    });
    probe.listen(port, "127.0.0.1", () =>
      probe.close(() => resolve({ check: "port", ok: true, detail: `${port} is free` })),
    );
  });
}

/** The policies of every application, as `portcullis policy check` reads them. */
async function policies(command: Command, only: string | undefined): Promise<Finding[]> {
  if (only !== undefined)
    return [await policyOf(command, (await servedBy(command, { app: only })).app, `policy of ${only}`)];
  if (!existsSync(statePaths(shared(command).dir).policyDir) && hostApps(command).length === 0) {
    return [{ check: "policy", ok: true, detail: "none yet; `serve` writes one" }];
  }
  const apps = await servedApps(command, {});
  return Promise.all(apps.map((app) => policyOf(command, app, apps.length === 1 ? "policy" : `policy of ${app}`)));
}

async function policyOf(command: Command, app: string, check: string): Promise<Finding> {
  try {
    const set = (await servedBy(command, { app })).load();
    return { check, ok: true, detail: counted(set.rules.length, "rule") };
  } catch (error) {
    const detail =
      error instanceof PolicyInvalid ? error.problems.map(describeProblem).join("; ") : (error as Error).message;
    return { check, ok: false, detail, remedy: "correct it and run `portcullis policy check`" };
  }
}

/** Every ledger of the data directory and of hosts, as `portcullis audit verify` reads them. */
async function ledgers(command: Command): Promise<Finding[]> {
  const known = knownLedgers(command);
  if (known.length === 0) return [{ check: "ledger", ok: true, detail: "none yet" }];
  return Promise.all(known.map(({ name, path }) => ledgerAt(path, known.length === 1 ? "ledger" : `ledger ${name}`)));
}

async function ledgerAt(path: string, check: string): Promise<Finding> {
  try {
    const result = await verify(path);
    const detail = result.ok ? `${result.to} records, all good` : (result.problems[0]?.message ?? "does not verify");
    const remedy = "run `portcullis audit verify` and keep a copy before you touch it";
    return { check, ok: result.ok, detail, remedy };
  } catch (error) {
    return { check, ok: false, detail: (error as Error).message, remedy: "run `portcullis audit verify`" };
  }
}

/** What gateways that run on this directory report about themselves. */
async function running(command: Command): Promise<Finding[]> {
  const own = statePaths(shared(command).dir).dir;
  const places = [own, hostDirectory(command)].flatMap((dir) => knownAdmins(dir).map((url) => ({ url, dir })));
  return (await Promise.all(places.map(readiness))).flat();
}

interface Readiness {
  readonly ready: boolean;
  readonly reasons: readonly string[];
  readonly components?: { readonly halts?: { readonly warning?: string } };
  readonly applications?: readonly { readonly app: string; readonly reason: string }[];
}

async function readiness(place: AdminPlace): Promise<Finding[]> {
  const check = `gateway at ${place.url}`;
  try {
    const {
      ready,
      reasons,
      components,
      applications = [],
    } = (await askPlace(place, "/readyz", undefined, [503])) as Readiness;
    const found = [...reasons, ...applications.map(({ app, reason }) => `${app}: ${reason}`)];
    const detail = found.length === 0 ? "ready" : found.join("; ");
    const remedy = "make the ledger's disk writable and the store reachable; see the gateway's log";
    const finding = { check, ok: ready && applications.length === 0, detail, remedy };
    const halted = components?.halts?.warning;
    if (halted === undefined) return [finding];
    const how = "when the reason is gone: `portcullis resume` with the same flags, or remove the file HALT";
    return [finding, { check: `halts at ${place.url}`, ok: false, detail: halted, remedy: how }];
  } catch (error) {
    return [{ check, ok: false, detail: (error as Error).message, remedy: "see the gateway's log" }];
  }
}

/** Calls the servers of the store's applications. A store that cannot be read is a finding, not the end of the others. */
async function callsOf(command: Command, dir: string, app: string | undefined): Promise<Finding[]> {
  try {
    // It starts a gateway, which help does without.
    const { applicationsWithServers, realCalls } = await import("./real-calls.js");
    const apps = await withStore(command, {}, applicationsWithServers);
    if (app !== undefined && !apps.includes(app)) return [];
    const storage = storeAddressOf({});
    const places = { stateDir: dir, ...(storage === undefined ? {} : { storage }) };
    return await realCalls({ ...places, ...(app === undefined ? {} : { app }) }, apps.length > 0);
  } catch (error) {
    return [{ check: "store", ok: false, detail: (error as Error).message, remedy: "make the store reachable" }];
  }
}
