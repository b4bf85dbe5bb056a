// `portcullis serve MODULE`: the module is the application `local`, with what its author decided for its tools.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { portcullis, root, type Serving, serve } from "./serving.js";

let home: string;
let serving: Serving | undefined;
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "portcullis-module-"));
});
afterEach(async () => {
  await serving?.stop();
  serving = undefined;
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

const SERVER = JSON.stringify(pathToFileURL(join(root, "dist", "server.js")).href);

/** Tools that write what they did to a file, so that a denied call can be shown to have done nothing. */
function moduleFile(name: string, options: string): { file: string; effects: () => string } {
  const file = join(home, `${name}.mjs`);
  const log = join(home, `${name}.log`);
  writeFileSync(
    file,
    `import { appendFileSync } from "node:fs";
import { createServer } from ${SERVER};
const ran = (name) => { appendFileSync(${JSON.stringify(log)}, name + "\\n"); return name + " ran"; };
export default createServer("own", ${options})
  .tool("look", "looks", { type: "object" }, () => ran("look"), { noGuardrailRequired: true, annotations: { readOnlyHint: true } })
  .tool("change", "changes", { type: "object", properties: { to: { type: "string" } } }, () => ran("change"), { noGuardrailRequired: true })
  .tool("guarded", "is guarded", { type: "object", properties: { n: { type: "integer" } } }, () => ran("guarded"));
`,
  );
  return { file, effects: () => (existsSync(log) ? readFileSync(log, "utf8") : "") };
}

const call = (tool: string, args = "{}") => portcullis(["call", tool, args, "--url", (serving as Serving).url]);

describe("portcullis serve MODULE", () => {
  it("portcullis serve MODULE works at once in an empty directory: reading is permitted, everything else needs an approval", async () => {
    const { file, effects } = moduleFile("starter", "{}");
    serving = await serve([file]);
    expect(call("look")).toMatchObject({ code: 0, stdout: "look ran\n" });
    expect(call("change")).toMatchObject({ code: 5, stdout: "" });
    expect(effects()).toBe("look\n");
    const policy = readFileSync(join(serving.dir, "policy", "module.cedar"), "utf8");
    expect(policy).toContain('Action::"change"');
    expect(portcullis(["--dir", serving.dir, "policy", "check"])).toMatchObject({ code: 0 });
    expect(portcullis(["--dir", serving.dir, "policy", "explain", "change", "{}"])).toMatchObject({ code: 5 });
  });

  it("portcullis serve MODULE works after the demonstration, after another module and after an import, each by its own starter policy", async () => {
    const dir = join(home, "used");
    const on = (...args: string[]) => portcullis(["--dir", dir, ...args]);
    serving = await serve([], { dir });
    await serving.stop();
    const { file } = moduleFile("first", "{}");
    serving = await serve([file], { dir });
    expect(call("look")).toMatchObject({ code: 0 });
    expect(on("policy", "explain", "change", "{}")).toMatchObject({ code: 5 });
    await serving.stop();
    writeFileSync(file, readFileSync(file, "utf8").replaceAll('"look"', '"glance"'));
    serving = await serve([file], { dir });
    expect(call("glance")).toMatchObject({ code: 0 });
    expect(on("policy", "check")).toMatchObject({ code: 0 });
    await serving.stop();
    const servers = join(home, "servers.json");
    writeFileSync(servers, JSON.stringify({ mcpServers: { other: { command: process.execPath, args: ["-e", ""] } } }));
    expect(on("import", "--from", servers, "--yes")).toMatchObject({ code: 0 });
    serving = await serve([file], { dir });
    // The rules of the import apply beside the starter policy.
    expect(call("glance")).toMatchObject({ code: 5, stderr: expect.stringContaining("ask-unless-it-reads") });
    expect(on("policy", "explain", "glance", "{}").stdout).toContain("module.cedar");
  });

  it("portcullis serve MODULE names a module that is not there", () => {
    const missing = portcullis(["serve", join(home, "none.mjs")]);
    expect([missing.code, missing.stderr]).toEqual([1, expect.stringContaining("there is no module ")]);
  });

  it("portcullis serve MODULE applies the policy, the guardrails and the rate limits of the module's author", async () => {
    const options = `{
      policy: 'permit (principal, action in [Action::"guarded", Action::"look"], resource);',
      guardrails: [{ id: "small", agent: "*", tool: "guarded", callback: ({ arguments: { n } }) => (n > 9 ? "n is over 9" : undefined) }],
      rateLimits: [{ per: "tool", perMinute: 20 }],
    }`;
    const { file, effects } = moduleFile("author", options);
    serving = await serve([file]);
    expect(call("guarded", '{"n":1}')).toMatchObject({ code: 0 });
    const blocked = call("guarded", '{"n":10}');
    expect(blocked).toMatchObject({ code: 2 });
    expect(blocked.stderr).toContain("n is over 9");
    expect(call("change")).toMatchObject({ code: 2 });
    expect(effects()).toBe("guarded\n");
    const statuses: number[] = [];
    for (let i = 0; i < 21; i++) {
      const headers = { "content-type": "application/json" };
      statuses.push((await fetch(new URL("/tools/look", serving.url), { method: "POST", headers, body: "{}" })).status);
    }
    expect(statuses.filter((status) => status === 200).length).toBe(20);
    expect(statuses.at(-1)).toBe(429);
  });

  it("portcullis serve MODULE uses the operator's files instead of the module's policy when --policy names them", async () => {
    const { file, effects } = moduleFile("operator", "{ policy: 'permit (principal, action, resource);' }");
    const own = join(home, "own.cedar");
    writeFileSync(own, 'permit (principal, action == Action::"look", resource);');
    serving = await serve([file, "--policy", own]);
    expect(call("look")).toMatchObject({ code: 0 });
    expect(call("change")).toMatchObject({ code: 2 });
    expect(effects()).toBe("look\n");
  });
});
