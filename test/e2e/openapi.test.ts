// An HTTP API behind the built gateway: its operations are tools, decided, pinned and recorded like those of any server.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { openStorage } from "../../src/storage/index.js";
import { portcullis, type Serving, serve } from "./serving.js";

const POLICY = `permit (principal, action, resource);
forbid (principal, action == Action::"pets.deletePet", resource);`;

const schema = { type: "string" };
const petId = { name: "petId", in: "path", required: true, schema };
const operation = (operationId: string) => ({ operationId, parameters: [petId], responses: {} });

describe("an API described by OpenAPI", () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-openapi-"));
  const seen: string[] = [];
  const api = createServer((request, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    response.writeHead(200, { "content-type": "application/json" }).end('{"name":"Rex"}');
  });
  let gateway: Serving;
  let client: Client;
  beforeAll(async () => {
    await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}/v1`;
    const paths = { "/pets/{petId}": { get: operation("getPet"), delete: operation("deletePet") } };
    const document = join(dir, "pets.json");
    writeFileSync(document, JSON.stringify({ openapi: "3.1.0", info: { title: "Pets", version: "1" }, paths }));
    mkdirSync(join(dir, "policy"));
    writeFileSync(join(dir, "policy", "test.cedar"), POLICY);
    process.env.PETS_TOKEN = "hunter2";
    const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
    const auth = { type: "bearer", token: "${env:PETS_TOKEN}" } as const;
    const pets = { url, openapi: { document }, auth, prefix: "pets", noGuardrail: ["*"] };
    await storage.applications.put("local", { servers: { pets } }, "test");
    await storage.close();
    gateway = await serve([], { dir });
    client = await connect(gateway.url);
  }, 120_000);
  afterAll(async () => {
    delete process.env.PETS_TOKEN;
    await client?.close();
    await gateway?.stop();
    await new Promise((resolve) => api.close(resolve));
    rmSync(dir, { recursive: true, force: true });
  });

  it("serves its operations as tools with the gateway's credential, and sends nothing that policy denies", async () => {
    const { tools } = (await client.request("tools/list", {})) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(["pets.getPet"]);
    const result = await client.callTool("pets.getPet", { petId: "7" });
    expect(result.structuredContent).toEqual({ name: "Rex" });
    const refused = [
      client.callTool("pets.deletePet", { petId: "7" }),
      client.callTool("pets.getPet", { petId: ".." }),
    ];
    expect((await Promise.all(refused)).map(({ isError }) => isError)).toEqual([true, true]);
    expect(seen).toEqual(["GET /v1/pets/7 Bearer hunter2"]);
  });

  it("is listed by server ls with its tools", () => {
    const { stdout } = portcullis(["--json", "--dir", dir, "server", "ls", "--admin", gateway.admin]);
    expect(JSON.parse(stdout)).toMatchObject([{ server: "pets", tools: 2, state: "ready" }]);
  });

  it("is shown by server show without the name of its application, which is the only one", () => {
    const { stdout } = portcullis(["--json", "--dir", dir, "server", "show", "pets", "--admin", gateway.admin]);
    expect(JSON.parse(stdout)).toMatchObject({ server: "pets", tools: 2, state: "ready" });
  });
});
