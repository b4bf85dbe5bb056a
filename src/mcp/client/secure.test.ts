import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { type Ledger, type LedgerRecord, openLedger, read, verify } from "../../ledger/index.js";
import { createGate, type Gate, type GateOptions } from "../../policy/index.js";
import { createServer, permitAll } from "../../server.js";
import type { JsonObject } from "../index.js";
import type { CallContext } from "../server/index.js";
import type { Client } from "./client.js";
import { type ConnectTarget, connect } from "./connect.js";
import { AuditFailure, ChallengeRequired, McpError, PolicyViolation, ProtocolError, ToolFailure } from "./errors.js";
import {
  closeAll,
  type Exchange,
  handshake,
  modern,
  overHttp,
  overMemory,
  overTcp,
  type Scripted,
  scripted,
} from "./fixtures/scripted.js";
import type { ConnectOptions } from "./options.js";

const POLICY = `
@id("anyone-reads") permit (principal, action == Action::"read", resource);
@id("pay-small") permit (principal, action == Action::"pay", resource) when { context.arguments.amount < 1000 };
@id("no-refunds") forbid (principal, action == Action::"refund", resource);
@id("ask-big") @outcome("challenge") @approvers("operators") @reason("big payments need a person")
forbid (principal, action == Action::"pay", resource) when { context.arguments.amount >= 100 } unless { context.approved };
`;
const object = (properties: JsonObject): JsonObject => ({ type: "object", properties });
const SUMMARIES = [
  { name: "read", server: "bank", inputSchema: object({}) },
  { name: "pay", server: "bank", inputSchema: { ...object({ amount: { type: "integer" } }), required: ["amount"] } },
  { name: "refund", server: "bank", inputSchema: object({}) },
];
const me = { app: "shop", agent: "alice" };
const operator = { name: "olga", groups: ["operators"] };

const open: { close(): Promise<void> }[] = [];
const folders: string[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
  await closeAll();
  await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true, force: true })));
});

function gateFor(options: GateOptions = {}): Gate {
  return createGate({ policy: POLICY, tools: SUMMARIES, ...options });
}

async function newLedger(): Promise<Ledger> {
  const folder = await mkdtemp(join(tmpdir(), "portcullis-client-"));
  folders.push(folder);
  const ledger = await openLedger({ dir: join(folder, "ledger"), origin: "example.com/test" });
  open.push(ledger);
  return ledger;
}

async function records(ledger: Ledger): Promise<LedgerRecord[]> {
  const found: LedgerRecord[] = [];
  for await (const { record } of read(ledger.dir))
    if (record.kind !== "start" && record.kind !== "key") found.push(record);
  return found;
}

const answerAll = (exchange: Exchange): void =>
  exchange.message.method === "tools/call"
    ? exchange.result({ content: [{ type: "text", text: "done" }], isError: false })
    : exchange.result({ tools: [] });

async function connected(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const client = await connect(target, { server: "bank", tools: { "*": { noGuardrailRequired: true } }, ...options });
  open.push(client);
  return client;
}

/** The transports on which a call must behave alike, each with a server that counts what reaches it. */
const transports: [string, (server: Scripted) => Promise<ConnectTarget>][] = [
  ["memory", overMemory],
  ["http", overHttp],
  ["tcp", overTcp],
];

