import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { type Deployment, deploy } from "../../test/e2e/gateway-world.js";
import type { CliError } from "../lib/exit.js";
import { connect } from "../mcp/client/index.js";
import { type CallerCredentials, connectionError } from "./connection-error.js";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0)) await clean();
});

async function refusing(status: number, body: string): Promise<string> {
  const server = createServer((_, response) => {
    const headers = { "content-type": "application/json", "www-authenticate": 'Bearer error="invalid_token"' };
    response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}

async function failure(url: string, shown: CallerCredentials = {}, key = "wrong"): Promise<CliError> {
  try {
    const client = await connect(url, { headers: { authorization: `Bearer ${key}` } });
    await client.close();
  } catch (error) {
    return connectionError(error, url, "start it", shown);
  }
  throw new Error("the connection succeeded");
}

describe("another server", () => {
  it.each([
    ["by its status alone", 401, "", 4, "requires other credentials"],
    [
      "in JSON-RPC of its own",
      401,
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Unauthorized"}}',
      4,
      "requires other credentials: Unauthorized",
    ],
    ["as OAuth does", 401, '{"error":"invalid_token"}', 4, 'it asks for Bearer error="invalid_token"'],
    ["because a scope is missing", 403, '{"error":"insufficient_scope"}', 2, "denied access"],
    ["because it is broken", 500, "", 1, "returned an error"],
  ])("reports the refusal of a server %s, not a failed connection", async (_, status, body, exitCode, said) => {
    const url = await refusing(status, body);
    const found = await failure(url, { keyEnv: "MY_KEY" });
    expect(found.exitCode).toBe(exitCode);
    expect(found.message).toContain(said);
    expect(found.help ?? "").not.toContain("start it");
    if (exitCode === 4) expect(found.help).toContain("the variable MY_KEY must hold a key or token");
  });

  it("reports a server that is not there as unreachable", async () => {
    const { exitCode, message, help } = await failure("http://127.0.0.1:1/mcp");
    expect({ exitCode, help }).toEqual({ exitCode: 1, help: "start it" });
    expect(message).toContain("cannot reach http://127.0.0.1:1/mcp");
  });
});

describe("a gateway of applications", () => {
  it("reports an unknown API key with the remedy", async () => {
    const gateway: Deployment = await deploy("permit (principal, action, resource);");
    cleanups.push(() => gateway.close());
    await gateway.put("team", { servers: {} });
    const url = gateway.runtime.listeners[0]?.url as string;
    const wrong = await failure(url, { keyEnv: "MY_KEY" }, "pk_abcdefgh_0123456789abcdef0123456789abcdef");
    expect(wrong.exitCode).toBe(4);
    expect(wrong.message).toContain(`${url} requires other credentials`);
    expect(wrong.help).toContain("`portcullis key add` creates keys");
    expect((await failure(url)).help).toContain("--key-env NAME");
    expect((await failure(url, { instead: "use a file" })).help).toBe("use a file");
  });
});
