// An HTTP API as an upstream server: the document's operations as tools, and what a call sends.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { createDialer } from "../dialer.js";
import type { Upstream } from "../types.js";
import { createUpstream } from "../upstream.js";
import { readOperations } from "./operations.js";

const every = { isIncluded: () => true, names: {} };
const BOUNDS = { maxOperations: 10_000, maxBytes: 32 * 1024 * 1024 };
const DOCUMENT = {
  openapi: "3.0.3",
  info: { title: "Shop", version: "7" },
  paths: {
    "/pets/{petId}": {
      parameters: [{ name: "petId", in: "path", required: true, schema: { type: "string" } }],
      get: {
        operationId: "getPet",
        summary: "Get a pet",
        parameters: [
          { name: "tags", in: "query", schema: { type: "array", items: { type: "string" } } },
          { name: "ids", in: "query", explode: false, schema: { type: "array", items: { type: "integer" } } },
          { name: "filter", in: "query", style: "deepObject", schema: { type: "object" } },
          { name: "X-Trace", in: "header", schema: { type: "string" } },
          { name: "Authorization", in: "header", schema: { type: "string" } },
        ],
      },
      put: { operationId: "pets/put", requestBody: { $ref: "#/components/requestBodies/Pet" } },
    },
    "/upload": { post: { requestBody: { required: true, content: { "application/octet-stream": {} } } } },
    "/form": {
      post: {
        operationId: "form",
        requestBody: { content: { "application/x-www-form-urlencoded": { schema: { type: "object" } } } },
      },
    },
    "/fails": { get: { operationId: "fails" } },
    "/image": { get: { operationId: "image" } },
  },
  components: {
    requestBodies: {
      Pet: { required: true, content: { "application/json": { schema: { $ref: "#/components/schemas/Pet" } } } },
    },
    schemas: {
      Pet: {
        type: "object",
        required: ["name"],
        properties: {
          name: { type: "string", nullable: true, example: "Rex" },
          age: { type: "number", minimum: 0, exclusiveMinimum: true },
          parent: { $ref: "#/components/schemas/Pet" },
        },
      },
    },
  },
} as unknown as JsonObject;

describe("the operations of an OpenAPI document", () => {
  const read = (document: JsonObject, choice: Parameters<typeof readOperations>[1] = every, bounds = BOUNDS) =>
    readOperations(document, choice, bounds);

  it("become tools with the schemas of their parameters and bodies, references carried along", async () => {
    const { operations } = await read(DOCUMENT);
    expect(operations.get("pets_put")?.definition).toEqual({
      name: "pets_put",
      description: "PUT /pets/{petId}",
      inputSchema: {
        type: "object",
        properties: { petId: { type: "string" }, body: { $ref: "#/$defs/Pet" } },
        required: ["petId", "body"],
        additionalProperties: false,
        $defs: {
          Pet: {
            type: "object",
            required: ["name"],
            properties: {
              name: { type: ["string", "null"] },
              age: { type: "number", exclusiveMinimum: 0 },
              parent: { $ref: "#/$defs/Pet" },
            },
          },
        },
      },
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
    });
    const properties = (operations.get("getPet")?.definition.inputSchema as JsonObject).properties as JsonObject;
    expect(Object.keys(properties)).toEqual(["petId", "tags", "ids", "filter", "X-Trace"]);
  });

  it("are left out with the reason where their body cannot be written from arguments", async () => {
    expect((await read(DOCUMENT)).left).toEqual([
      {
        operation: "POST /upload",
        why: "its body is application/octet-stream, which cannot be written from arguments",
      },
    ]);
  });

  it("are chosen and named by the operator", async () => {
    const { operations } = await read(DOCUMENT, {
      isIncluded: (names) => names.includes("GET /pets/{petId}"),
      names: { getPet: "pet" },
    });
    expect([...operations.keys()]).toEqual(["pet"]);
  });

  it("are not read from a document that is not OpenAPI 3, nor by a reference that leads outside of it", async () => {
    await expect(read({ swagger: "2.0" })).rejects.toThrow("not OpenAPI 3");
    const outside = { get: { requestBody: { $ref: "https://example.com/body.json" } } };
    const { left } = await read({ openapi: "3.1.0", paths: { "/a": outside } });
    expect(left[0]?.why).toBe("reference https://example.com/body.json leads outside the document");
  });
});