describe.each(transports)("a secure call over %s", (_, serve) => {
  it("client_permit_executes [U3 U11]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = await newLedger();
    const client = await connected(await serve(server), { gate: gateFor(), ledger });
    const result = await client.callToolSecure("pay", { to: "bob", amount: 5 }, me);
    expect(result).toEqual({ content: [{ type: "text", text: "done" }], isError: false });
    expect(server.count("tools/call")).toBe(1);
    const [decision, outcome] = await records(ledger);
    expect(decision).toMatchObject({ kind: "decision", effect: "permit", tool: "pay", rules: ["pay-small"] });
    expect(outcome).toMatchObject({ kind: "outcome", outcome: "ok", actor: "shop/alice", tool: "pay" });
    expect(outcome).toMatchObject({ args_cid: (decision as { args_cid: string }).args_cid });
    expect(JSON.stringify([decision, outcome])).not.toContain("bob");
  });

  it("client_deny_blocks [U11]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = await newLedger();
    const client = await connected(await serve(server), { gate: gateFor(), ledger });
    const error = await client.callToolSecure("refund", {}, me).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(PolicyViolation);
    expect(error).not.toBeInstanceOf(ChallengeRequired);
    expect(error).toMatchObject({ family: "policy", code: "POLICY_DENY", rules: [{ id: "no-refunds" }] });
    expect(server.exchanges.filter((exchange) => exchange.message.method !== "server/discover")).toEqual([]);
    expect(await records(ledger)).toEqual([]);
  });

  it("client_challenge_blocks [U11]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = await newLedger();
    const client = await connected(await serve(server), { gate: gateFor(), ledger });
    const error = await client.callToolSecure("pay", { amount: 500 }, me).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ChallengeRequired);
    expect(error).toBeInstanceOf(PolicyViolation);
    expect(error).toMatchObject({ family: "policy", code: "CHALLENGE", message: "Action requires approval" });
    expect((error as ChallengeRequired).challenge).toMatchObject({ tool: "pay", argumentsText: '{"amount":500}' });
    expect(server.count("tools/call")).toBe(0);
    expect(await records(ledger)).toEqual([]);
  });

  it("adversarial_big_args_rejected [U10 U11]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = await newLedger();
    const client = await connected(await serve(server), { gate: gateFor(), ledger });
    const error = await client.callToolSecure("read", { path: "x".repeat(5 << 20) }, me).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ProtocolError);
    expect(error).toMatchObject({ family: "protocol", code: "TOO_LARGE" });
    expect(server.count("tools/call")).toBe(0);
    expect(await records(ledger)).toEqual([]);
    const small = await connected(await serve(server), { gate: gateFor(), limits: { maxMessageBytes: 1_000 } });
    await expect(small.callToolSecure("read", { path: "é".repeat(500) }, me)).rejects.toMatchObject({
      code: "TOO_LARGE",
    });
    expect(server.count("tools/call")).toBe(0);
  });

  it("latency_accounted [U11]", async () => {
    const server = scripted(modern((exchange) => setTimeout(() => exchange.result({ content: [] }), 60)));
    const ledger = await newLedger();
    const client = await connected(await serve(server), { gate: gateFor(), ledger });
    await client.callToolSecure("read", {}, me);
    const outcome = (await records(ledger)).find((record) => record.kind === "outcome");
    expect(outcome?.latency_ms).toBeGreaterThanOrEqual(55);
    expect(outcome?.latency_ms).toBeLessThan(30_000);
    expect(outcome).toMatchObject({ actor: "shop/alice", tool: "read", outcome: "ok", bytes: 14 });
    expect(outcome?.args_cid).toMatch(/^bagaa/);
    expect(Date.parse(outcome?.ts ?? "")).toBeGreaterThan(0);
  });
});

describe("what is sent", () => {
  it("what is sent is the canonical text that was hashed, not what the caller's object became meanwhile [U3]", async () => {
    const server = scripted(modern(answerAll));
    const args = { amount: 7, "9": "nine", "10": "ten" };
    const gate = gateFor({
      guardrails: [
        {
          id: "slow",
          agent: "alice",
          tool: "pay",
          callback: async () => {
            args.amount = 999;
            return undefined;
          },
        },
      ],
    });
    const client = await connected(await overMemory(server), { gate });
    await client.callToolSecure("pay", args, me);
    expect(args.amount).toBe(999);
    expect(server.exchanges.at(-1)?.inbound.text).toContain('"arguments":{"10":"ten","9":"nine","amount":7}');
  });

  it.each([
    ["NaN", { amount: Number.NaN }],
    ["a lone surrogate", { text: "\ud800" }],
    ["undefined", { amount: undefined }],
    ["a function", { amount: () => 1 }],
    ["a date", { when: new Date() }],
  ])("what is sent cannot hold %s", async (_, args) => {
    const server = scripted(modern(answerAll));
    const client = await connected(await overMemory(server), { gate: gateFor() });
    const error = await client.callToolSecure("read", args as unknown as JsonObject, me).catch((e: unknown) => e);
    expect(error).toMatchObject({ family: "protocol", code: "INVALID_PARAMS" });
    expect(server.count("tools/call")).toBe(0);
  });

  it("carries the caller's meta beside the protocol's own", async () => {
    const server = scripted(modern(answerAll));
    const client = await connected(await overMemory(server), { gate: gateFor() });
    await client.callToolSecure("read", {}, { ...me, meta: { traceparent: "00-1-2-01" } });
    expect(server.seen.at(-1)?.params?._meta).toMatchObject({
      traceparent: "00-1-2-01",
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    });
  });
});

