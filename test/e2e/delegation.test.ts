// Five delegations across two gateways: two runtimes with HTTP doors and ledgers of their own, one workflow.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../src/mcp/client/index.js";
import {
  canonicalize,
  contentId,
  generateDelegationKeys,
  handOnDelegation,
  mintDelegation,
  spendDelegation,
  takeDelegationAcross,
} from "../../src/policy/index.js";
import { type GatewayRuntime, startGateway } from "../../src/runtime/start.js";
import { ensureDelegationKeys } from "../../src/runtime/workflow/keys.js";
import { loadWorkflow } from "../../src/runtime/workflow/load.js";
import { type WorkflowInForce, workflowInForce } from "../../src/runtime/workflow/serving.js";
import { notingServer, type Ran } from "./workflow-world.js";

const WORKFLOW = `
servers:
  files:
    tools:
      - &read
        name: read
        inputSchema: &path { type: object, properties: { path: { type: string } }, required: [path], additionalProperties: false }
      - { name: write, inputSchema: *path }
      - { name: stat, inputSchema: *path }
  net:
    tools:
      - { name: send, inputSchema: &to { type: object, properties: { to: { type: string } }, required: [to], additionalProperties: false } }
      - { name: fetch, inputSchema: *to }
agents:
  boss: { servers: [files, net] }
  planner: { servers: [files, net] }
  lead: { servers: [files, net] }
  worker: { servers: [files] }
  reader: { servers: [files] }
  scout: { servers: [files] }
delegations:
  - { from: boss, to: planner, tools: [files.*, net.send] }
  - { from: planner, to: lead, tools: [files.*] }
  - { from: lead, to: worker, tools: [files.read, files.stat] }
  - { from: worker, to: reader, arguments: { files.read: { properties: { path: { pattern: "^/srv/" } } } } }
  - { from: reader, to: scout, arguments: { files.read: { properties: { path: { maxLength: 10 } } } } }
`;

interface Place {
  readonly dir: string;
  readonly runtime: GatewayRuntime;
  readonly workflow: WorkflowInForce;
  readonly ran: Ran[];
}

const root = mkdtempSync(join(tmpdir(), "portcullis-delegation-"));
const file = join(root, "workflow.yaml");
let [home, branch]: Place[] = [];

async function open(name: string, trusted: readonly string[]): Promise<Place> {
  const dir = join(root, name);
  const workflow = await workflowInForce({ file, stateDir: dir, trusted });
  const ran: Ran[] = [];
  const runtime = await startGateway({
    stateDir: dir,
    inProcess: { app: "local", server: notingServer(await loadWorkflow(file), ran) },
    workflow,
    http: { host: "127.0.0.1", port: 0 },
    telemetry: { log: { level: "critical" } },
  });
  return { dir, runtime, workflow, ran };
}

beforeAll(async () => {
  writeFileSync(file, WORKFLOW);
  home = await open("home", []);
  branch = await open("branch", [home.workflow.keys.publicKey]);
});

afterAll(async () => {
  await home?.runtime.close();
  await branch?.runtime.close();
  rmSync(root, { recursive: true, force: true });
});

const at = (place: Place | undefined): Place => place as Place;
const gatewayOf = (place: Place | undefined): string => at(place).workflow.keys.gateway;

interface Answer {
  status: number;
  error?: { rule?: string; delegation?: string; error_type?: string };
}

async function post(place: Place | undefined, token: string | undefined, tool: string, args: object): Promise<Answer> {
  const response = await fetch(new URL(`/tools/${tool}`, at(place).runtime.listeners[0]?.url), {
    method: "POST",
    headers: { "content-type": "application/json", ...(token === undefined ? {} : { "portcullis-delegation": token }) },
    body: JSON.stringify(args),
  });
  return { status: response.status, ...((await response.json()) as object) };
}

/** Calls with a fresh use of a delegation. */
function call(place: Place | undefined, held: string, tool: string, args: object): Promise<Answer> {
  return post(place, spendDelegation(held, { audience: gatewayOf(place) }), tool, args);
}

const WAY = ["planner", "lead", "worker", "reader", "scout"] as const;

/** The tokens of boss, planner and lead are of the first gateway; from worker on they are taken across. */
function chain(): string[] {
  const keys = at(home).workflow.keys;
  const tokens = [mintDelegation(keys, { agent: "boss" })];
  for (const [i, to] of WAY.entries()) {
    if (i === 2) tokens.push(handOnDelegation(takeDelegationAcross(keys, tokens.at(-1) as string), { to }));
    else tokens.push(handOnDelegation(tokens.at(-1) as string, { to }));
  }
  return tokens;
}

