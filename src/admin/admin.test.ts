import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { type Ledger, type LedgerRecord, openLedger, read } from "../ledger/index.js";
import type { JsonObject } from "../mcp/index.js";
import {
  type CallTarget,
  createGate,
  type Gate,
  MemoryApprovals,
  makeIntent,
  NOTHING_FORWARDED,
} from "../policy/index.js";
import { createTelemetry, type Telemetry } from "../telemetry/index.js";
import { type AdminListener, type AdminOptions, startAdmin } from "./index.js";

const POLICY = `
permit (principal, action == Action::"notes.add", resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"notes.add", resource) unless { context.approved };
`;
const TOOLS = [{ name: "notes.add", server: "local", inputSchema: { type: "object" } }];
const TARGET: CallTarget = {
  type: "Tool",
  name: "notes.add",
  action: "notes.add",
  binding: "local",
  server: "local",
  definitionHash: "d",
  tags: [],
  readOnly: false,
  builtin: false,
  noGuardrailRequired: true,
};

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

interface Scene {
  admin: AdminListener;
  gate: Gate;
  ledger: Ledger;
  telemetry: Telemetry;
  token: string;
  lines: string[];
  dir: string;
}

type Choose = Partial<AdminOptions> | ((ledger: Ledger) => Partial<AdminOptions>);

async function started(choose: Choose = {}, approvals = new MemoryApprovals()): Promise<Scene> {
  const dir = mkdtempSync(join(tmpdir(), "admin-"));
  open.push(() => rmSync(dir, { recursive: true, force: true }));
  const gate = createGate({ policy: POLICY, tools: TOOLS, approvals });
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin: "example.com/test" });
  open.push(() => ledger.close());
  const lines: string[] = [];
  const telemetry = createTelemetry({ env: {}, log: { stream: { write: (text: string) => lines.push(text) } } });
  open.push(() => telemetry.shutdown());
  const tokenFile = join(dir, "operator.token");
  const options = typeof choose === "function" ? choose(ledger) : choose;
  const admin = await startAdmin({ telemetry, gate, ledger, tokenFile, ...options });
  open.push(() => admin.close(0));
  return { admin, gate, ledger, telemetry, token: readFileSync(tokenFile, "utf8").trim(), lines, dir };
}

interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  json: Answer;
}

/** Whatever the port says is looked at field by field; a field that is missing fails the expectation. */
interface Answer {
  error: { rule: string; field: string; code: string; reason: string; trace_id: string };
  approvals: [Record<string, unknown>];
  arguments: string;
  forwarded: string;
  [field: string]: unknown;
}

interface Ask {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
}