describe("a challenge", () => {
  it("a challenge can be waited for, and the approved call runs once [U7]", async () => {
    const server = scripted(modern(answerAll));
    const gate = gateFor();
    const ledger = await newLedger();
    const client = await connected(await overMemory(server), { gate, ledger });
    const error = await client.callToolSecure("pay", { amount: 500 }, me).catch((e: ChallengeRequired) => e);
    const challenge = error as ChallengeRequired;
    const waiting = challenge.wait();
    await gate.approvals.approve(challenge.challenge.id, operator);
    expect(await waiting).toMatchObject({ content: [{ text: "done" }] });
    expect(server.count("tools/call")).toBe(1);
    expect(server.exchanges.at(-1)?.inbound.text).toContain('"arguments":{"amount":500}');
    expect((await records(ledger)).map((record) => record.kind)).toEqual(["decision", "outcome"]);
    // The approval is spent: the same call is challenged again.
    await expect(client.callToolSecure("pay", { amount: 500 }, me)).rejects.toBeInstanceOf(ChallengeRequired);
  });

  it("a challenge that an approver denies ends with the approver's reason", async () => {
    const server = scripted(modern(answerAll));
    const gate = gateFor();
    const client = await connected(await overMemory(server), { gate });
    const challenge = (await client.callToolSecure("pay", { amount: 500 }, me).catch((e) => e)) as ChallengeRequired;
    const waiting = challenge.wait();
    await gate.approvals.deny(challenge.challenge.id, operator, "not on a Sunday");
    await expect(waiting).rejects.toMatchObject({ family: "policy", code: "POLICY_DENY", message: "not on a Sunday" });
    expect(server.count("tools/call")).toBe(0);
  });

  it("a challenge without an answer is a deny", async () => {
    const server = scripted(modern(answerAll));
    const client = await connected(await overMemory(server), { gate: gateFor() });
    const challenge = (await client.callToolSecure("pay", { amount: 500 }, me).catch((e) => e)) as ChallengeRequired;
    await expect(challenge.wait({ timeoutMs: 20 })).rejects.toMatchObject({ family: "policy", code: "POLICY_DENY" });
    await expect(challenge.wait({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "CANCELLED" });
    expect(server.count("tools/call")).toBe(0);
  });

  it("held by a gate at the other end surfaces alike and is waited for by repeating the call", async () => {
    let asked = 0;
    const pending = {
      isError: true,
      content: [{ type: "text", text: "It did not run." }],
      structuredContent: {
        code: "CHALLENGE",
        error_type: "ChallengePending",
        reason: "needs approval",
        trace_id: "t1",
        retryable: true,
        suggestions: [],
        documentation_url: "",
        challenge: "ch_1",
      },
      _meta: { "portcullis/origin": "gateway" },
    };
    const server = scripted(
      modern((exchange) => exchange.result(++asked < 3 ? pending : { content: [{ type: "text", text: "ran" }] })),
    );
    const client = await connected(await overMemory(server), { gate: gateFor() });
    const challenge = (await client.callToolSecure("read", { a: 1 }, me).catch((e) => e)) as ChallengeRequired;
    expect(challenge).toBeInstanceOf(ChallengeRequired);
    expect(challenge).toMatchObject({ message: "Action requires approval", challenge: { id: "ch_1", remote: true } });
    expect(challenge.traceId).toBe("t1");
    expect(await challenge.wait()).toMatchObject({ content: [{ text: "ran" }] });
    expect(server.count("tools/call")).toBe(3);
  });
});

describe("the four families", () => {
  async function failing(answer: (exchange: Exchange) => void, options: ConnectOptions = {}): Promise<McpError> {
    const client = await connected(await overMemory(scripted(modern(answer))), { gate: gateFor(), ...options });
    return (await client.callToolSecure("read", {}, me).catch((e) => e)) as McpError;
  }

  it("the four families tell a tool that failed from a conversation that broke [U6]", async () => {
    const failed = await failing((exchange) =>
      exchange.result({ isError: true, content: [{ type: "text", text: "no such file" }] }),
    );
    expect(failed).toBeInstanceOf(ToolFailure);
    expect(failed).toMatchObject({
      family: "tool",
      code: "TOOL_FAILURE",
      message: "no such file",
      result: { isError: true },
    });
    for (const content of ["no list", [null, 7], [{ type: "image", data: "" }], undefined]) {
      expect(await failing((exchange) => exchange.result({ isError: true, content }))).toBeInstanceOf(ToolFailure);
    }
    const broken = await failing((exchange) => exchange.error(-32601, "Method not found"));
    expect(broken).toBeInstanceOf(ProtocolError);
    expect(broken).toMatchObject({ family: "protocol", code: "METHOD_NOT_FOUND" });
    const silent = await failing(() => {}, { timeouts: { toolMs: 30 } });
    expect(silent).toMatchObject({ family: "tool", code: "TIMEOUT", retryable: true });
  });

  it("the four families follow the error object that a server of ours sends, in an error or in a result [U6]", async () => {
    const data = {
      code: "RATE_LIMITED",
      error_type: "RateLimited",
      reason: "slow down",
      trace_id: "t9",
      retryable: true,
    };
    const asError = await failing((exchange) => exchange.error(-31008, "Over a rate limit", data));
    expect(asError).toBeInstanceOf(PolicyViolation);
    expect(asError).toMatchObject({ code: "RATE_LIMITED", wireCode: -31008, data, traceId: "t9" });
    const asResult = await failing((exchange) =>
      exchange.result({
        isError: true,
        content: [],
        structuredContent: data,
        _meta: { "portcullis/origin": "gateway" },
      }),
    );
    expect(asResult).toBeInstanceOf(PolicyViolation);
    expect(asResult).toMatchObject({ code: "RATE_LIMITED", message: "slow down", data });
    const inMeta = await failing((exchange) =>
      exchange.result({
        isError: true,
        content: [],
        structuredContent: { own: 1 },
        _meta: { "portcullis/origin": "gateway", "portcullis/error": data },
      }),
    );
    expect(inMeta).toBeInstanceOf(PolicyViolation);
    const imitated = await failing((exchange) =>
      exchange.result({ isError: true, content: [], structuredContent: data, _meta: { "portcullis/error": data } }),
    );
    expect(imitated).toBeInstanceOf(ToolFailure);
  });

  it("a call that cannot be put on record does not happen [U3]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = { append: () => Promise.reject(new Error("disk full")) };
    const client = await connected(await overMemory(server), { gate: gateFor(), ledger });
    const error = await client.callToolSecure("read", {}, me).catch((e) => e);
    expect(error).toBeInstanceOf(AuditFailure);
    expect(error).toMatchObject({ family: "audit", code: "AUDIT_FAILURE" });
    expect(server.count("tools/call")).toBe(0);
  });

  it("a call whose outcome cannot be put on record says so and gives the result", async () => {
    const real = await newLedger();
    let lines = 0;
    const ledger: Pick<Ledger, "append"> = {
      append: (entry) => (lines++ === 0 ? real.append(entry) : Promise.reject(new Error("disk full"))),
    };
    const client = await connected(await overMemory(scripted(modern(answerAll))), { gate: gateFor(), ledger });
    const error = await client.callToolSecure("read", {}, me).catch((e) => e);
    expect(error).toBeInstanceOf(AuditFailure);
    expect(error.result).toMatchObject({ content: [{ text: "done" }] });
  });

  it("what failed is on record as what it was", async () => {
    const ledger = await newLedger();
    const outcomes = ["error", "isError", "silence"];
    let call = 0;
    const server = scripted(
      modern((exchange) => {
        const how = outcomes[call++];
        if (how === "error") exchange.error(-32603, "broken");
        if (how === "isError") exchange.result({ isError: true, content: [] });
      }),
    );
    const client = await connected(await overMemory(server), { gate: gateFor(), ledger, timeouts: { toolMs: 40 } });
    for (const _ of outcomes) await client.callToolSecure("read", {}, me).catch(() => {});
    const recorded = (await records(ledger)).flatMap((record) => (record.kind === "outcome" ? record.outcome : []));
    expect(recorded).toEqual(["failed", "tool_error", "timeout"]);
    await ledger.checkpoint();
    expect((await verify(ledger.dir)).ok).toBe(true);
  });
});

