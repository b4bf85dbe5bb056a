// Keys with `admin.read` and `admin.write`: registrations of an application through the admin API of the built command,
// in one process, with workers and with two replicas, and what such a key must not achieve.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as listenHttp, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { startReplicas } from "./replicas.js";
import { portcullis, type Serving, serve } from "./serving.js";

const POLICY = 'permit (principal, action, resource) when { principal in App::"blog" };\n';

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: answers of the API are looked into field by field.
  readonly body: any;
}

async function ask(admin: string, token: string, path: string, method = "GET", body?: object): Promise<Answer> {
  const response = await fetch(new URL(path, admin), {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      // Another connection each time, so that with workers any of them may answer.
      connection: "close",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}

async function call(url: string, token: string, tool: string): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", connection: "close" };
  const response = await fetch(new URL(`/tools/${tool}`, url), { method: "POST", headers, body: "{}" });
  return { status: response.status, body: await response.json() };
}

async function until<T>(read: () => Promise<T>, isDone: (value: T) => boolean, what: string): Promise<T> {
  for (let i = 0; i < 200; i++) {
    const value = await read();
    if (isDone(value)) return value;
    await sleep(50);
  }
  throw new Error(`${what}: not within 10 s`);
}

interface Keys {
  reader: string;
  writer: string;
  caller: string;
  other: string;
  approver: string;
}

async function prepare(storage: Storage, downstream: Counting): Promise<Keys> {
  const servers = { notes: { url: downstream.url, noGuardrail: ["*"] } };
  await storage.applications.put("blog", { servers, config: { hidden: "config-value" } }, "test");
  await storage.applications.put("shop", { servers: { stock: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const key = async (app: string, name: string, ...permissions: string[]): Promise<string> =>
    (await createKey(storage.keys, { app, name, permissions }, "test")).token;
  return {
    reader: await key("blog", "reader", "admin.read"),
    writer: await key("blog", "writer", "admin.write"),
    caller: await key("blog", "caller", "invoke(*)", "list"),
    other: await key("shop", "other", "admin.write"),
    approver: await key("blog", "approver", "approve(operators)"),
  };
}

function ledgerOf(dir: string): { actor: string; action: string; detail: Record<string, unknown> }[] {
  const out = portcullis(["--dir", dir, "--json", "audit", "tail", "--lines", "1000", "--all"]).stdout.trim();
  const all = out.startsWith("[") ? JSON.parse(out) : out.split("\n").map((line) => JSON.parse(line));
  return (all as { kind: string }[]).filter(({ kind }) => kind === "admin") as never;
}

/** The operator reviews what the server offers and says that its tools need no guardrail. */
function takeOver(dir: string, server: string): void {
  const waiting = JSON.parse(portcullis(["--dir", dir, "--json", "pin", "ls", "blog", server]).stdout) as {
    hash: string;
  }[];
  expect(waiting.length).toBeGreaterThan(0);
  for (const { hash } of waiting)
    expect(portcullis(["--dir", dir, "pin", "accept", "blog", server, hash]).code).toBe(0);
  expect(portcullis(["--dir", dir, "app", "set", "blog", `/servers/${server}/noGuardrail`, '["*"]']).code).toBe(0);
}

describe("a key with admin.read or admin.write", () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-registrations-"));
  let serving: Serving;
  let storage: Storage;
  let downstream: Counting;
  let keys: Keys;
  /** Counts connections: a private address that no key may make the gateway reach. */
  let inner: Server;
  let innerUrl: string;
  let reached = 0;
  const put = (name: string, body: object, token = keys.writer): Promise<Answer> =>
    ask(serving.admin, token, `/v1/registrations/servers/${name}`, "PUT", body);
  const read = (token = keys.reader): Promise<Answer> => ask(serving.admin, token, "/v1/registrations");
  const documentOf = async () => (await storage.applications.get("blog"))?.document;

  beforeAll(async () => {
    downstream = await counting("registered");
    inner = listenHttp((_request, response) => {
      reached++;
      response.end("{}");
    });
    await new Promise<void>((resolve) => inner.listen(0, "127.0.0.1", resolve));
    innerUrl = `http://127.0.0.1:${(inner.address() as AddressInfo).port}/mcp`;
    mkdirSync(join(dir, "policy"), { mode: 0o700 });
    writeFileSync(join(dir, "policy", "test.cedar"), POLICY);
    storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
    keys = await prepare(storage, downstream);
    serving = await serve(["--log-level", "error"], { dir });
  }, 60_000);
  afterAll(async () => {
    await serving.stop();
    await storage.close();
    await downstream.close();
    inner.close();
    rmSync(dir, { recursive: true, force: true });
  });

  it("a key for registrations reads all registrations of its application, without secrets, and none of another application [G6]", async () => {
    const secret = "s3cret-value-in-clear";
    expect(portcullis(["--dir", dir, "secret", "set", "blog", "TOKEN"], { input: secret }).code).toBe(0);
    const args = ["run", "--api-key", secret];
    await storage.applications.put(
      "blog",
      {
        ...(await documentOf()),
        servers: {
          ...(await documentOf())?.servers,
          idle: { command: "npx", args, disabled: true },
          far: { url: "https://mcp.example/x", auth: { type: "bearer", token: "${secret:TOKEN}" }, disabled: true },
        },
      },
      "test",
    );
    const { status, body } = await until(
      () => read(),
      (each) => each.body.tools?.length === 2 && "far" in each.body.servers,
      "the tools of the application",
    );
    expect(status).toBe(200);
    expect(body).toMatchObject({ app: "blog", servers: { notes: { url: downstream.url } }, tools_total: 2 });
    expect(body.tools.map(({ name, server }: { name: string; server: string }) => [name, server])).toEqual([
      ["read", "notes"],
      ["write", "notes"],
    ]);
    expect(body.tools[0]).toMatchObject({ description: "reads for registered", inputSchema: { type: "object" } });
    const text = JSON.stringify(body);
    expect([text.includes(secret), text.includes("config-value"), text.includes("shop")]).toEqual([
      false,
      false,
      false,
    ]);
    expect((await ask(serving.admin, keys.reader, "/v1/registrations?app=shop")).status).toBe(404);
    expect((await ask(serving.admin, keys.reader, "/v1/registrations?app=absent")).status).toBe(404);
    expect((await read(keys.writer)).status).toBe(200);
  });

  it.each(["caller", "approver"] as const)(
    "a key of the kind %s without admin permissions reads and registers nothing [G6]",
    async (kind) => {
      expect((await read(keys[kind])).status).toBe(401);
      expect((await put("mine", { url: downstream.url }, keys[kind])).status).toBe(401);
      expect((await documentOf())?.servers).not.toHaveProperty("mine");
    },
  );

  it("a key for registrations opens nothing else of the admin port", async () => {
    for (const path of ["/v1/policy", "/v1/servers", "/v1/approvals"]) {
      expect((await ask(serving.admin, keys.writer, path)).status).toBe(401);
    }
    expect((await ask(serving.admin, keys.writer, "/v1/sign-in-links", "POST", {})).status).toBe(401);
    expect((await call(serving.url, keys.writer, "notes.read")).status).not.toBe(200);
    expect(downstream.calls).toEqual([]);
  });

  it("a key with admin.read alone registers nothing [G6]", async () => {
    expect(await put("mine", { url: downstream.url }, keys.reader)).toMatchObject({
      status: 403,
      body: { error: { rule: "registration.permission" } },
    });
    expect((await documentOf())?.servers).not.toHaveProperty("mine");
  });

  it.each([
    ["a program", { command: "sh", args: ["-c", "touch /tmp/x"] }, "registration.fields"],
    ["a header", { url: "https://mcp.example/", headers: { host: "inner" } }, "registration.fields"],
    [
      "a credential",
      { url: "https://mcp.example/", auth: { type: "bearer", token: "${secret:TOKEN}" } },
      "registration.fields",
    ],
    ["a tool that needs no guardrail", { url: "https://mcp.example/", noGuardrail: ["*"] }, "registration.fields"],
    ["a tool that is read-only", { url: "https://mcp.example/", readOnly: ["*"] }, "registration.fields"],
    ["definitions that are not pinned", { url: "https://mcp.example/", pin: "off" }, "registration.fields"],
    ["another prefix", { url: "https://mcp.example/", prefix: "notes" }, "registration.fields"],
    ["another registrar", { url: "https://mcp.example/", registeredBy: "operator" }, "registration.fields"],
    ["a secret in the address", { url: "https://mcp.example/?q=${secret:TOKEN}" }, "registration.references"],
    ["a variable in the address", { url: "https://mcp.example/?q=${env:HOME}" }, "registration.references"],
    ["the metadata address of a cloud", { url: "http://169.254.169.254/latest" }, "outbound"],
    ["a private address", { url: "http://10.0.0.1/mcp" }, "outbound"],
    ["an address in IPv6 form", { url: "http://[::ffff:127.0.0.1]:1/mcp" }, "outbound"],
  ])("a key for registrations cannot register %s [G6]", async (_what, body, rule) => {
    const before = await documentOf();
    const answer = await until(
      () => put("mine", body),
      ({ status }) => status !== 429,
      "the rate limit",
    );
    expect(answer).toMatchObject({ status: 403, body: { error: { rule } } });
    expect(await documentOf()).toEqual(before);
  });

  it("a key for registrations cannot make the gateway reach a loopback address that the operator did not name, however it is written [G6]", async () => {
    const { port } = new URL(innerUrl);
    for (const host of ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433"]) {
      const answer = await until(
        () => put("mine", { url: `http://${host}:${port}/mcp` }),
        ({ status }) => status !== 429,
        "the rate limit",
      );
      expect(answer).toMatchObject({ status: 403, body: { error: { rule: "outbound" } } });
    }
    // Written to the store by another way, it is not reached either.
    const document = (await documentOf()) ?? {};
    const entry = { url: innerUrl, pin: "always-ask", registeredBy: "pk_other" } as const;
    await storage.applications.put("blog", { ...document, servers: { ...document.servers, sneaky: entry } }, "test");
    await until(
      () => read(),
      ({ body }) => "sneaky" in body.servers,
      "the document",
    );
    await sleep(500);
    expect(reached).toBe(0);
    await storage.applications.put("blog", document, "test");
  });

  it("a key for registrations cannot change, remove or shadow what is the operator's [G6]", async () => {
    const before = await documentOf();
    for (const name of ["notes", "idle"]) {
      const put_ = await until(
        () => put(name, { url: downstream.url }),
        ({ status }) => status !== 429,
        "the rate limit",
      );
      expect(put_).toMatchObject({ status: 403, body: { error: { rule: "registration.owner" } } });
      const path = `/v1/registrations/servers/${name}`;
      const removed = await until(
        () => ask(serving.admin, keys.writer, path, "DELETE"),
        ({ status }) => status !== 429,
        "the rate limit",
      );
      expect(removed).toMatchObject({ status: 403, body: { error: { rule: "registration.owner" } } });
    }
    const routes = { "community.notes": { server: "notes" } };
    await storage.applications.put("blog", { ...before, routes }, "test");
    for (const name of ["community", "core"]) {
      const shadow = await until(
        () => put(name, { url: downstream.url }),
        ({ status }) => status !== 429,
        "the rate limit",
      );
      expect(shadow).toMatchObject({ status: 403, body: { error: { rule: "registration.name" } } });
    }
    await storage.applications.put("blog", before ?? {}, "test");
    expect((await put("mine", { url: downstream.url }, keys.other)).status).toBe(200);
    expect((await documentOf())?.servers).not.toHaveProperty("mine");
    expect((await storage.applications.get("shop"))?.document.servers).toHaveProperty("mine");
  });

  it("a key for registrations registers a server whose tools run only after the operator's review, and each change is on record [G6]", async () => {
    const body = { url: downstream.url, timeoutMs: 5_000 };
    const registered = await until(
      () => put("extra", body),
      ({ status }) => status !== 429,
      "the rate limit",
    );
    expect(registered).toMatchObject({
      status: 200,
      body: { app: "blog", server: "extra", entry: { pin: "always-ask" } },
    });
    const { body: seen } = await until(
      () => read(),
      (each) => each.body.pending_review.length > 0,
      "what the server offers",
    );
    expect(seen.pending_review).toContainEqual({ server: "extra", kind: "tool", name: "read" });
    // The names of the operator's only server stay as they were.
    expect(seen.tools.map(({ name }: { name: string }) => name)).toEqual(["read", "write"]);
    expect((await call(serving.url, keys.caller, "extra.read")).status).toBe(404);
    expect(downstream.calls).toEqual([]);
    takeOver(dir, "extra");
    await until(
      () => call(serving.url, keys.caller, "extra.read"),
      ({ status }) => status === 200,
      "the tool",
    );
    expect(downstream.calls.length).toBeGreaterThan(0);
    const changed = await until(
      () => put("extra", { url: "https://mcp.example/" }),
      ({ status }) => status !== 429,
      "",
    );
    expect(changed).toMatchObject({ status: 403, body: { error: { rule: "registration.owner" } } });
    const records = ledgerOf(dir).filter(({ action }) => action === "registration.put");
    expect(records.at(-1)).toMatchObject({
      actor: expect.stringMatching(/^key:pk_/),
      detail: { app: "blog", agent: "writer", server: "extra", entry: { url: downstream.url, timeoutMs: 5_000 } },
    });
    expect(JSON.stringify(records)).not.toContain(keys.writer);
  }, 120_000);

  it("a key for registrations loses what was accepted when it changes the address or removes the server", async () => {
    const body = { url: downstream.url };
    await until(
      () => put("moving", body),
      ({ status }) => status === 200,
      "the registration",
    );
    await until(
      async () => storage.pins.states("blog", "moving"),
      (states) => states.length > 0,
      "what the server offers",
    );
    const path = "/v1/registrations/servers/moving";
    await until(
      () => ask(serving.admin, keys.writer, path, "DELETE"),
      ({ status }) => status === 200,
      "the removal",
    );
    await until(
      async () => storage.pins.states("blog", "moving"),
      (states) => states.length === 0,
      "the pins",
    );
    const again = await until(
      () => ask(serving.admin, keys.writer, path, "DELETE"),
      ({ status }) => status !== 429,
      "",
    );
    expect(again.status).toBe(404);
  });

  it("registrations are bounded by the size of a body, by changes a minute and by the number of servers", async () => {
    const big = await put("big", { url: `https://mcp.example/${"x".repeat(20_000)}` });
    expect([413, 429]).toContain(big.status);
    const statuses: number[] = [];
    for (let i = 0; i < 15; i++) statuses.push((await put(`many-${i}`, { url: downstream.url })).status);
    expect(statuses).toContain(429);
    const servers = Object.fromEntries(
      Array.from({ length: 32 }, (_, i) => [
        `full-${i}`,
        { url: downstream.url, registeredBy: "pk_x", disabled: true },
      ]),
    );
    await storage.applications.put("blog", { servers }, "test");
    const one = await until(
      () => put("one-more", { url: downstream.url }),
      ({ body }) => body.error?.rule !== "registration.rate",
      "the rate limit",
    );
    expect(one).toMatchObject({ body: { error: { rule: "registration.count" } } });
    expect((await documentOf())?.servers).not.toHaveProperty("one-more");
  }, 60_000);
});

describe("registrations with several processes", () => {
  it("registrations are the same for all workers, whichever answers [G6]", async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-registrations-"));
    const downstream = await counting("workers");
    mkdirSync(join(dir, "policy"), { mode: 0o700 });
    writeFileSync(join(dir, "policy", "test.cedar"), POLICY);
    const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
    const keys = await prepare(storage, downstream);
    const serving = await serve(["--workers", "2", "--log-level", "error"], { dir });
    try {
      const put = await ask(serving.admin, keys.writer, "/v1/registrations/servers/extra", "PUT", {
        url: downstream.url,
      });
      expect(put.status).toBe(200);
      for (let i = 0; i < 6; i++) {
        await until(
          () => ask(serving.admin, keys.reader, "/v1/registrations"),
          ({ body }) => "extra" in body.servers && body.pending_review.length > 0,
          "the registration",
        );
      }
      takeOver(dir, "extra");
      // Each on a connection of its own, until both workers have the tool.
      let inARow = 0;
      for (let i = 0; i < 200 && inARow < 8; i++) {
        inARow = (await call(serving.url, keys.caller, "extra.read")).status === 200 ? inARow + 1 : 0;
        if (inARow === 0) await sleep(50);
      }
      expect(inARow).toBe(8);
      const began = performance.now();
      const register = async (_: unknown, i: number): Promise<number> =>
        (await ask(serving.admin, keys.writer, `/v1/registrations/servers/many-${i}`, "PUT", { url: downstream.url }))
          .status;
      const statuses = await Promise.all(Array.from({ length: 30 }, register));
      // Counted by both together: ten at once, and then one every two seconds.
      const most = 11 + (performance.now() - began) / 2_000;
      expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(most);
      expect(statuses).toContain(429);
    } finally {
      await serving.stop();
      await storage.close();
      await downstream.close();
      rmSync(dir, { recursive: true, force: true });
    }
  }, 120_000);

  it("registrations made at one replica hold at the other, and concurrent ones are all kept [G6]", async () => {
    const downstream = await counting("replicas");
    const replicas = await startReplicas(2, POLICY);
    const storage = await openStorage(replicas.storage);
    try {
      const keys = await prepare(storage, downstream);
      const [one, two] = replicas.all.map(({ admin }) => admin) as [string, string];
      const path = (name: string): string => `/v1/registrations/servers/${name}`;
      const body = { url: downstream.url };
      const made = await Promise.all([
        ask(one, keys.writer, path("first"), "PUT", body),
        ask(two, keys.writer, path("second"), "PUT", body),
        ask(one, keys.writer, path("third"), "PUT", body),
      ]);
      expect(made.map(({ status }) => status)).toEqual([200, 200, 200]);
      for (const admin of [one, two]) {
        await until(
          () => ask(admin, keys.reader, "/v1/registrations"),
          ({ body: { servers } }) => ["first", "second", "third"].every((name) => name in servers),
          "the registrations",
        );
      }
      expect((await ask(two, keys.writer, path("first"), "DELETE")).status).toBe(200);
      await until(
        () => ask(one, keys.reader, "/v1/registrations"),
        ({ body: { servers } }) => !("first" in servers),
        "the removal",
      );
      expect(downstream.calls).toEqual([]);
    } finally {
      await storage.close();
      await replicas.close();
      await downstream.close();
    }
  }, 180_000);
});
