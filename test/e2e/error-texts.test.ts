// What a caller reads when a server cannot be reached names neither its address nor its program nor its secrets; the
// operator finds them in the log under the trace id.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Serving, serve } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-error-texts-"));
let upstream: Counting;
let serving: Serving;
const INSIDE = /127\.0\.0\.\d|localhost:|ECONNREFUSED|\/opt\/inner|BILLING_TOKEN|inner\.corp/;

beforeAll(async () => {
  upstream = await counting("texts");
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  const servers = {
    up: { url: upstream.url, noGuardrail: ["*"] },
    program: { command: "/opt/inner/bin/server", noGuardrail: ["*"] },
    secret: { command: "node", env: { T: "${secret:BILLING_TOKEN}" }, noGuardrail: ["*"] },
    name: { url: "http://inner.corp.invalid:8080/mcp", noGuardrail: ["*"] },
  };
  const routes = Object.fromEntries(Object.keys(servers).map((server) => [server, { server }]));
  await storage.applications.put("local", { servers, routes }, "test");
  await storage.close();
  serving = await serve(["--log-level", "warning"], { dir });
});
afterAll(async () => {
  await serving?.stop();
  await upstream.close();
  rmSync(dir, { recursive: true, force: true });
});

async function call(tool: string): Promise<{ status: number; text: string }> {
  const response = await fetch(new URL(`/tools/${tool}`, serving.url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  return { status: response.status, text: await response.text() };
}

it("does not reveal addresses, programs or secret names to callers, and logs them under the trace id [G4]", async () => {
  await expect.poll(async () => (await call("up.read")).status).toBe(200);
  for (const tool of ["program.x", "secret.x", "name.x"]) {
    const { status, text } = await call(tool);
    expect([tool, status === 200, INSIDE.test(text), text]).toEqual([tool, false, false, text]);
  }
  await upstream.close();
  const { status, text } = await call("up.read");
  expect(status).not.toBe(200);
  expect(text).toContain("`up`");
  expect(text).not.toMatch(INSIDE);
  const { trace_id: traceId } = (JSON.parse(text) as { error: { trace_id: string } }).error;
  const { port } = new URL(upstream.url);
  const logged = (): string =>
    serving
      .stderr()
      .split("\n")
      .find((line) => line.includes(traceId)) ?? "";
  await expect.poll(logged).toContain(port);
  await expect.poll(() => serving.stderr()).toContain("BILLING_TOKEN");
});