function ask(
  scene: { admin: AdminListener },
  path: string,
  { method = "GET", headers = {}, body }: Ask = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(`${scene.admin.url}${path}`, { method, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => {
        const isJson = response.headers["content-type"] === "application/json";
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text,
          json: isJson ? JSON.parse(text) : {},
        });
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

function bearer(token: string): Record<string, string> {
  return { authorization: `Bearer ${token}` };
}

function post(scene: Scene, path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Reply> {
  return ask(scene, path, {
    method: "POST",
    headers: { "content-type": "application/json", ...bearer(scene.token), ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

async function call(gate: Gate, args: Record<string, string>, forwarded: JsonObject = NOTHING_FORWARDED) {
  const principal = { app: "blog", agent: "writer", scope: [], via: "local" };
  const intent = makeIntent({
    principal,
    method: "tools/call",
    target: TARGET,
    arguments: args,
    forwarded,
  });
  return gate.decide({ principal, method: "tools/call", target: TARGET, arguments: args, transport: "memory" }, intent);
}

async function challenged(gate: Gate, args: Record<string, string> = { text: "hello" }): Promise<string> {
  const decision = await call(gate, args);
  expect(decision.effect).toBe("challenge");
  return decision.challenge?.id as string;
}

async function records(scene: Scene, kind: string): Promise<LedgerRecord[]> {
  const found: LedgerRecord[] = [];
  for await (const { record } of read(scene.ledger.dir)) if (record.kind === kind) found.push(record);
  return found;
}

describe("what anyone on the machine may see", () => {
  it("what anyone on the machine may see is that the process lives", async () => {
    const scene = await started();
    const reply = await ask(scene, "/healthz");
    expect([reply.status, reply.json]).toEqual([200, { status: "ok" }]);
    expect(reply.headers["x-content-type-options"]).toBe("nosniff");
    expect(reply.headers["cache-control"]).toBe("no-store");
  });

  it("what anyone on the machine may see is its numbers, in Prometheus' format", async () => {
    const scene = await started();
    scene.telemetry.metrics.policyReloads.inc();
    const reply = await ask(scene, "/metrics");
    expect(reply.status).toBe(200);
    expect(reply.headers["content-type"]).toBe("text/plain; version=0.0.4; charset=utf-8");
    expect(reply.text).toContain("\nportcullis_policy_reloads_total 1\n");
    expect(reply.text).toContain("\nportcullis_ledger_healthy 1\n");
    expect(reply.text).toContain("\nportcullis_ledger_appends_total 0\n");
    await scene.ledger.append({ kind: "admin", actor: "test", action: "nothing" });
    expect((await ask(scene, "/metrics")).text).toContain("\nportcullis_ledger_appends_total 1\n");
  });

  it("names each component to the operator, and answers callers without a credential with the result alone [G5]", async () => {
    let storeProblem: string | undefined;
    let isHealthy = true;
    const scene = await started((ledger) => ({
      components: { store: () => ({ problem: storeProblem }), policy: () => ({ warning: "a new policy is refused" }) },
      ledger: {
        append: (entry) => ledger.append(entry),
        status: () => ({ ...ledger.status(), healthy: isHealthy }),
      },
    }));
    const operator = { headers: bearer(scene.token) };
    expect((await ask(scene, "/readyz")).json).toEqual({ ready: true });
    expect((await ask(scene, "/readyz", operator)).json).toEqual({
      ready: true,
      reasons: [],
      components: {
        store: { ready: true },
        policy: { ready: true, warning: "a new policy is refused" },
        ledger: { ready: true },
      },
    });
    isHealthy = false;
    storeProblem = "the store does not answer";
    scene.gate.swap(createGate().policy);
    const anonymous = await ask(scene, "/readyz");
    expect([anonymous.status, anonymous.json]).toEqual([503, { ready: false }]);
    const reply = await ask(scene, "/readyz", operator);
    expect(reply.status).toBe(503);
    expect(reply.json).toEqual({
      ready: false,
      reasons: ["the store does not answer", "no policy is loaded", "the ledger cannot be written"],
      components: {
        store: { ready: false, reason: "the store does not answer" },
        policy: { ready: false, reason: "no policy is loaded" },
        ledger: { ready: false, reason: "the ledger cannot be written" },
      },
    });
    expect((await ask(scene, "/livez")).status).toBe(200);
  });

  it("reports on /startupz whether everything has been started", async () => {
    let isStarted = false;
    const scene = await started(() => ({ isStarted: () => isStarted }));
    expect((await ask(scene, "/startupz")).status).toBe(503);
    isStarted = true;
    expect((await ask(scene, "/startupz")).json).toEqual({ started: true });
  });

  it("does not include series that name tools or rules, which need the metrics token or the operator's [U13]", async () => {
    const scene = await started();
    const call = scene.telemetry.startCall({
      method: "tools/call",
      tool: "payroll.export",
      app: "hr",
      agent: "bot",
      transport: "http",
      revision: "2026-07-28",
    });
    call.end({ effect: "permit", outcome: "ok" } as Parameters<typeof call.end>[0]);
    scene.telemetry.metrics.denials.inc("hr-may-not");
    const anonymous = await ask(scene, "/metrics");
    expect(anonymous.status).toBe(200);
    expect(anonymous.text).toContain("process_uptime_seconds");
    expect(anonymous.text).not.toMatch(/payroll|hr-may-not|gen_ai_tool_name|portcullis_rule/);
    const metricsToken = readFileSync(join(scene.dir, "metrics.token"), "utf8").trim();
    for (const token of [metricsToken, scene.token]) {
      expect((await ask(scene, "/metrics", { headers: bearer(token) })).text).toContain("hr-may-not");
    }
    expect((await ask(scene, "/metrics", { headers: bearer("wrong") })).status).toBe(401);
    expect((await ask(scene, "/v1/approvals", { headers: bearer(metricsToken) })).status).toBe(401);
  });

  it("names applications that are not served as they should be to the operator alone, and stays ready", async () => {
    let refused = [{ app: "blog", reason: "its rules are refused: a.cedar:1:2: unexpected token" }];
    const scene = await started(() => ({ refused: () => refused }));
    expect((await ask(scene, "/readyz")).json).toEqual({ ready: true });
    const reply = await ask(scene, "/readyz", { headers: bearer(scene.token) });
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ ready: true, applications: refused });
    refused = [];
    expect((await ask(scene, "/readyz", { headers: bearer(scene.token) })).json).not.toHaveProperty("applications");
  });

  it.each(["/metrics", "/healthz", "/livez", "/startupz", "/readyz"])("%s answers GET alone", async (path) => {
    const scene = await started();
    for (const method of ["POST", "PUT", "DELETE", "OPTIONS"]) {
      const reply = await ask(scene, path, { method });
      expect([reply.status, reply.headers.allow]).toEqual([405, "GET"]);
    }
  });
});

describe("a page in a browser", () => {
  it.each(["/metrics", "/healthz", "/readyz", "/v1/approvals", "/v1/policy"])(
    "a page in a browser that rebound its name to this address does not get %s",
    async (path) => {
      const scene = await started();
      for (const host of [
        "evil.example",
        `evil.example:${scene.admin.port}`,
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "127.0.0.1@evil.example",
      ]) {
        const reply = await ask(scene, path, { headers: { host, ...bearer(scene.token) } });
        expect([host, reply.status, reply.json.error?.rule]).toEqual([host, 403, "admin.host"]);
      }
    },
  );

  it.each([
    ["no Host", "GET /metrics HTTP/1.0\r\n\r\n", 403],
    ["an empty Host", "GET /metrics HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", 403],
    [
      "a whole URL of another host",
      "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
      404,
    ],
    ["two Hosts", "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\nConnection: close\r\n\r\n", 403],
  ])("gets nothing by sending %s", async (_what, head, status) => {
    const scene = await started();
    const text = await new Promise<string>((resolve) => {
      const socket = connect(scene.admin.port, "127.0.0.1", () => socket.write(head));
      let received = "";
      socket.on("data", (chunk) => {
        received += chunk;
      });
      socket.on("close", () => resolve(received));
    });
    expect(text.slice(0, 12)).toBe(`HTTP/1.1 ${status}`);
    expect(text).not.toContain("portcullis_");
  });

  it("a page in a browser of another origin is refused even with the credential, and one of ours is not", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    const host = `127.0.0.1:${scene.admin.port}`;
    const others: Record<string, string>[] = [
      { origin: "https://evil.example" },
      { origin: "null" },
      { origin: "http://127.0.0.1:1" },
      { origin: `http://localhost:${scene.admin.port}` },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ];
    for (const headers of others) {
      const reply = await post(scene, `/v1/approvals/${id}/approve`, {}, { host, ...headers });
      expect([reply.status, reply.json.error.rule]).toEqual([403, "admin.origin"]);
    }
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
    const own = { host, origin: `http://${host}`, "sec-fetch-site": "same-origin" };
    expect((await post(scene, `/v1/approvals/${id}/approve`, {}, own)).status).toBe(200);
  });

  it("a page in a browser cannot post what needs no permission to post: forms and plain text", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    for (const type of [
      "application/x-www-form-urlencoded",
      "text/plain",
      "multipart/form-data; boundary=x",
      "text/plain; application/json",
      "",
    ]) {
      const reply = await post(scene, `/v1/approvals/${id}/approve`, "{}", { "content-type": type });
      expect([reply.status, reply.json.error.field]).toEqual([400, "Content-Type"]);
    }
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
  });

  it("gets no answer that would let it read across origins", async () => {
    const scene = await started();
    const reply = await ask(scene, "/metrics");
    expect(reply.headers["access-control-allow-origin"]).toBeUndefined();
    expect(reply.headers["cross-origin-resource-policy"]).toBe("same-origin");
  });

  it("names of the operator's own are welcome once they are listed", async () => {
    const scene = await started({ allowedHosts: ["admin.example.com"] });
    expect((await ask(scene, "/healthz", { headers: { host: "admin.example.com" } })).status).toBe(200);
    expect((await ask(scene, "/healthz", { headers: { host: "Admin.Example.com:8443" } })).status).toBe(200);
    expect((await ask(scene, "/healthz", { headers: { host: "other.example.com" } })).status).toBe(403);
  });
});

describe("the operator's credential", () => {
  const closed = ["/v1/approvals", "/v1/approvals/ch_x", "/v1/policy"];

  it.each(closed)("the operator's credential is needed for %s", async (path) => {
    const scene = await started();
    const wrong = `${scene.token.slice(0, -1)}${scene.token.endsWith("A") ? "B" : "A"}`;
    for (const authorization of [
      "",
      "Bearer",
      "Bearer ",
      `Bearer ${wrong}`,
      `Basic ${scene.token}`,
      scene.token,
      `Bearer ${scene.token} x`,
    ]) {
      const reply = await ask(scene, path, { headers: authorization === "" ? {} : { authorization } });
      expect(reply.status).toBe(401);
      expect(reply.headers["www-authenticate"]).toContain("Bearer");
      expect(reply.json.error).toMatchObject({ code: "UNAUTHENTICATED", retryable: false });
      expect(reply.json.error.trace_id).toMatch(/^[0-9a-f]{32}$/);
    }
    expect((await ask(scene, path, { headers: bearer(scene.token) })).status).not.toBe(401);
  });

  it("the operator's credential is needed to approve and to deny", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    for (const action of ["approve", "deny"]) {
      const reply = await post(scene, `/v1/approvals/${id}/${action}`, {}, bearer("x".repeat(48)));
      expect(reply.status).toBe(401);
    }
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
    expect(await records(scene, "approval")).toEqual([]);
  });

  it("the operator's credential that is guessed too often is answered with 429, while the right one still works", async () => {
    const scene = await started({ limits: { maxFailuresPerMinute: 5 } });
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++)
      statuses.push((await ask(scene, "/v1/policy", { headers: bearer(`wrong-${i}`) })).status);
    expect(statuses).toEqual([401, 401, 401, 401, 401, 429, 429, 429]);
    const limited = await ask(scene, "/v1/policy", { headers: bearer("wrong") });
    expect(limited.headers["retry-after"]).toBe("12");
    expect((await ask(scene, "/v1/policy", { headers: bearer(scene.token) })).status).toBe(200);
    const families = scene.telemetry.metrics.families();
    expect(families.find((family) => family.name === "portcullis.unauthenticated")?.points[0]?.value).toBe(9);
  });

  it("the operator's credential is in no log line and no answer", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    const replies = [
      await ask(scene, "/v1/approvals", { headers: bearer(`${scene.token}x`) }),
      await post(scene, `/v1/approvals/${id}/approve`),
      await post(scene, `/v1/approvals/${id}/approve`),
      await ask(scene, "/metrics"),
    ];
    expect(JSON.stringify([replies, scene.lines])).not.toContain(scene.token);
  });
});

