// An API and a document that mean harm: what they make the gateway keep is charged and bounded, what they make it do is
// done in slices or in a thread that is ended, and arguments reach nothing but their operation.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ByteBudget, type JsonObject } from "../../mcp/index.js";
import { createDialer } from "../dialer.js";
import { closeAll, faultOf, tool, upstream } from "../fixtures/calling.js";
import type { Upstream, UpstreamOptions } from "../types.js";
import { readOperations } from "./operations.js";

const MIB = 1024 * 1024;
const every = { isIncluded: () => true, names: {} };
const BOUNDS = { maxOperations: 10_000, maxBytes: 32 * MIB };

const folder = mkdtempSync(join(tmpdir(), "portcullis-openapi-"));
let answer: (request: IncomingMessage, response: ServerResponse) => void = (_, response) => void response.end();
const api = createServer((request, response) => answer(request, response));
let base = "";
beforeAll(async () => {
  await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
});
afterEach(closeAll);
afterAll(async () => {
  api.closeAllConnections();
  await new Promise((resolve) => api.close(resolve));
  rmSync(folder, { recursive: true, force: true });
});

let count = 0;
function served(document: JsonObject | string, more: Partial<UpstreamOptions> = {}): Upstream {
  const file = join(folder, `${count++}.txt`);
  writeFileSync(file, typeof document === "string" ? document : JSON.stringify(document));
  const openapi = { document: file, choice: every };
  const dialer = createDialer({ allow: ["127.0.0.1"] });
  return upstream({ name: "shop", target: { transport: "http", url: `${base}/v1`, openapi }, dialer, ...more });
}

function document(paths: JsonObject, more: JsonObject = {}): JsonObject {
  return { openapi: "3.1.0", info: { title: "Shop", version: "1" }, paths, ...more };
}

const ONE = document({ "/one": { get: { operationId: "one" } } });

describe("an answer of an API", () => {
  it("an answer of an API that comes byte by byte costs about what it holds, and is charged until it is whole [U12]", async () => {
    const budget = new ByteBudget(64 * MIB);
    let used = 0;
    answer = async (_, response) => {
      response.writeHead(200, { "content-type": "text/plain" });
      for (let i = 0; i < 2_000; i++) {
        response.write("x");
        await new Promise(setImmediate);
        used = Math.max(used, budget.used);
      }
      response.end();
    };
    const shop = served(ONE, { budget });
    const before = (await shop.catalogue().then(() => budget.used)) + 0;
    expect(await shop.request(tool("one", {}, { timeoutMs: 30_000 }))).toMatchObject({ kind: "result" });
    expect(used - before).toBeGreaterThan(1_000);
    expect(used - before).toBeLessThan(20_000);
    expect(budget.used).toBe(before);
  });

  it("an answer of an API over the limit ends its call", async () => {
    answer = (_, response) => void response.end(Buffer.alloc(5 * MIB));
    expect(await faultOf(served(ONE).request(tool("one")))).toMatchObject({ type: "TooLarge" });
  });

  it("an answer of an API does not say where the API is", async () => {
    answer = (_, response) => void response.writeHead(200, { "content-type": "application/zip" }).end("PK");
    const answered = await served(ONE).request(tool("one"));
    expect(answered.text).toContain('"uri":"shop:/one"');
    expect(answered.text).not.toContain("127.0.0.1");
  });

  it("an API that does not answer has no more calls at once than any server, and is left alone after failures", async () => {
    answer = () => {};
    const shop = served(ONE, { limits: { maxInFlight: 1, maxQueued: 1, failuresToOpen: 1 } });
    await shop.catalogue();
    const [first, second, third] = [1, 2, 3].map(() => faultOf(shop.request(tool("one", {}, { timeoutMs: 500 }))));
    expect(await third).toMatchObject({ type: "TooMany" });
    expect((await Promise.all([first, second])).map((fault) => fault?.type)).toContain("ToolTimeout");
    await expect.poll(() => shop.health().circuit).toBe("open");
  });
});

