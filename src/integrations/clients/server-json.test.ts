// Servers as the MCP registry describes them.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type CollectedServers, collectServers } from "./collect.js";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "portcullis-registry-"));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function collected(document: object, env: Record<string, string> = {}): Promise<CollectedServers> {
  const from = join(home, "server.json");
  writeFileSync(from, JSON.stringify(document));
  return collectServers({ from, mayAsk: false }, { platform: "linux", env, home, cwd: home });
}

const NPM = {
  registryType: "npm",
  identifier: "@example/weather",
  version: "1.4.2",
  transport: { type: "stdio" },
  packageArguments: [
    { type: "positional", value: "serve" },
    { type: "named", name: "--region", default: "eu" },
    { type: "named", name: "--debug" },
  ],
  environmentVariables: [
    { name: "WEATHER_KEY", description: "your key", isRequired: true, isSecret: true },
    { name: "UNITS", default: "metric" },
    { name: "OPTIONAL" },
  ],
};

describe("a server.json of the registry", () => {
  it("a package is imported in its exact version, with its secrets sealed and what may be left out left out [H5]", async () => {
    const document = { name: "io.example/weather", version: "1.4.2", packages: [NPM] };
    const { servers } = await collected(document, { PORTCULLIS_INPUT_WEATHER_KEY: "k-123456789" });
    expect(servers[0]).toMatchObject({
      name: "weather",
      problems: [],
      entry: {
        command: "npx",
        args: ["-y", "@example/weather@1.4.2", "serve", "--region", "eu"],
        env: { WEATHER_KEY: "${secret:weather.WEATHER_KEY}", UNITS: "metric" },
      },
      lifted: [{ name: "weather.WEATHER_KEY", value: "k-123456789" }],
    });
    const { missing } = await collected({ server: document, _meta: {} });
    expect(missing).toEqual([expect.stringContaining("WEATHER_KEY")]);
  });

  it("packages of PyPI and OCI and addresses are imported as what they are", async () => {
    const entryOf = async (document: object) =>
      (await collected({ name: "io.example/x", ...document })).servers[0]?.entry;
    const python = { registryType: "pypi", identifier: "mcp-x", version: "0.3.0" };
    expect(await entryOf({ packages: [python] })).toMatchObject({ command: "uvx", args: ["mcp-x==0.3.0"] });
    const image = {
      registryType: "oci",
      identifier: "docker.io/example/x",
      version: "2.0",
      environmentVariables: [{ name: "MODE", value: "read" }],
    };
    expect(await entryOf({ packages: [{ registryType: "nuget" }, image] })).toMatchObject({
      command: "docker",
      args: ["run", "-i", "--rm", "-e", "MODE", "docker.io/example/x:2.0"],
      env: { MODE: "read" },
    });
    const remote = { type: "streamable-http", url: "https://x.example/mcp", headers: [{ name: "X-Team", value: "a" }] };
    expect(await entryOf({ remotes: [remote] })).toMatchObject({
      url: "https://x.example/mcp",
      headers: { "X-Team": "a" },
    });
  });

  it.each([
    ["a range", { ...NPM, version: "^1.0.0" }, /not an exact version/],
    ["a tag", { ...NPM, version: "latest" }, /not an exact version/],
    ["another registry", { ...NPM, registryBaseUrl: "https://npm.example" }, /only https:\/\/registry.npmjs.org/],
    ["a variable of the user", { ...NPM, packageArguments: [{ value: "${env:HOME}" }] }, /variable of the user/],
    ["a kind that is not known", { registryType: "nuget", identifier: "x" }, /names no package or address/],
  ])("a package with %s is refused", async (_, each, message) => {
    await expect(collected({ name: "io.example/x", packages: [each] })).rejects.toThrow(message);
  });
});
