import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";
import { cargo, whyNoCargo, writeFiles } from "./fixtures/compile.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-rust-types-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const missing = whyNoCargo(dir);

/** Each stands in a function with an owner of everything, a reader, and what a guardrail gave the owner. */
const MISUSE: Readonly<Record<string, readonly [code: string, error: string]>> = {
  outside_the_set: ["let _ = reader.invoke::<WriteFile>(for_reader);", "E0277"],
  without_a_token: ['let _ = owner.invoke(WriteFileArgs::new("a".into(), "b".into()));', "E0308"],
  token_copied: ["let _ = token.clone();", "E0599"],
  token_spent_twice: ["let _ = owner.invoke(token); let _ = owner.invoke(token);", "E0382"],
  token_of_another: ["let _ = reader.invoke(for_reading_owner);", "E0308"],
  token_forged: ["let _ = GuardrailToken::<WriteFile, Owner> { agent: 1, args: todo!(), marks: todo!() };", "E0451"],
  no_guardrail_where_one_is_needed: ["let _ = UncheckedInvocation::<WriteFile>::new();", "E0277"],
  exempting_a_tool_oneself: ["impl NoGuardrailRequired for WriteFile {}", "E0117"],
  delegating_what_is_not_held: [
    "let child = reader.delegate::<Owner, FileManagerAll>(); let _ = child.invoke::<WriteFile>(token);",
    "E0277",
  ],
  // Programs are crates of their own, like a plugin that was handed an agent: none of them adds to what it holds.
  a_tool_of_ones_own: [
    `struct Evil;
    impl ToolCap for Evil {
        const NAME: &'static str = "writeFile";
        type Args = WriteFileArgs;
        type Output = serde_json::Value;
        fn encode(args: &WriteFileArgs) -> Result<serde_json::Value, McpError> { Ok(serde_json::to_value(args).unwrap()) }
        fn decode(result: serde_json::Value) -> Result<serde_json::Value, McpError> { Ok(result) }
    }
    impl HasCaps<Evil> for FileManagerAll {}
    let callbacks = owner.callbacks().before_tool::<Evil>(|_, _| Ok(()));`,
    "E0277",
  ],
  the_seal_of_a_tool: ["struct Evil; impl capability::sealed::Tool for Evil {}", "E0603"],
  the_seal_of_an_exemption: ["impl capability::sealed::Unguarded for WriteFile {}", "E0603"],
  a_set_of_tools_that_are_none: ["struct Evil; impl HasCaps<Evil> for Both<FileManagerAll, OnlyReading> {}", "E0277"],
  more_for_the_whole_set: ["impl HasCaps<WriteFile> for FileManagerAll {}", "E0117"],
  more_for_the_empty_set: ["impl HasCaps<WriteFile> for Nothing {}", "E0117"],
  more_for_a_meet: ["impl HasCaps<WriteFile> for Both<FileManagerAll, OnlyReading> {}", "E0117"],
  more_by_a_set_of_ones_own: [
    `struct Everything;
    impl<T: ToolCap> HasCaps<T> for Everything {}
    let child = reader.delegate::<Reader, Everything>();
    let token = child.callbacks().before_tool::<WriteFile>(|_, _| Ok(()));
    let _ = child.invoke::<WriteFile>(token.run_before_tool::<WriteFile>(WriteFileArgs::new("a".into(), "b".into())).unwrap());`,
    "E0277",
  ],
  an_agent_of_ones_own: ["let _ = Agent::<Owner, FileManagerAll>::with(todo!());", "E0624"],
  a_set_as_a_value: ["let _ = FileManagerAll(());", "E0423"],
  calling_before_the_handshake: [
    "fn f(h: file_manager::client::Handshake<file_manager::client::StdioTransport>) { let _ = h.call_tool; }",
    "E0609",
  ],
};

const program = (statement: string): string => `#![allow(unused)]
use file_manager::tools::{ReadFile, WriteFile};
use file_manager::*;
struct Owner;
struct Reader;
struct OnlyReading;
impl HasCaps<ReadFile> for OnlyReading {}
fn attempt(
    owner: Agent<Owner, FileManagerAll>,
    reader: Agent<Reader, Both<FileManagerAll, OnlyReading>>,
    token: GuardrailToken<WriteFile, Owner>,
    for_reader: GuardrailToken<WriteFile, Reader>,
    for_reading_owner: GuardrailToken<ReadFile, Owner>,
) {
    ${statement}
}
fn main() {}
`;

describe.skipIf(missing !== undefined)(
  `generated Rust types${missing === undefined ? "" : ` (skipped: ${missing})`}`,
  () => {
    it("refuse calls outside the set, without a token, with another's token, twice, before the handshake, and forged capabilities [L2]", () => {
      const manifest: unknown = JSON.parse(
        readFileSync(join(import.meta.dirname, "../../examples/filemanager/manifest.json"), "utf8"),
      );
      const { files } = generateCode("rust", manifest, { unguarded: ["readFile"] });
      const fine =
        'let _ = owner.invoke(token); let free = UncheckedInvocation::<ReadFile>::new().token(&reader, ReadFileArgs::new("a".into())); let _ = reader.invoke(free);';
      const programs = Object.entries({ ...MISUSE, what_is_allowed: [fine, ""] as const });
      writeFiles(join(dir, "crate"), [
        ...files,
        ...programs.map(([name, [statement]]) => ({ path: `src/bin/${name}.rs`, text: program(statement) })),
      ]);
      const { stderr } = cargo(join(dir, "crate"), ["check", "--bins", "--keep-going", "--message-format", "short"]);
      for (const [name, [, error]] of programs) {
        const found = [...stderr.matchAll(new RegExp(`src/bin/${name}\\.rs\\S* error\\[(E\\d+)\\]`, "g"))].map(
          ([, code]) => code,
        );
        if (error === "") expect(found, `${name}\n${stderr}`).toEqual([]);
        else expect(found, `${name}\n${stderr}`).toContain(error);
      }
    });

    it("do not wait for ever for a server that says nothing", () => {
      const { files } = generateCode("rust", { name: "quiet", tools: [] });
      const main = `use std::time::Duration;
fn main() {
    let transport = quiet::client::StdioTransport::start(std::process::Command::new("sleep").arg("60")).unwrap();
    let handshake = quiet::client::Handshake::new(transport.with_timeout(Duration::from_millis(200)));
    println!("{}", quiet::client::block_on(handshake.initialize("test", "1")).err().unwrap());
}
`;
      writeFiles(join(dir, "quiet"), [...files, { path: "src/main.rs", text: main }]);
      const { stdout, stderr } = cargo(join(dir, "quiet"), ["run", "--quiet"]);
      expect({ stdout, stderr }).toEqual({
        stdout: "The server behind it is unavailable: no answer in time\n",
        stderr: "",
      });
    });
  },
);
