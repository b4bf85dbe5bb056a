import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { equalityKey } from "./schema/compile.js";
import { cargo, whyNoCargo, workspace, writeFiles } from "./fixtures/compile.js";
import { rustDriver } from "./fixtures/rust-driver.js";
import { casesFor, manifestFiles, sampledTools } from "./fixtures/sample.js";
import { generate } from "./generate.js";

/** Every n-th tool goes through the compiled decoders; 4 are more than 300 tools. */
const EVERY = Number(process.env.CODEGEN_EVERY ?? 4);
const EACH = Number(process.env.CODEGEN_VALUES ?? 100);

const dir = mkdtempSync(join(tmpdir(), "portcullis-rust-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const missing = whyNoCargo(dir);

describe.skipIf(missing !== undefined)(`generated Rust${missing === undefined ? "" : ` (skipped: ${missing})`}`, () => {
  it("compiles for every manifest without a warning", () => {
    const folder = join(dir, "all");
    const members: string[] = [];
    const fields = { typed: 0, opaque: 0 };
    for (const [i, { name, manifest }] of manifestFiles().entries()) {
      const generated = generate("rust", manifest, { name: `m${i}-${name}` });
      writeFiles(join(folder, `m${i}`), generated.files);
      fields.typed += generated.fields.typed;
      fields.opaque += generated.fields.opaque;
      members.push(`m${i}`);
    }
    workspace(folder, members);
    const { status, stderr } = cargo(folder, ["check", "--workspace", "--message-format", "short"]);
    console.log(JSON.stringify({ crates: members.length, fields }));
    expect(stderr.match(/.*(?:warning|error).*/g) ?? []).toEqual([]);
    expect(status).toBe(0);
    expect(fields.opaque / fields.typed).toBeLessThan(0.02);
  });

  it("decodes what a validator accepts, refuses the rest, and writes back what it read", () => {
    const tools = sampledTools(EVERY);
    const folder = join(dir, "sample");
    mkdirSync(folder);
    const { files, unsupported } = rustDriver({ name: "sample", tools }, "sample");
    writeFiles(folder, files);
    const cases = casesFor(tools, EACH, 7);
    const input = cases.map(({ tool, side, value }) => `${tool}\t${side}\t${JSON.stringify(value)}\n`).join("");
    const { status, stdout, stderr } = cargo(folder, ["run", "--quiet"], input);
    expect(stderr).toBe("");
    expect(status).toBe(0);
    const answers = stdout.trimEnd().split("\n");
    expect(answers).toHaveLength(cases.length);
    const wrong = cases.flatMap(({ tool, side, value, valid }, i) => {
      const answer = answers[i] as string;
      const right = valid ? answer !== "-" && equalityKey(JSON.parse(answer)) === equalityKey(value) : answer === "-";
      return right || unsupported.has(tool) ? [] : [{ tool, side, value, valid, answer }];
    });
    const accepted = answers.filter((answer) => answer !== "-").length;
    console.log(
      JSON.stringify({
        tools: tools.length,
        cases: cases.length,
        accepted,
        unsupported: unsupported.size,
        wrong: wrong.length,
      }),
    );
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(unsupported.size / tools.length).toBeLessThanOrEqual(0.02);
    expect(accepted).toBeGreaterThan(cases.length / 20);
  });
});