describe("connections to the admin port", () => {
  it("connections to the admin port that are idle, unfinished or without a credential do not keep the operator out", async () => {
    const scene = await started({ limits: { maxConnections: 20 } });
    const { port } = scene.admin;
    const sockets = await Promise.all(
      Array.from({ length: 40 }, (_, i) => {
        const socket = connect(port, "127.0.0.1");
        open.push(() => socket.destroy());
        socket.on("error", () => {});
        // Some never say anything, some stop within the head, some within the body.
        if (i % 3 === 1) socket.write("GET /v1/approvals HTTP/1.1\r\nHost: loc");
        if (i % 3 === 2) {
          const head = "POST /v1/approvals/x/approve HTTP/1.1\r\nHost: localhost\r\n";
          socket.write(
            `${head}Authorization: Bearer wrong\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{`,
          );
        }
        return new Promise((resolve) => socket.once("connect", () => resolve(socket)));
      }),
    );
    expect(sockets).toHaveLength(40);
    for (let i = 0; i < 5; i++) {
      expect((await ask(scene, "/v1/approvals", { headers: bearer(scene.token) })).status).toBe(200);
    }
  });
});

describe("challenges", () => {
  it("challenges are listed without their full arguments and shown with them", async () => {
    const scene = await started();
    const id = await challenged(scene.gate, { text: "x".repeat(5_000) });
    const { json } = await ask(scene, "/v1/approvals?state=pending", { headers: bearer(scene.token) });
    expect(json.approvals).toHaveLength(1);
    expect(json.approvals[0]).toMatchObject({
      id,
      state: "pending",
      tool: "notes.add",
      app: "blog",
      agent: "writer",
      approvers: ["operators"],
    });
    expect(json.approvals[0].rules).toMatchObject([{ id: "ask" }]);
    expect(json.approvals[0].arguments).toBeUndefined();
    expect(json.approvals[0].arguments_preview).toHaveLength(201);
    const one = await ask(scene, `/v1/approvals/${id}`, { headers: bearer(scene.token) });
    expect(one.json.arguments).toBe(`{"text":"${"x".repeat(5_000)}"}`);
    expect((await ask(scene, "/v1/approvals?state=denied", { headers: bearer(scene.token) })).json.approvals).toEqual(
      [],
    );
  });

  it("challenges show what hides: controls and bidirectional characters are escapes", async () => {
    const scene = await started();
    const id = await challenged(scene.gate, { path: "safe\u202etxt.exe", "k\u200bey": "a\u0000b\u{e0041}" });
    const { text, json } = await ask(scene, `/v1/approvals/${id}`, { headers: bearer(scene.token) });
    expect(json.arguments).toBe('{"k\\u200bey":"a\\u0000b\\udb40\\udc41","path":"safe\\u202etxt.exe"}');
    expect(text.trimEnd()).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    expect(JSON.parse(json.arguments)).toEqual({ path: "safe\u202etxt.exe", "k\u200bey": "a\u0000b\u{e0041}" });
  });

  it("challenges show what travels beside the arguments [U7]", async () => {
    const scene = await started();
    const decision = await call(scene.gate, {}, { recipient: "eve\u202e" });
    const { json } = await ask(scene, `/v1/approvals/${decision.challenge?.id}`, { headers: bearer(scene.token) });
    expect(json.forwarded).toBe('{"recipient":"eve\\u202e"}');
  });

  it("challenges that are approved let the same call run once, and the approval is on record before that [U7]", async () => {
    const scene = await started({ approver: { name: "alex", groups: ["operators"] } });
    const id = await challenged(scene.gate);
    const reply = await post(scene, `/v1/approvals/${id}/approve`, { reason: "looks right" });
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ id, state: "approved", decided_by: "alex" });
    expect(await records(scene, "approval")).toMatchObject([
      {
        challenge: id,
        approver: "alex",
        verdict: "approved",
        reason: "looks right",
        rules: ["ask"],
        policy: scene.gate.policy.hash,
      },
    ]);
    expect((await call(scene.gate, { text: "hello" })).effect).toBe("permit");
    expect((await call(scene.gate, { text: "hello" })).effect).toBe("challenge");
  });

  it("challenges that are denied tell the caller why", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    expect((await post(scene, `/v1/approvals/${id}/deny`, { reason: "not on a Friday" })).json.state).toBe("denied");
    const decision = await call(scene.gate, { text: "hello" });
    expect([decision.effect, decision.reason]).toEqual(["deny", "not on a Friday"]);
    expect(await records(scene, "approval")).toMatchObject([{ verdict: "denied", reason: "not on a Friday" }]);
  });

  it("challenges that cannot be recorded are not answered", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    await scene.ledger.close();
    for (const action of ["approve", "deny"]) {
      const reply = await post(scene, `/v1/approvals/${id}/${action}`, { reason: "x" });
      expect([reply.status, reply.json.error.code]).toEqual([503, "AUDIT_FAILURE"]);
    }
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
    expect((await call(scene.gate, { text: "hello" })).effect).toBe("challenge");
  });

  it("challenges are not answered where no ledger is configured", async () => {
    const scene = await started({ ledger: undefined });
    const id = await challenged(scene.gate);
    const reply = await post(scene, `/v1/approvals/${id}/approve`);
    expect(reply.status).toBe(503);
    expect(reply.json.error.reason).toContain("no ledger is configured");
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
  });

  it("for another group are not for this credential, and nothing is recorded", async () => {
    const scene = await started({ approver: { groups: ["finance"] } });
    const id = await challenged(scene.gate);
    const reply = await post(scene, `/v1/approvals/${id}/approve`);
    expect([reply.status, reply.json.error.rule]).toEqual([403, "admin.approvers"]);
    expect(await records(scene, "approval")).toEqual([]);
  });

  it("challenges are answered once: a second answer, and one of two at the same moment, is a conflict", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    const both = await Promise.all([
      post(scene, `/v1/approvals/${id}/approve`),
      post(scene, `/v1/approvals/${id}/deny`),
    ]);
    expect(both.map((reply) => reply.status).sort()).toEqual([200, 409]);
    expect((await post(scene, `/v1/approvals/${id}/deny`)).status).toBe(409);
    expect(await records(scene, "approval")).toHaveLength(1);
  });

  it("challenges that expire while the answer is being recorded stay unanswered, and the record says so", async () => {
    let now = Date.now();
    const approvals = new MemoryApprovals({ ttlMs: 1_000, now: () => now });
    const late = (ledger: Ledger): Partial<AdminOptions> => ({
      ledger: {
        status: () => ledger.status(),
        append: async (entry) => {
          const receipt = await ledger.append(entry);
          now += 2_000;
          return receipt;
        },
      },
    });
    const scene = await started(late, approvals);
    const id = await challenged(scene.gate);
    const reply = await post(scene, `/v1/approvals/${id}/approve`);
    expect(reply.status).toBe(409);
    expect(await records(scene, "admin")).toMatchObject([
      { action: "approval.void", detail: { challenge: id, verdict: "approved" } },
    ]);
  });

  it("challenges that do not exist are not found", async () => {
    const scene = await started();
    expect((await post(scene, "/v1/approvals/ch_nothing/approve")).status).toBe(404);
    expect((await ask(scene, "/v1/approvals/ch_nothing", { headers: bearer(scene.token) })).status).toBe(404);
    expect((await ask(scene, "/v1/approvals/..%2f..%2fpolicy", { headers: bearer(scene.token) })).status).toBe(404);
    expect((await ask(scene, "/v1/approvals/a/b", { headers: bearer(scene.token) })).status).toBe(404);
  });

  it.each([
    ["a body that is not JSON", "{", 400],
    ["a list", "[]", 400],
    ["a key twice", '{"reason":"a","reason":"b"}', 400],
    ["an unknown field", '{"reason":"a","force":true}', 400],
    ["a reason that is not text", '{"reason":7}', 400],
    ["a reason without end", JSON.stringify({ reason: "x".repeat(2_001) }), 400],
    ["bytes that are no text", Buffer.from('{"reason":"\xff"}', "latin1"), 400],
    ["a body over the cap", JSON.stringify({ reason: "x".repeat(1_000_000) }), 413],
  ])("challenges are not answered by %s", async (_what, body, status) => {
    const scene = await started();
    const id = await challenged(scene.gate);
    const headers = { "content-type": "application/json", ...bearer(scene.token) };
    const reply = await ask(scene, `/v1/approvals/${id}/approve`, { method: "POST", headers, body });
    expect(reply.status).toBe(status);
    expect((await scene.gate.approvals.get(id))?.state).toBe("pending");
  });

  it("challenges are not answered by a body without end that announces no length", async () => {
    const scene = await started();
    const id = await challenged(scene.gate);
    const answered = (): Promise<number> =>
      new Promise((resolve) => {
        const request = httpRequest(`${scene.admin.url}/v1/approvals/${id}/approve`, {
          method: "POST",
          agent: false,
          headers: { "content-type": "application/json", "transfer-encoding": "chunked", ...bearer(scene.token) },
        });
        request.on("response", (response) => {
          resolve(response.statusCode ?? 0);
          request.destroy();
        });
        // The server closes the connection: a client that still writes may not get to read the answer.
        request.on("error", () => resolve(0));
        const more = (): void => {
          if (!request.destroyed) request.write("x".repeat(8_192), () => setImmediate(more));
        };
        more();
      });
    await expect.poll(answered).toBe(413);
  });
});