describe("a document of an API", () => {
  it("a document of an API is charged for its tools, and refused where its application may not keep them [U12]", async () => {
    const paths = Object.fromEntries(
      Array.from({ length: 200 }, (_, at) => [`/p${at}`, { get: { description: "x".repeat(3_000) } }]),
    );
    const budget = new ByteBudget(16 * MIB);
    const shop = served(document(paths), { budget });
    await shop.catalogue();
    expect(budget.used).toBeGreaterThan(600_000);
    await shop.close();
    expect(budget.used).toBe(0);
    const small = new ByteBudget(MIB / 2);
    expect((await faultOf(served(document(paths), { budget: small }).catalogue())).message).toContain("may keep");
    await closeAll();
    expect(small.used).toBe(0);
  });

  it.each([
    ["that carry the same large schema, each of them", largeSchema(), "bytes"],
    ["that share thousands of parameters", sharedParameters(), "bytes"],
    ["without end", manyOperations(), "more than 10000 operations"],
  ])(
    "a document of an API with operations %s is refused, and other work is done meanwhile",
    async (_, hostile, why) => {
      let turns = 0;
      const timer = setInterval(() => turns++, 1);
      await expect(readOperations(hostile, every, BOUNDS).finally(() => clearInterval(timer))).rejects.toThrow(why);
      expect(turns).toBeGreaterThan(1);
    },
  );

  it("a document of an API has a name for each of thousands of operations and schemas that want the same one", async () => {
    const same = Array.from({ length: 3_000 }, (_, at) => [`/p${at}`, { get: { operationId: "same" } }]);
    const schemas = Array.from({ length: 1_400 }, (_, at) => [`x/${at}/same`, { type: "string" }]);
    const refs = schemas.map(([name]) => ({ $ref: `#/components/schemas/${String(name).replaceAll("/", "~1")}` }));
    const body = { requestBody: { content: { "application/json": { schema: { anyOf: refs } } } } };
    const hostile = document(
      { ...Object.fromEntries(same), "/refs": { post: { operationId: "refs", ...body } } },
      { components: { schemas: Object.fromEntries(schemas) } },
    );
    const { operations } = await readOperations(hostile, every, BOUNDS);
    expect(operations.size).toBe(3_001);
    const { $defs } = operations.get("refs")?.definition.inputSchema as JsonObject;
    expect(Object.keys($defs as JsonObject)).toHaveLength(1_400);
  });

  it("a document of an API is left without operations whose schemas are nested without end", async () => {
    let schema: JsonObject = { type: "string" };
    for (let i = 0; i < 1_000; i++) schema = { items: schema };
    const deep = document({
      "/deep": { get: { parameters: [{ name: "a", in: "query", schema }] } },
      "/enum": { get: { parameters: [{ name: "a", in: "query", schema: { enum: [schema] } }] } },
    });
    const { operations, left } = await readOperations(deep, every, BOUNDS);
    expect(operations.size).toBe(0);
    expect(left.map(({ why }) => why)).toEqual(Array(2).fill("its schemas are deeper than 64 levels"));
  });

  it.each([
    ["is longer than YAML may be", `openapi: 3.1.0\npaths:\n${"  /a: {}\n".repeat(600_000)}`, "write it as JSON"],
    ["has aliases to aliases", aliases(), "alias"],
    ["has too many values", `{"openapi":"3.1.0","paths":[${"[],".repeat(600_000)}0]}`, "values"],
  ])("a document of an API that %s is refused", async (_, text, why) => {
    await expect(served(text).catalogue()).rejects.toThrow(why);
  });

  it("a document of an API as YAML is read while other work is done", async () => {
    const lines = Array.from({ length: 2_000 }, (_, at) => `  /p${at}:\n    get: {operationId: o${at}}\n`);
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    const { tools } = await served(`openapi: 3.1.0\npaths:\n${lines.join("")}`).catalogue();
    clearInterval(timer);
    expect(tools).toHaveLength(2_000);
    expect(turns).toBeGreaterThan(10);
  });
});

describe("arguments of an API's operation", () => {
  it("arguments of an API's operation take the place of no header of the gateway's, in whatever case it is written", async () => {
    const names = ["X-Api-Key", "Cookie", "Proxy-Authorization", "Transfer-Encoding", "Connection", "DPoP"];
    const parameters = names.map((name) => ({ name, in: "header", schema: { type: "string" } }));
    let headers: IncomingMessage["headers"] = {};
    answer = (request, response) => {
      ({ headers } = request);
      response.end();
    };
    const credentials = { headers: () => ({ "X-API-Key": "secret" }) };
    const shop = served(document({ "/one": { get: { operationId: "one", parameters } } }), { credentials });
    await shop.request(tool("one", Object.fromEntries(names.map((name) => [name, "mine"]))));
    expect(headers["x-api-key"]).toBe("secret");
    expect(JSON.stringify(headers)).not.toContain("mine");
  });

  it("arguments of an API's operation, and the path of its document, lead to no other path", async () => {
    let reached = 0;
    answer = (_, response) => {
      reached++;
      response.end();
    };
    const paths = {
      "/files/{a}": { get: { operationId: "file" } },
      "/files/.{a}{b}": { get: { operationId: "hidden" } },
      "/files/../{a}": { get: { operationId: "up" } },
    };
    const shop = served(document(paths));
    const calls: [string, JsonObject][] = [
      ["file", { a: ".." }],
      ["file", { a: "" }],
      ["hidden", { a: ".", b: "x" }],
      ["up", { a: "x" }],
    ];
    for (const [name, args] of calls)
      expect((await faultOf(shop.request(tool(name, args)))).type).toBe("ValidationError");
    expect(reached).toBe(0);
    await shop.request(tool("file", { a: "../../admin?x#y" }));
    expect(reached).toBe(1);
  });
});

function largeSchema(): JsonObject {
  const enumeration = Array.from({ length: 20_000 }, (_, at) => `value ${at}`);
  const body = { content: { "application/json": { schema: { $ref: "#/components/schemas/Large" } } } };
  const paths = Object.fromEntries(
    Array.from({ length: 5_000 }, (_, at) => [`/p${at}`, { post: { requestBody: body } }]),
  );
  return document(paths, { components: { schemas: { Large: { enum: enumeration } } } });
}

function sharedParameters(): JsonObject {
  const parameters = Array.from({ length: 5_000 }, (_, at) => ({ name: `p${at}`, in: "query" }));
  const item = Object.fromEntries(["get", "put", "post", "delete"].map((method) => [method, {}]));
  const paths = Object.fromEntries(
    Array.from({ length: 2_000 }, (_, at) => [`/p${at}`, { $ref: "#/components/pathItems/All" }]),
  );
  return document(paths, { components: { pathItems: { All: { parameters, ...item } } } });
}

function manyOperations(): JsonObject {
  return document(
    Object.fromEntries(Array.from({ length: 12_000 }, (_, at) => [`/p${at}`, { get: { operationId: "same" } }])),
  );
}

function aliases(): string {
  const rows = Array.from({ length: 30 }, (_, at) => `x-${at + 1}: &a${at + 1} [${`*a${at},`.repeat(10)}]`);
  return `openapi: 3.1.0\nx-0: &a0 [1]\n${rows.join("\n")}\npaths: {}\n`;
}
