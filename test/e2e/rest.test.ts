// Callers without MCP: tools by `POST /tools/{name}`, and what there is by catalog and OpenAPI document, by URL and by
// command, for upstream tools over HTTP and stdio.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ERRORS } from "../../src/mcp/index.js";
import { permitAll } from "../../src/server.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";
import { root } from "./serving.js";

const OPEN = { noGuardrailRequired: true } as const;
const SUM = { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] } as const;
const STDIO = `
import { createServer, permitAll } from ${JSON.stringify(join(root, "dist", "server.js"))};
const open = { noGuardrailRequired: true };
const sum = ${JSON.stringify(SUM)};
await createServer("local", { policy: permitAll })
  .tool("s.sum", "adds", { type: "object" }, () => ({ structuredContent: { sum: 7 } }), { ...open, output: sum })
  .tool("s.fail", "fails", { type: "object" }, () => ({ content: [{ type: "text", text: "no" }], isError: true }), open)
  .listen();
`;

let upstream: Counting;
let other: Counting;
let world: Deployment;
let token: string;

beforeAll(async () => {
  upstream = await counting("http", (server) => {
    server.tool("h.sum", "adds", { type: "object" }, () => ({ structuredContent: { sum: 5 } }), {
      ...OPEN,
      output: SUM,
    });
    server.tool(
      "h.fail",
      "fails",
      { type: "object" },
      () => ({ content: [{ type: "text", text: "no" }], isError: true }),
      OPEN,
    );
  });
  other = await counting("other");
  world = await deploy(permitAll);
  await world.put("app", {
    servers: {
      up: { url: upstream.url, noGuardrail: ["*"] },
      local: { command: process.execPath, args: ["--input-type=module", "-e", STDIO], noGuardrail: ["*"] },
    },
  });
  await world.put("second", { servers: { up: { url: other.url, noGuardrail: ["*"] } } });
  token = await world.key("app", "one");
}, 60_000);
afterAll(async () => {
  await world.close();
  await Promise.all([upstream.close(), other.close()]);
});

async function post(tool: string, body: object = {}): Promise<[number, unknown]> {
  const response = await fetch(new URL(`/tools/${tool}`, world.url), {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return [response.status, await response.json()];
}

async function get(path: string, bearer = token): Promise<Response> {
  return fetch(new URL(path, world.url), { headers: { authorization: `Bearer ${bearer}` } });
}

function catalogCommand(args: string[], key = token): Promise<{ code: number | null; out: string; err: string }> {
  const main = join(root, "dist", "cli", "main.js");
  const child = spawn(process.execPath, [main, "catalog", "--url", world.url, ...args], {
    env: { ...process.env, NO_COLOR: "1", KEY: key },
  });
  let out = "";
  let err = "";
  child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()));
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, out, err })));
}

interface Entries {
  tools: { name: string; examples: unknown[] }[];
  version: string;
  generated_at: string;
}

describe("POST /tools/{name}", () => {
  it.each([
    ["HTTP", "up.h", 5],
    ["stdio", "local.s", 7],
  ])(
    "POST /tools/{name} returns the tool result of an upstream server over %s, with structured content and isError [G3]",
    async (_name, prefix, sum) => {
      const [status, result] = await post(`${prefix}.sum`);
      expect([status, result]).toMatchObject([200, { structuredContent: { sum } }]);
      expect(Object.keys(result as object).sort()).toEqual(expect.arrayContaining(["content", "structuredContent"]));
      expect(result).not.toHaveProperty("inside");
      expect(await post(`${prefix}.fail`)).toMatchObject([
        200,
        { isError: true, content: [{ type: "text", text: "no" }] },
      ]);
    },
  );

  it("POST /tools/{name} returns the text content of an upstream tool, and the one error object for a tool that does not exist", async () => {
    expect(await post("up.read", { text: "a" })).toMatchObject([
      200,
      { content: [{ type: "text", text: "http says a" }] },
    ]);
    expect(await post("missing")).toMatchObject([404, { error: { code: "TOOL_NOT_FOUND" } }]);
  });
});

describe("documentation_url", () => {
  it("documentation_url leads to a section of a page that the gateway serves without a credential [G4]", async () => {
    const [, { error }] = (await post("missing")) as [number, { error: { documentation_url: string } }];
    expect(error.documentation_url).toBe("/docs/errors#tool_not_found");
    const page = await fetch(new URL(error.documentation_url, world.url));
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    const html = await page.text();
    for (const { code } of Object.values(ERRORS)) expect(html).toContain(`<h2 id="${code.toLowerCase()}">${code}</h2>`);
    expect(html).toContain("<code>ToolNotFound</code>");
  });

  it.each([
    [{ publicUrl: "https://gateway.example/mcp" }, "https://gateway.example/docs/errors#unauthenticated"],
    [{ documentationUrl: "https://docs.example/errors" }, "https://docs.example/errors#unauthenticated"],
  ])("documentation_url has the configured base %o [G4]", async (options, expected) => {
    await using configured = await deploy(permitAll, options);
    const response = await fetch(new URL("/catalog.json", configured.url), { headers: { authorization: "Bearer x" } });
    expect(await response.json()).toMatchObject({ error: { documentation_url: expected } });
  });
});

describe("the catalog", () => {
  it("the catalog lists the tools of the caller's application alone, with schemas, examples, version and time, by URL [G3]", async () => {
    const response = await get("/catalog.json");
    expect(response.headers.get("content-type")).toBe("application/json");
    const catalog = (await response.json()) as Entries;
    const names = catalog.tools.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(["up.h.sum", "local.s.sum", "up.read"]));
    expect(catalog.tools.find(({ name }) => name === "up.h.sum")).toMatchObject({
      outputSchema: SUM,
      tags: [],
      metadata: {},
    });
    expect(catalog.tools.find(({ name }) => name === "up.read")?.examples).not.toEqual([]);
    expect(Date.parse(catalog.generated_at)).toBeGreaterThan(0);
    expect(catalog.version).toMatch(/^\d/);
    const second = (await (await get("/catalog.json", await world.key("second", "two"))).json()) as Entries;
    expect(second.tools.map(({ name }) => name).sort()).toEqual(["read", "write"]);
    const narrow = (await (
      await get("/catalog.json", await world.key("app", "three", ["invoke(up.read)"]))
    ).json()) as Entries;
    expect(narrow.tools.map(({ name }) => name)).toEqual(["up.read"]);
    expect((await get("/catalog.json", "wrong")).status).toBe(401);
  });

  it("the catalog and the OpenAPI document are printed by the command for the application of the key [G3]", async () => {
    const catalog = await catalogCommand(["--key-env", "KEY"]);
    expect([catalog.code, catalog.err]).toEqual([0, ""]);
    expect((JSON.parse(catalog.out) as Entries).tools.map(({ name }) => name)).toContain("local.s.sum");
    expect(catalog.out.split("\n").length).toBeGreaterThan(20);
    const openapi = await catalogCommand(["--key-env", "KEY", "--openapi"]);
    expect(JSON.parse(openapi.out)).toMatchObject({ openapi: "3.1.0", paths: { "/tools/up.h.sum": {} } });
    const denied = await catalogCommand([]);
    expect([denied.code, denied.out]).toEqual([4, ""]);
    expect(denied.err).toContain("--key-env");
  });
});