describe("a chain of five delegations across two gateways", () => {
  it("a chain of five delegations across two gateways narrows at every hop, live, at both gateways [L4]", async () => {
    const [boss, planner, lead, worker, reader, scout] = chain() as [string, string, string, string, string, string];
    const asked: [string, object][] = [
      ["net.fetch", { to: "x" }],
      ["net.send", { to: "x" }],
      ["files.write", { path: "/a" }],
      ["files.stat", { path: "/a" }],
      ["files.read", { path: "/etc/passwd" }],
      ["files.read", { path: "/srv/a/long/path" }],
      ["files.read", { path: "/srv/a" }],
    ];
    const permitted = async (place: Place | undefined, token: string): Promise<number[]> => {
      const answers = [];
      for (const [tool, args] of asked) answers.push((await call(place, token, tool, args)).status === 200 ? 1 : 0);
      return answers;
    };
    expect(await permitted(home, boss)).toEqual([1, 1, 1, 1, 1, 1, 1]);
    expect(await permitted(home, planner)).toEqual([0, 1, 1, 1, 1, 1, 1]);
    expect(await permitted(home, lead)).toEqual([0, 0, 1, 1, 1, 1, 1]);
    expect(await permitted(branch, worker)).toEqual([0, 0, 0, 1, 1, 1, 1]);
    expect(await permitted(branch, reader)).toEqual([0, 0, 0, 1, 0, 1, 1]);
    expect(await permitted(branch, scout)).toEqual([0, 0, 0, 1, 0, 0, 1]);
    expect(at(home).ran).toHaveLength(7 + 6 + 5);
    expect(at(branch).ran).toHaveLength(4 + 3 + 2);
  });

  it("a chain of five delegations is recorded as a whole for one call, and the ledger verifies [L10]", async () => {
    const scout = chain().at(-1) as string;
    await call(branch, scout, "files.read", { path: "/srv/zz" });
    await call(branch, scout, "files.read", { path: "/etc/zz" });
    await at(branch).runtime.ledger.append({ kind: "admin", actor: "test", action: "flush" });
    const records = readdirSync(join(at(branch).dir, "ledger"), { recursive: true })
      .map((name) => join(at(branch).dir, "ledger", String(name)))
      .filter((name) => name.endsWith(".ndjson"))
      .flatMap((name) => readFileSync(name, "utf8").trim().split("\n"))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ kind, agent }) => kind === "decision" && agent === "scout");
    const [denied, permitted] = [records.at(-1), records.at(-2)];
    expect(permitted).toMatchObject({ effect: "permit", tool: "files.read", actor: "local/scout" });
    expect(denied).toMatchObject({ effect: "deny", rules: expect.arrayContaining(["workflow.scope"]) });
    for (const record of [permitted, denied]) {
      expect(record?.detail).toMatchObject({
        delegation: {
          token: "ed25519",
          issuer: gatewayOf(home),
          chain: [
            { agent: "boss", holds: 5 },
            { agent: "planner", holds: 4 },
            { agent: "lead", holds: 3 },
            { agent: "worker", holds: 2 },
            { agent: "reader", holds: 2 },
            { agent: "scout", holds: 2 },
          ],
        },
      });
    }
  });

  it("a chain of five delegations across two gateways refuses a forged, widened, replayed, expired or misdirected token, without effect [L10]", async () => {
    const [boss, , , worker, reader] = chain() as [string, string, string, string, string];
    const before = at(branch).ran.length + at(home).ran.length;
    const audience = gatewayOf(branch);
    const args = { path: "/srv/a" };
    const refused = async (token: string, tool = "files.read", place = branch): Promise<string | undefined> => {
      const { status, error } = await post(place, token, tool, args);
      expect(status).not.toBe(200);
      return error?.delegation ?? error?.rule ?? error?.error_type;
    };
    const stranger = generateDelegationKeys();
    const forged = mintDelegation({ ...stranger, gateway: gatewayOf(home) }, { agent: "boss", across: true });
    expect(await refused(spendDelegation(forged, { audience }))).toBe("forged");
    expect(await refused(spendDelegation(boss, { audience }))).toBe("forged");
    expect(
      await refused(spendDelegation(handOnDelegation(worker, { to: "reader", tools: ["files.write"] }), { audience })),
    ).toBe("widened");
    expect(
      await refused(spendDelegation(handOnDelegation(worker, { to: "reader", ttlMs: 86_400_000 }), { audience })),
    ).toBe("widened");
    expect(await refused(spendDelegation(handOnDelegation(worker, { to: "boss" }), { audience }))).toBe("not-declared");
    expect(await refused(spendDelegation(worker, { audience: gatewayOf(home) }))).toBe("wrong-audience");
    expect(await refused(reader)).toBe("unspent");
    const short = spendDelegation(worker, { audience, ttlMs: 1 });
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(await refused(short)).toBe("expired");
    expect(at(branch).ran.length + at(home).ran.length).toBe(before);

    const once = spendDelegation(reader, { audience });
    expect((await post(branch, once, "files.read", args)).status).toBe(200);
    expect(await refused(once)).toBe("delegation.replayed");
    expect(await refused(once, "files.stat")).toBe("delegation.replayed");
    expect(at(branch).ran.length + at(home).ran.length).toBe(before + 1);
  });

  it("a delegation token that is bound to one call cannot be used for another", async () => {
    const reader = chain()[4] as string;
    const args = { path: "/srv/tied" };
    const tied = (): string =>
      spendDelegation(reader, { audience: gatewayOf(branch), tool: "files.read", args: contentId(canonicalize(args)) });
    expect((await post(branch, tied(), "files.read", { path: "/srv/other" })).error?.rule).toBe("delegation.binding");
    expect((await post(branch, tied(), "files.stat", args)).error?.rule).toBe("delegation.binding");
    expect((await post(branch, tied(), "files.read", args)).status).toBe(200);
  });

  it("a chain of five delegations across two gateways narrows further by the holder's own choice, arguments included", async () => {
    const worker = chain()[3] as string;
    const narrowed = handOnDelegation(worker, {
      to: "reader",
      tools: ["files.read"],
      arguments: { "files.read": { properties: { path: { const: "/srv/only" } } } },
    });
    expect((await call(branch, narrowed, "files.read", { path: "/srv/only" })).status).toBe(200);
    expect((await call(branch, narrowed, "files.read", { path: "/srv/else" })).error?.rule).toBe("workflow.scope");
    expect((await call(branch, narrowed, "files.stat", { path: "/srv/only" })).status).toBe(404);
  });

  it("only one of two concurrent calls with one delegation token runs", async () => {
    const once = spendDelegation(chain()[4] as string, { audience: gatewayOf(branch) });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => post(branch, once, "files.read", { path: "/srv/r" })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  });

  it("a caller without a delegation is refused, and a caller with one sees only its tools", async () => {
    expect((await post(home, undefined, "files.read", { path: "/srv/a" })).status).toBe(401);
    const url = at(branch).runtime.listeners[0]?.url as string;
    const held = chain()[4] as string;
    const headers = () => ({ "portcullis-delegation": spendDelegation(held, { audience: gatewayOf(branch) }) });
    for (const revision of ["2026-07-28", "2025-11-25"] as const) {
      const client = await connect(url, { headers, revision });
      expect((await client.listTools()).map(({ name }) => name)).toEqual(["files.read", "files.stat"]);
      expect((await client.callTool("files.read", { path: "/srv/mcp" })).isError).not.toBe(true);
      await client.close();
    }
  });

  it("a delegation is carried in `_meta` where there are no headers, and never reaches the tool", async () => {
    const token = spendDelegation(chain()[4] as string, { audience: gatewayOf(branch) });
    const body = {
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: {
        name: "files.read",
        arguments: { path: "/srv/meta" },
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": {},
          "portcullis/delegation": token,
        },
      },
    };
    const response = await fetch(at(branch).runtime.listeners[0]?.url as string, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "files.read",
      },
      body: JSON.stringify(body),
    });
    expect(await response.text()).toContain("done");
    expect(at(branch).ran.at(-1)).toEqual({ tool: "files.read", args: { path: "/srv/meta" } });
  });
});

describe("a workflow that breaks its own rules", () => {
  it("a workflow that violates its own rules is not served, except with --observe", async () => {
    const bad = join(root, "bad.yaml");
    writeFileSync(
      bad,
      WORKFLOW.replace("reader: { servers: [files] }", "reader: { servers: [files], allow: [files.stat] }"),
    );
    const stateDir = join(root, "bad");
    await expect(workflowInForce({ file: bad, stateDir })).rejects.toThrow("`reader` can come to hold `files.read`");
    await expect(workflowInForce({ file: bad, stateDir, despiteViolations: true })).resolves.toBeDefined();
    expect(ensureDelegationKeys(stateDir).gateway).toMatch(/^gw-[0-9a-f]{32}$/);
  });
});
