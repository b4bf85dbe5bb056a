import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode, readRuntime } from "../cli/generate.js";
import { equalityKey } from "../schema/documents/index.js";
import { encodeChecks } from "./checks.js";
import type { ManifestTool } from "./contract.js";
import { awkwardManifest } from "./fixtures/awkward.js";
import { cargo, whyNoCargo, workspace, writeFiles } from "./fixtures/compile.js";
import { hostileManifest, REPORTED } from "./fixtures/hostile.js";
import { randomCases, randomTools } from "./fixtures/random.js";
import { rustDriver } from "./fixtures/rust-driver.js";
import { type Case, casesFor, manifestFiles, ownValidator, sampledTools } from "./fixtures/sample.js";
import { suite } from "./fixtures/suite.js";
import { rust } from "./targets/rust.js";

/** Every n-th tool goes through the compiled decoders; 4 are more than 300 tools. */
const EVERY = Number(process.env.CODEGEN_EVERY ?? 4);
const RANDOM = Number(process.env.CODEGEN_RANDOM ?? 400);
const EACH = Number(process.env.CODEGEN_VALUES ?? 100);

const dir = mkdtempSync(join(tmpdir(), "portcullis-rust-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const missing = whyNoCargo(dir);

describe.skipIf(missing !== undefined)(`generated Rust${missing === undefined ? "" : ` (skipped: ${missing})`}`, () => {
  it("compiles for every manifest without a warning [L2]", () => {
    const folder = join(dir, "all");
    const members: string[] = [];
    const fields = { typed: 0, opaque: 0 };
    for (const [i, { name, manifest }] of manifestFiles().entries()) {
      const generated = generateCode("rust", manifest, { name: `m${i}-${name}` });
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

  it("compiles for hostile manifests, without tools, and under names that are taken", () => {
    const folder = join(dir, "odd");
    const odd = { hostile: hostileManifest(), awkward: awkwardManifest(), empty: { tools: [] } } as Record<
      string,
      unknown
    >;
    const one = { tools: [{ name: "t", inputSchema: {}, outputSchema: false }] };
    for (const name of ["type", "serde", "core", "test", "self", "1", "日本"]) odd[name] = one;
    const members = Object.entries(odd).map(([name, manifest], i) => {
      writeFiles(join(folder, `o${i}`), generateCode("rust", manifest, name === "hostile" ? {} : { name }).files);
      return `o${i}`;
    });
    workspace(folder, members);
    const { status, stderr } = cargo(folder, ["check", "--workspace", "--message-format", "short"]);
    expect(stderr.match(/.*(?:warning|error).*/g) ?? []).toEqual([]);
    expect(status).toBe(0);
  });

  /** Runs values through the decoders of a generated crate, built by cargo; hands back where they differ. */
  function compare(name: string, tools: readonly ManifestTool[], cases: readonly Case[]) {
    const folder = join(dir, name);
    const { files, unsupported } = rustDriver({ name, tools }, name);
    writeFiles(folder, files);
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
    return { wrong, accepted, unsupported };
  }

  it("decodes what a validator accepts, refuses the rest, and writes back what it read [L2]", () => {
    const tools = sampledTools(EVERY);
    const cases = casesFor(tools, EACH, 7);
    const { wrong, accepted, unsupported } = compare("sample", tools, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(unsupported.size / tools.length).toBeLessThanOrEqual(0.02);
    expect(accepted).toBeGreaterThan(cases.length / 20);
  });

  it("generated Rust agrees with a validator for every keyword of both dialects", () => {
    const { tools } = hostileManifest() as unknown as { tools: ManifestTool[] };
    const judged = tools.filter(({ name }) => !REPORTED.has(name));
    const cases = casesFor(judged, EACH * 3, 3, ownValidator).filter(({ value }) => !beyondRust(value));
    const { wrong } = compare("hostile", judged, cases);
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("generated Rust agrees with a validator for random schemas", () => {
    const tools = randomTools(RANDOM, 11);
    const { wrong } = compare("random", tools, randomCases(tools, EACH, 12));
    expect(wrong.slice(0, 5)).toEqual([]);
  });

  it("judges the JSON Schema test suite as it says", () => {
    const { contract, cases } = suite();
    const checks = encodeChecks(contract);
    const { files } = rust.emit(contract, readRuntime("rust"));
    const needed = ["src/check.rs", "src/formats.rs", "src/pattern.rs", "src/table.json"];
    const main = `#![allow(dead_code)]
mod check;
mod formats;
mod pattern;
fn main() {
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (node, value) = line.split_once('\\t').unwrap();
        println!("{}", check::fits(node.parse().unwrap(), &serde_json::from_str(value).unwrap()));
    }
}
`;
    const folder = join(dir, "suite");
    const manifest = files.find(({ path }) => path === "Cargo.toml")?.text.replace(/\[lib\]\nname = .*\n/, "") ?? "";
    writeFiles(folder, [
      { path: "Cargo.toml", text: manifest },
      { path: "src/main.rs", text: main },
      ...files.filter(({ path }) => needed.includes(path)),
    ]);
    const nodes = new Map(contract.tools.map(({ name, args }) => [name, checks.place(args.node)]));
    const input = cases.map(({ tool, value }) => `${nodes.get(tool)}\t${JSON.stringify(value)}\n`).join("");
    const { stdout, stderr } = cargo(folder, ["run", "--quiet"], input);
    expect(stderr).toBe("");
    const answers = stdout.trimEnd().split("\n");
    const wrong = cases.filter(({ valid }, i) => answers[i] !== String(valid)).map(({ name }) => name);
    console.log(JSON.stringify({ cases: cases.length, wrong: wrong.length }));
    expect(wrong).toEqual([]);
  });
});

/** Integers of more than 64 bits are refused by Rust, which the guide says. */
function beyondRust(value: unknown): boolean {
  return /\d(?:\.\d+)?e\+?(?:19|[2-9]\d|\d{3})/.test(JSON.stringify(value));
}
