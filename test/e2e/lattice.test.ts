// "Can any agent in this workflow reach a capability it should not?", asked at the command line.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { portcullis } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-lattice-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const workflow = (allow: string): string => {
  const file = join(dir, "workflow.yaml");
  writeFileSync(
    file,
    `servers:
  files:
    tools:
      - name: read
        inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
  net:
    tools: [{ name: send }]
agents:
  boss: { servers: [files, net] }
  reader: { servers: [files, net], allow: ${allow} }
delegations:
  - { from: boss, to: reader }
`,
  );
  return file;
};

describe("portcullis lattice", () => {
  it("finds the way by which an agent comes to hold what it must not, and exits 2", () => {
    const { code, stdout } = portcullis(["lattice", "check", workflow("[files.read]")]);
    expect(code).toBe(2);
    expect(stdout).toContain("`reader` can come to hold `net.send`");
    expect(stdout).toContain("boss");
  });

  it("is clean when nobody can, and exits 0", () => {
    const { code, stdout } = portcullis(["lattice", "check", workflow("[files.read, net.send]")]);
    expect(code).toBe(0);
    expect(stdout).toContain("clean");
  });

  it("reports for CI, and draws", () => {
    const file = workflow("[files.read]");
    expect(JSON.parse(portcullis(["lattice", "check", "--sarif", file]).stdout)).toMatchObject({ version: "2.1.0" });
    expect(portcullis(["lattice", "graph", file]).stdout).toContain("<svg");
    expect(portcullis(["lattice", "graph", "--format", "mermaid", file]).stdout).toContain("flowchart");
    expect(portcullis(["lattice", "graph", "--format", "paint", file]).code).toBe(64);
  });

  it("names the line of a mistake", () => {
    const file = join(dir, "bad.yaml");
    writeFileSync(file, "agents:\n  a: { servers: [nobody] }\n");
    const { code, stderr } = portcullis(["lattice", "check", file]);
    expect(code).toBe(3);
    expect(stderr).toMatch(/2/);
  });
});
