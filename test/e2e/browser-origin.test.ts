// Pages of other origins, which includes other ports of this machine, cannot call tools: over HTTP, over WebSocket and
// on the admin port. The requests are those that a browser sends.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { openStorage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Serving, serve } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-browser-origin-"));
let upstream: Counting;
let serving: Serving;

beforeAll(async () => {
  upstream = await counting("page");
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  const storage = await openStorage(`sqlite:${join(dir, "portcullis.db")}`);
  await storage.applications.put("local", { servers: { up: { url: upstream.url, noGuardrail: ["*"] } } }, "test");
  await storage.close();
  const allowed = ["--allow-origin", "https://app.example"];
  serving = await serve(["--log-level", "error", "--ws-port", "0", ...allowed], { dir });
});
afterAll(async () => {
  await serving?.stop();
  await upstream.close();
  rmSync(dir, { recursive: true, force: true });
});

/** `fetch` sets some of these headers itself, so the request is written by hand. */
function post(url: string, path: string, headers: Record<string, string>, body = '{"text":"x"}'): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request(new URL(path, url), { method: "POST", headers }, (response) => {
      response.resume().on("end", () => resolve(response.statusCode as number));
    });
    asked.on("error", reject);
    asked.end(body);
  });
}
const JSON_TYPE = { "content-type": "application/json" };
const OTHER_PORT = "http://localhost:3000";

describe("a page of another origin", () => {
  it("a page of another origin cannot call a tool over HTTP, whatever it declares its body to be [U2]", async () => {
    upstream.calls.length = 0;
    for (const headers of [
      { "content-type": "text/plain", origin: OTHER_PORT },
      { "content-type": "text/plain", origin: OTHER_PORT, "sec-fetch-site": "same-site" },
      { "content-type": "text/plain", "sec-fetch-site": "same-site" },
      { ...JSON_TYPE, origin: OTHER_PORT },
      { ...JSON_TYPE, origin: OTHER_PORT, host: "localhost:3000" },
      { ...JSON_TYPE, origin: "http://127.0.0.1:3000", "sec-fetch-site": "same-site" },
      { ...JSON_TYPE, origin: "null", "sec-fetch-site": "cross-site" },
      { ...JSON_TYPE, "sec-fetch-site": "cross-site" },
    ] as Record<string, string>[]) {
      expect([headers, await post(serving.url, "/tools/read", headers)]).toEqual([headers, 403]);
      expect([headers, await post(serving.url, "/mcp", headers, "{}")]).toEqual([headers, 403]);
    }
    expect(upstream.calls).toEqual([]);
  });

  it("a page of another origin cannot open a WebSocket [U2]", async () => {
    for (const headers of [{ origin: OTHER_PORT }, { "sec-fetch-site": "same-site" }]) {
      const socket = new WebSocket(serving.urls[1] as string, "mcp", { headers });
      const outcome = await new Promise((resolve) => {
        socket.on("open", () => resolve("open"));
        socket.on("unexpected-response", (_request, response) => resolve(response.statusCode));
        socket.on("error", () => {});
      });
      socket.terminate();
      expect(outcome).toBe(403);
    }
  });

  it("a page of another origin cannot use the admin port [U2]", async () => {
    const authorization = `Bearer ${readFileSync(join(dir, "operator.token"), "utf8").trim()}`;
    for (const headers of [
      { origin: OTHER_PORT },
      { "sec-fetch-site": "same-site" },
      { "sec-fetch-site": "cross-site" },
    ] as Record<string, string>[]) {
      const path = "/v1/approvals/x/approve";
      expect(await post(serving.admin, path, { ...JSON_TYPE, ...headers, authorization }, "{}")).toBe(403);
    }
    expect(await post(serving.admin, "/v1/approvals/x/approve", { "content-type": "text/plain", authorization })).toBe(
      400,
    );
  });
});

describe("a body that is not declared as JSON", () => {
  it("a body that is not declared as JSON is refused on /tools and on /mcp [U2]", async () => {
    upstream.calls.length = 0;
    for (const type of [
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data",
      "application/jsonp",
    ]) {
      expect(await post(serving.url, "/tools/read", { "content-type": type })).toBe(415);
      expect(await post(serving.url, "/mcp", { "content-type": type })).toBe(415);
      expect(await post(serving.url, "/tools/read", { "content-type": type }, "")).toBe(415);
    }
    expect(await post(serving.url, "/tools/read", {})).toBe(415);
    // A page can send this one without a preflight request, too.
    expect(await post(serving.url, "/tools/read", {}, "")).toBe(415);
    expect(await post(serving.url, "/tools/read", { "transfer-encoding": "chunked" })).toBe(415);
    expect(upstream.calls).toEqual([]);
  });
});

describe("a client that is not a page of another origin", () => {
  it("a client that is not a page of another origin calls tools without any of these headers, as the gateway's own page, and from a listed origin", async () => {
    upstream.calls.length = 0;
    const { host } = new URL(serving.url);
    for (const headers of [
      {},
      { "sec-fetch-site": "none" },
      { origin: `http://${host}`, "sec-fetch-site": "same-origin" },
      { origin: "https://app.example", "sec-fetch-site": "cross-site" },
    ] as Record<string, string>[]) {
      expect([headers, await post(serving.url, "/tools/read", { ...JSON_TYPE, ...headers })]).toEqual([headers, 200]);
    }
    expect(upstream.calls).toHaveLength(4);
  });
});
