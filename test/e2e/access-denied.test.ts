// Callers whom the gateway denies access: what it says, the exit code for credentials, and a remedy that helps.
// What upstream servers say is in src/cli/connection-error.test.ts.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { portcullis, type Ran, type Serving, serve } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-access-denied-"));
const state = join(dir, "state");

function write(name: string, text: string): string {
  const file = join(dir, name);
  writeFileSync(file, text);
  return file;
}

const workflow = write(
  "workflow.yaml",
  `servers:
  math: { tools: [{ name: add, inputSchema: { type: object, properties: { a: { type: integer }, b: { type: integer } } } }] }
agents:
  boss: { servers: [math] }
  sums: { servers: [math] }
delegations:
  - { from: boss, to: sums }
`,
);

const token = (...args: string[]): Ran => portcullis(["--dir", state, "lattice", "token", ...args]);

let gateway: Serving;
let boss: string;
beforeAll(async () => {
  gateway = await serve(["--workflow", workflow], { dir: state });
  boss = write("boss.token", token("mint", "boss").stdout);
});
afterAll(async () => {
  await gateway?.stop();
  rmSync(dir, { recursive: true, force: true });
});

const add = (...args: string[]): Ran =>
  portcullis(["call", "math.add", '{"a":1,"b":2}', "--url", gateway.url, ...args]);

describe("a delegation that is refused", () => {
  const made = (name: string, ...args: string[]): string => write(name, token("hand-on", boss, "sums", ...args).stdout);
  const changed = (): string => {
    const text = readFileSync(boss, "utf8");
    return write(
      "forged.token",
      text.replace(/~./, (start) => (start === "~A" ? "~B" : "~A")),
    );
  };

  it.each<[string, () => string[], RegExp, RegExp]>([
    ["expired", () => ["--delegation", made("old.token", "--ttl", "0.001")], /has expired/, /lattice token mint/],
    ["forged", () => ["--delegation", changed()], /not minted here, or was changed/, /token across/],
    ["for another gateway", () => ["--delegation", boss, "--gateway", "gw-x"], /for the gateway `gw-x`/, /--gateway/],
    ["missing", () => [], /has no authority of its own/, /--key-env NAME, or a delegation with --delegation FILE/],
    ["none at all", () => ["--delegation", write("no.token", "hello")], /no\.token cannot be used/, /token mint/],
    [
      "narrowed by a misspelt name",
      () => ["--delegation", made("typo.token", "--arguments", '{"math.ad":{"maxProperties":0}}')],
      /narrower arguments of `math\.ad`, which is not handed on to it; did you mean `math\.add`\?/,
      /lattice token mint/,
    ],
  ])("a delegation that is refused because it is %s is not reported as a network failure", (_, args, said, remedy) => {
    const { code, stdout, stderr } = add(...args());
    expect({ code, stdout }).toEqual({ code: 4, stdout: "" });
    expect(stderr).toMatch(said);
    expect(stderr).toMatch(remedy);
    expect(stderr).not.toMatch(/cannot reach|start it with/);
  });

  it("a refused delegation is distinguished from a missing server and from an accepted delegation", () => {
    expect(add("--delegation", boss)).toMatchObject({ code: 0, stderr: "" });
    const { code, stderr } = portcullis(["ls", "--url", "http://127.0.0.1:1/mcp", "--delegation", boss]);
    expect(code).toBe(1);
    expect(stderr).toContain("cannot reach http://127.0.0.1:1/mcp");
    expect(stderr).toContain("start it with `portcullis serve`");
  });
});

describe("a delegation that cannot be made", () => {
  it.each([
    [["mint", "bos"], "there is no agent `bos` in ", "did you mean `boss`?"],
    [["mint", "sums"], "`sums` has no authority of its own", "from `boss`"],
    [["mint", "boss", "--tools", "math.ad"], "`boss` does not hold `math.ad`", "did you mean `math.add`?"],
  ])("a delegation that cannot be made is not minted: %j", (args, problem, help) => {
    const { code, stdout, stderr } = token(...args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toContain(problem);
    expect(stderr).toContain(help);
  });

  it.each([
    ['{"math.add":5}', "must be a schema"],
    ['{"math.add":{"properties":{"a":{"pattern":"("}}}}', "/properties/a/pattern"],
  ])("a delegation that cannot be made is not passed on: %s", (narrowed, problem) => {
    const { code, stdout, stderr } = token("hand-on", boss, "sums", "--arguments", narrowed);
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toContain(problem);
  });

  it("a delegation is minted by the workflow that is named", () => {
    const other = write("other.yaml", readFileSync(workflow, "utf8").replaceAll("boss", "chief"));
    expect(token("mint", "chief", "--workflow", other).code).toBe(0);
  });
});