describe("the policy", () => {
  it("the policy in force is named with its files", async () => {
    const scene = await started();
    const { json } = await ask(scene, "/v1/policy", { headers: bearer(scene.token) });
    expect(json).toMatchObject({ hash: scene.gate.policy.hash, files: ["policy.cedar"], rules: 2 });
  });
});

describe("the port", () => {
  it("listens on loopback unless told otherwise, and a taken port is said plainly", async () => {
    const scene = await started();
    expect(scene.admin.url).toBe(`http://127.0.0.1:${scene.admin.port}`);
    await expect(started({ port: scene.admin.port })).rejects.toThrow(
      /cannot listen on 127\.0\.0\.1:\d+.*choose another/,
    );
  });

  it("carries the caller's trace id into the error", async () => {
    const scene = await started();
    const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    const reply = await ask(scene, "/v1/policy", { headers: { traceparent: `00-${trace}-00f067aa0ba902b7-01` } });
    expect(reply.json.error.trace_id).toBe(trace);
    expect(JSON.parse(scene.lines.at(-1) as string).trace_id).toBe(trace);
  });

  it("answers nothing it does not know, and no request for another server", async () => {
    const scene = await started();
    for (const path of ["/mcp", "/v1", "/v1/approvals/", "//metrics", "/metrics/", "/healthz%00"]) {
      expect((await ask(scene, path, { headers: bearer(scene.token) })).status).toBe(404);
    }
  });

  it("closes even while a client holds a connection open", async () => {
    const scene = await started();
    const socket = connect(scene.admin.port, "127.0.0.1");
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
    const gone = new Promise((resolve) => socket.once("close", resolve));
    await scene.admin.close(20);
    await gone;
  });
});