describe("a call of an operation", () => {
  const seen: {
    method?: string | undefined;
    url?: string | undefined;
    headers: IncomingMessage["headers"];
    body: string;
  }[] = [];
  const folder = mkdtempSync(join(tmpdir(), "portcullis-openapi-"));
  const document = join(folder, "api.json");
  let token = "first";
  let upstream: Upstream;
  const api = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => {
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      if (request.url === "/v1/fails") return response.writeHead(422, { "content-type": "text/plain" }).end("no");
      if (request.url === "/v1/image") return response.writeHead(200, { "content-type": "image/png" }).end("png");
      if (request.headers.authorization !== "Bearer second") return response.writeHead(401).end();
      return response.writeHead(200, { "content-type": "application/json" }).end('{"ok":true}');
    });
  });
  beforeAll(async () => {
    writeFileSync(document, JSON.stringify(DOCUMENT));
    await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}/v1`;
    upstream = createUpstream({
      name: "shop",
      target: { transport: "http", url, openapi: { document, choice: every } },
      dialer: createDialer({ allow: ["127.0.0.1"] }),
      credentials: {
        headers: () => ({ authorization: `Bearer ${token}` }),
        refused: async ({ status }) => {
          token = "second";
          return status === 401;
        },
      },
    });
  });
  beforeEach(() => void seen.splice(0));
  afterAll(async () => {
    await upstream.close();
    await new Promise((resolve) => api.close(resolve));
    rmSync(folder, { recursive: true, force: true });
  });

  const called = async (name: string, args: JsonObject = {}): Promise<JsonObject> => {
    const definition = (await upstream.catalogue()).tools.find((tool) => tool.name === name) as JsonObject;
    const expects = { kind: "tool", name, definition } as const;
    const params = JSON.stringify({ name, arguments: args });
    const answer = await upstream.request({ method: "tools/call", params, timeoutMs: 10_000, expects });
    return answer.kind === "result" ? answer.value : { error: answer.error.message };
  };

  it("sends each parameter in its place and style, with a credential that is renewed once when it is refused", async () => {
    const args = {
      petId: "a/b",
      tags: ["x y", "z"],
      ids: [1, 2],
      filter: { a: "b" },
      "X-Trace": "t",
      Authorization: "mine",
    };
    expect(await called("getPet", args)).toMatchObject({
      content: [{ type: "text", text: '{"ok":true}' }],
      structuredContent: { ok: true },
    });
    expect(seen.map(({ headers }) => headers.authorization)).toEqual(["Bearer first", "Bearer second"]);
    expect(seen[1]).toMatchObject({
      method: "GET",
      url: "/v1/pets/a%2Fb?tags=x%20y&tags=z&ids=1,2&filter%5Ba%5D=b",
      headers: { "x-trace": "t" },
    });
  });

  it("sends bodies as JSON and as a form", async () => {
    await called("pets_put", { petId: "1", body: { name: "Rex" } });
    await called("form", { body: { a: "b c", d: 1 } });
    expect(seen.map(({ headers, body }) => [headers["content-type"], body])).toEqual([
      ["application/json", '{"name":"Rex"}'],
      ["application/x-www-form-urlencoded", "a=b+c&d=1"],
    ]);
  });

  it("is refused where an argument would lead to another path", async () => {
    for (const petId of ["..", ".", ""]) await expect(called("getPet", { petId })).rejects.toThrow("in a path");
    expect(seen).toEqual([]);
  });

  it("returns an error status as the tool's error, and an image as an image", async () => {
    expect(await called("fails")).toMatchObject({ isError: true, content: [{ text: "HTTP 422" }, { text: "no" }] });
    expect(await called("image")).toMatchObject({ content: [{ type: "image", mimeType: "image/png", data: "cG5n" }] });
  });

  it("is not sent when the document has another definition than the one that was decided for", async () => {
    const expects = { kind: "tool", name: "fails", definition: { name: "fails", description: "another" } } as const;
    const call = { method: "tools/call", params: '{"name":"fails"}', timeoutMs: 1_000, expects };
    await expect(upstream.request(call)).rejects.toMatchObject({ detail: { extra: { delivered: false } } });
    expect(seen).toEqual([]);
  });
});
