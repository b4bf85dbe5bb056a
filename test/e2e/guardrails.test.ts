// Guardrails of an application's document: a JavaScript file of the data directory, and a tool of the application.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readLast } from "../../src/ledger/index.js";
import type { Client } from "../../src/mcp/client/index.js";
import type { JsonObject } from "../../src/mcp/index.js";
import type { ApplicationDocument, GuardrailEntry } from "../../src/storage/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = `
permit (principal, action in [Action::"notes.read", Action::"notes.write"], resource);
permit (principal == Agent::"team/guardrail:scan", action == Action::"scanner.check", resource);
`;

let deployment: Deployment;
let notes: Counting;
let scanner: Counting;

beforeEach(async () => {
  deployment = await deploy(POLICY);
  notes = await counting("notes");
  scanner = await counting("scanner", (server, calls) =>
    server.tool(
      "check",
      "Checks a call",
      { type: "object" },
      (input: { arguments?: { text?: string } }) => {
        calls.push(`check ${input.arguments?.text}`);
        const allow = !input.arguments?.text?.includes("secret");
        const structuredContent: JsonObject = allow ? { allow } : { allow, reason: "the text holds a secret" };
        return { structuredContent };
      },
      { noGuardrailRequired: true },
    ),
  );
});

afterEach(async () => {
  await deployment.close();
  await notes.close();
  await scanner.close();
});

const serve = async (guardrails: readonly GuardrailEntry[], more: ApplicationDocument = {}): Promise<string> => {
  const servers = {
    notes: { url: notes.url },
    scanner: { url: scanner.url, noGuardrail: ["check"] },
  };
  await deployment.put("team", { servers, guardrails, ...more });
  return deployment.key("team", "ann");
};

const call = async (token: string, text: string, tool = "notes.read"): Promise<string> => {
  let client: Client | undefined;
  try {
    client = await deployment.client(token);
    return JSON.stringify(await client.callTool(tool, { text }));
  } catch (error) {
    return (error as Error).message;
  } finally {
    await client?.close();
  }
};

const writeModule = (name: string, text: string): void => {
  const directory = join(deployment.dir, "guardrails");
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, name), text);
};

describe("a guardrail of an application", () => {
  it("a guardrail of an application blocks by a JavaScript file of the data directory, without effect, and permits what the file lets pass [L8]", async () => {
    writeModule(
      "words.mjs",
      `export default ({ agent, tool, arguments: { text } }) => (text === "no" ? agent + " may not " + tool : undefined);`,
    );
    const token = await serve([{ id: "words", tool: "notes.*", module: "words.mjs" }]);
    expect(await call(token, "no")).toContain("ann may not notes.read");
    expect(notes.calls).toEqual([]);
    expect(await call(token, "yes")).toContain("notes");
    expect(notes.calls).toHaveLength(1);
  });

  it("a guardrail of an application blocks by a tool of the application, whose own call is decided by policy and recorded [L8]", async () => {
    const token = await serve([{ id: "scan", tool: "notes.*", call: "scanner.check" }]);
    expect(await call(token, "a secret")).toContain("the text holds a secret");
    expect(notes.calls).toEqual([]);
    expect(await call(token, "fine")).toContain("notes");
    expect(notes.calls).toHaveLength(1);
    expect(scanner.calls).toEqual(["check a secret", "check fine"]);
    const { records } = await readLast(deployment.runtime.ledger.dir, 20);
    const text = JSON.stringify(records);
    expect(text).toContain("guardrail:scan");
  });

  it.each([
    ["a file that does not exist", { id: "a", tool: "*", module: "missing.mjs" }, "cannot be loaded"],
    ["a tool that policy denies to it", { id: "other", tool: "*", call: "scanner.check" }, "guardrail `other` failed"],
    ["a tool that does not exist", { id: "scan", tool: "*", call: "scanner.nothing" }, "guardrail `scan` failed"],
    ["a tool that answers something else", { id: "scan", tool: "notes.read", call: "scanner.read" }, "failed"],
  ])(
    "a guardrail of an application blocks every call that it covers when it is %s [L8]",
    async (_what, entry, reason) => {
      const token = await serve([entry]);
      const answer = await call(token, "anything");
      expect(answer).toContain(reason);
      expect(answer).not.toContain(deployment.dir);
      expect(notes.calls).toEqual([]);
    },
  );

  it("a guardrail of an application applies exactly as long as the document names it", async () => {
    writeModule("none.mjs", `export default () => "nothing passes";`);
    const token = await serve([{ id: "scan", tool: "notes.*", call: "scanner.check" }]);
    expect(await call(token, "first")).toContain("notes");
    await serve([{ id: "none", tool: "notes.*", module: "none.mjs" }]);
    await expect.poll(() => call(token, "second"), { timeout: 20_000 }).toContain("nothing passes");
    await serve([], { servers: { notes: { url: notes.url, noGuardrail: ["*"] } } });
    await expect.poll(() => call(token, "third"), { timeout: 20_000 }).toContain("notes");
  });

  it("a guardrail of an application is refused in a document when it names no callback, two, or a file outside the directory", async () => {
    const put = (entry: object): Promise<void> =>
      deployment.put("team", { guardrails: [{ id: "x", tool: "*", ...entry } as GuardrailEntry] });
    await expect(put({})).rejects.toThrow("either `module` or `call`");
    await expect(put({ module: "a.mjs", call: "b" })).rejects.toThrow("either `module` or `call`");
    await expect(put({ module: "../a.mjs" })).rejects.toThrow("without a directory");
  });

  it("a guardrail of an application has an agent name that no API key can have", async () => {
    await expect(deployment.key("team", "guardrail:scan")).rejects.toThrow("reserved for servers and guardrails");
  });
});