describe("the gate of a client", () => {
  it("denies everything when there is none, and cannot be walked around when there is one", async () => {
    const server = scripted(modern(answerAll));
    const target = await overMemory(server);
    const bare = await connected(target);
    await expect(bare.callToolSecure("read", {}, me)).rejects.toMatchObject({ family: "policy" });
    await expect(bare.callTool("read", {})).resolves.toBeDefined();
    const gated = await connected(target, { gate: gateFor() });
    await expect(gated.callTool("read", {})).rejects.toMatchObject({ family: "policy" });
    await expect(gated.request("tools/call", { name: "read" })).rejects.toMatchObject({ family: "policy" });
    await expect(gated.batchCalls([{ name: "read" }])).rejects.toMatchObject({ family: "policy" });
    expect(server.count("tools/call")).toBe(1);
  });

  it("the gate of a client holds a caller to the tools it may reach", async () => {
    const server = scripted(modern(answerAll));
    const client = await connected(await overMemory(server), { gate: gateFor() });
    const allowed = new Set(["pay"]);
    await expect(client.callToolSecure("read", {}, { ...me, allowed })).rejects.toMatchObject({ code: "FORBIDDEN" });
    await expect(client.callToolSecure("pay", { amount: 1 }, { ...me, allowed })).resolves.toBeDefined();
    expect(server.count("tools/call")).toBe(1);
  });

  it("asks guardrails through its callback runner, and a tool without one needs the operator's word", async () => {
    const server = scripted(modern(answerAll));
    const seen = new Set<string>();
    const gate = gateFor({
      guardrails: [
        {
          id: "no-payroll",
          agent: "alice",
          tool: "pay",
          callback: (call) => {
            seen.add(call.intentId);
            return call.arguments.to === "payroll" ? "never to payroll" : undefined;
          },
        },
      ],
    });
    const client = await connected(await overMemory(server), { gate, tools: {} });
    await expect(client.callToolSecure("read", {}, me)).rejects.toMatchObject({ code: "GUARDRAIL_BLOCKED" });
    await expect(client.callToolSecure("pay", { amount: 1, to: "payroll" }, me)).rejects.toMatchObject({
      code: "GUARDRAIL_BLOCKED",
      message: "never to payroll",
    });
    await client.callToolSecure("pay", { amount: 1, to: "bob" }, me);
    expect(seen.size).toBe(2);
    expect(server.count("tools/call")).toBe(1);
  });

  it("records denials and challenges when that was chosen", async () => {
    const ledger = await newLedger();
    const client = await connected(await overMemory(scripted(modern(answerAll))), {
      gate: gateFor(),
      ledger,
      recordDecisions: true,
    });
    await client.callToolSecure("refund", {}, me).catch(() => {});
    await client.callToolSecure("pay", { amount: 500 }, me).catch(() => {});
    const kinds = (await records(ledger)).map((record) => [record.kind, "effect" in record ? record.effect : ""]);
    expect(kinds).toEqual([
      ["decision", "deny"],
      ["challenge", ""],
      ["decision", "challenge"],
    ]);
  });

  it("records the redemption of an approval before the decision that it permits, when that was chosen", async () => {
    const ledger = await newLedger();
    const gate = gateFor();
    const server = scripted(modern(answerAll));
    const client = await connected(await overMemory(server), { gate, ledger, recordDecisions: true });
    const challenge = (await client.callToolSecure("pay", { amount: 500 }, me).catch((e) => e)) as ChallengeRequired;
    const waiting = challenge.wait();
    await gate.approvals.approve(challenge.challenge.id, operator);
    await waiting;
    const kinds = (await records(ledger)).map((record) => [record.kind, "event" in record ? record.event : ""]);
    expect(kinds).toEqual([
      ["challenge", "opened"],
      ["decision", ""],
      ["challenge", "redeemed"],
      ["decision", ""],
      ["outcome", ""],
    ]);
    expect(server.count("tools/call")).toBe(1);
  });

  it("records a read-only call before it is sent, so that a ledger that fails leaves no effect [U3]", async () => {
    const server = scripted(modern(answerAll));
    const ledger = { append: () => Promise.reject(new Error("disk full")) };
    const tools = { read: { readOnly: true, noGuardrailRequired: true } };
    const client = await connected(await overMemory(server), { gate: gateFor(), ledger, tools });
    await expect(client.callToolSecure("read", {}, me)).rejects.toBeInstanceOf(AuditFailure);
    expect(server.count("tools/call")).toBe(0);
  });

  it("the gate of a client takes out of the progress of a call what the policy wants hidden [U3]", async () => {
    const policy = `@id("r") @redact("name:email") permit (principal, action == Action::"read", resource);`;
    const speak = async (_: object, context: CallContext): Promise<string> => {
      context.progress(1, 2, "mail to bob@example.com");
      return "done";
    };
    const server = createServer("bank", { policy: permitAll });
    server.tool("read", "Reads.", z.object({}), speak, { noGuardrailRequired: true });
    open.push(server);
    const client = await connected(server, { gate: gateFor({ policy }) });
    const reports: unknown[] = [];
    await client.callToolSecure("read", {}, { ...me, onProgress: (report) => reports.push(report) });
    expect(reports).toEqual([{ progress: 1, total: 2, message: "mail to [redacted]" }]);
  });

  it("the gate of a client takes out of the answer what the policy wants hidden, wherever it stands", async () => {
    const policy = `@id("r") @redact("field:ssn name:email") permit (principal, action == Action::"read", resource);`;
    const server = scripted(
      modern((exchange) =>
        exchange.message.params?.arguments && "fail" in (exchange.message.params.arguments as object)
          ? exchange.error(-32603, "no mail to bob@example.com")
          : exchange.result({
              content: [{ type: "text", text: '{"ssn":"123","mail":"bob@example.com"}' }],
              structuredContent: { ssn: "123", deep: [{ mail: "bob@example.com" }] },
              _meta: { note: "for bob@example.com" },
            }),
      ),
    );
    const client = await connected(await overMemory(server), { gate: gateFor({ policy }) });
    const shown = JSON.stringify(await client.callToolSecure("read", {}, me));
    expect(shown).not.toMatch(/123|bob@/);
    expect(shown).toContain("[redacted]");
    const error = await client.callToolSecure("read", { fail: true }, me).catch((e: McpError) => e);
    expect(error).toMatchObject({ family: "protocol", message: "no mail to [redacted]" });
  });

  it("cuts an answer to the size the policy allows, without breaking a character", async () => {
    const policy = `@id("r") @cap("100") permit (principal, action == Action::"read", resource);`;
    const server = scripted(
      modern((exchange) =>
        exchange.result({ content: [{ type: "text", text: "é".repeat(500) }], structuredContent: { a: 1 } }),
      ),
    );
    const client = await connected(await overMemory(server), { gate: gateFor({ policy }) });
    const result = await client.callToolSecure("read", {}, me);
    expect(result.structuredContent).toBeUndefined();
    expect(result.content).toEqual([
      { type: "text", text: "é".repeat(50) },
      { type: "text", text: "[cut to 100 bytes by policy]" },
    ]);
  });

  it("decides every call of a batch by itself", async () => {
    for (const [revision, script] of [
      ["2026-07-28", modern(answerAll)],
      ["2025-03-26", handshake("2025-03-26", answerAll)],
    ] as const) {
      const server = scripted(script);
      const client = await connected(await overMemory(server), { gate: gateFor() });
      expect(client.revision).toBe(revision);
      const settled = await client.batchCalls(
        [{ name: "read" }, { name: "refund" }, { name: "pay", arguments: { amount: 500 } }, { name: "read" }],
        me,
      );
      expect(settled.map((one) => (one.status === "fulfilled" ? "ran" : one.reason.code))).toEqual([
        "ran",
        "POLICY_DENY",
        "CHALLENGE",
        "ran",
      ]);
      expect(server.count("tools/call")).toBe(2);
    }
  });

  it("decides again when answers to the server's questions go along", async () => {
    const decided: string[] = [];
    const server = scripted(
      modern((exchange) =>
        exchange.message.params?.inputResponses
          ? exchange.result({ content: [] })
          : exchange.result({
              resultType: "input_required",
              requestState: "s1",
              inputRequests: { q: { method: "elicitation/create", params: { message: "?", requestedSchema: {} } } },
            }),
      ),
    );
    const gate = gateFor({
      guardrails: [
        {
          id: "count",
          agent: "alice",
          tool: "read",
          callback: (call) => {
            decided.push(call.intentId);
            return undefined;
          },
        },
      ],
    });
    const handlers = { elicitation: () => ({ action: "accept" as const, content: {} }) };
    const client = await connected(await overMemory(server), { gate, handlers });
    await client.callToolSecure("read", {}, me);
    expect(new Set(decided).size).toBe(2);
    expect(server.seen.at(-1)?.params).toMatchObject({
      requestState: "s1",
      inputResponses: { q: { action: "accept" } },
    });
  });
});
