// A Rust crate: types, checks, a trait for each tool and one for the server, capabilities and guardrail tokens, a typed
// client, a dispatcher and handlers to fill in.

import { type Checks, encodeChecks } from "../checks.js";
import { type Contract, sidesOf, type ToolContract } from "../contract.js";
import { Names } from "../names.js";
import type { Report } from "../report.js";
import type { About, Node } from "../schema/node.js";
import { crateName, identifier, quote, RESERVED_TYPES, raw, rustDocs } from "./rust-names.js";
import { circles, type RustScope, rustDeclaration } from "./rust-types.js";
import { countFields, errorRows, HEADER, type Target, withRuntime } from "./target.js";

export const rust: Target = {
  reserved: {
    types: RESERVED_TYPES,
    resultSuffix: "Success",
    toolNames: (title) => [`Can${title}`],
    serverNames: (title) => [`${title}Caps`, `${title}All`],
  },
  runtime: "rust",
  emit(contract, runtime) {
    const checks = encodeChecks(contract);
    const { table, reports } = tableFile(contract, checks);
    const tools = named(contract);
    const files = withRuntime(runtime, [
      { path: "Cargo.toml", text: cargoFile(contract) },
      { path: "src/lib.rs", text: libFile(contract) },
      { path: "src/types.rs", text: typesFile(contract, checks) },
      { path: "src/table.json", text: table },
      { path: "src/error_table.rs", text: errorTableFile() },
      { path: "src/tools.rs", text: toolsFile(contract, tools) },
      { path: "src/server.rs", text: serverFile(contract, tools) },
      { path: "src/handlers.rs", text: handlersFile(tools), once: true },
      {
        path: "src/manifest.json",
        text: `${JSON.stringify({ tools: contract.tools.map((tool) => tool.definition) })}\n`,
      },
    ]);
    return { files, reports, fields: countFields(contract) };
  },
};

interface NamedTool {
  readonly tool: ToolContract;
  /** The function that runs it. */
  readonly fn: string;
  /** What a result is: its type, or any JSON. */
  readonly output: string;
}

function named({ tools }: Contract): NamedTool[] {
  const names = new Names(["dispatch", "new", "state", "self_", "with", "delegate"]);
  return tools.map((tool) => ({
    tool,
    fn: raw(names.take(identifier(tool.name, "tool"), "_")),
    output: tool.result?.type ?? "Value",
  }));
}

function cargoFile({ server, version }: Contract): string {
  const crate = crateName(server);
  const semver = /^\d+\.\d+\.\d+$/.test(version) ? version : "0.0.0";
  // No doctests: what looks like code in a description is not meant to run.
  return `# ${HEADER}
[package]
name = ${quote(crate.replaceAll("_", "-"))}
version = ${quote(semver)}
edition = "2021"
rust-version = "1.74"
publish = false

[lib]
name = ${quote(crate)}
doctest = false

[dependencies]
serde = { version = "1", features = ["derive"] }
serde_json = { version = "1", features = ["float_roundtrip"] }
`;
}

function errorTableFile(): string {
  const rows = errorRows();
  const arms = rows.map(([type, { code, legacy, modern, http, retryable, forModel, message }]) => {
    return `            ErrorType::${type} => &ErrorRow {
                code: ${quote(code)},
                legacy: ${legacy},
                modern: ${modern},
                http: ${http},
                retryable: ${retryable},
                for_model: ${forModel},
                message: ${quote(message)},
            },\n`;
  });
  return `// ${HEADER}
//! Every error of a gateway, with its codes.

use crate::error::ErrorRow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorType {
${rows.map(([type]) => `    ${type},\n`).join("")}}

impl ErrorType {
    pub const ALL: [ErrorType; ${rows.length}] = [
${rows.map(([type]) => `        ErrorType::${type},\n`).join("")}    ];

    pub fn name(self) -> &'static str {
        match self {
${rows.map(([type]) => `            ErrorType::${type} => ${quote(type)},\n`).join("")}        }
    }

    pub fn row(self) -> &'static ErrorRow {
        match self {
${arms.join("")}        }
    }
}
`;
}

function libFile({ server, version, title, declarations }: Contract): string {
  return `// ${HEADER}
//! ${quote(server).slice(1, -1)}: its tools as types.
#![forbid(unsafe_code)]

// Not every server needs all of it.
#[allow(dead_code)]
#[macro_use]
mod support;
pub mod capability;
pub mod check;
pub mod client;
mod error;
mod error_table;
mod formats;
pub mod handlers;
mod pattern;
pub mod serve;
pub mod server;
pub mod tools;
pub mod types;

pub use capability::*;
pub use error::{ErrorRow, McpError};
pub use error_table::ErrorType;
pub use support::{Never, OrNull};
pub use tools::{${title}All, ${title}Caps};
${declarations.length > 0 ? "pub use types::*;\n" : ""}
/// The tools as the server publishes them: the answer to tools/list.
pub const MANIFEST: &str = include_str!("manifest.json");
pub const SERVER_NAME: &str = ${quote(server)};
pub const SERVER_VERSION: &str = ${quote(version)};
`;
}

function typesFile(contract: Contract, checks: Checks): string {
  const roots = new Map(sidesOf(contract.tools).map(({ type, node }) => [type, node]));
  const scope: RustScope = { checks, circle: circles(contract.declarations), roots };
  const text = contract.declarations.map((declaration) => rustDeclaration(declaration, scope)).join("\n");
  return `// ${HEADER}
//! What the tools take and answer. Absent is Option, null is OrNull; what no type can say is checked when a value is
//! read. Integers are 64 bits wide: one that is larger is refused.

${usesFor(text)}
${text}`;
}

/** What the text needs. A word in a text, or a variant of that name, looks like a use as well: so none of them warns. */
function usesFor(text: string): string {
  const has = (word: string): boolean => new RegExp(`\\b${word}\\b`).test(text);
  const lines: string[] = [];
  if (has("BTreeMap")) lines.push("use std::collections::BTreeMap;\n");
  const derived = ["Deserialize", "Serialize"].filter((word) => new RegExp(`[ (]${word}[,)]`).test(text));
  const serde = [...(has("de::Error") ? ["de"] : []), ...derived];
  if (serde.length > 0) lines.push(`use serde::{${serde.join(", ")}};`);
  const json = [
    ...(text.includes("json!(") ? ["json"] : []),
    ...(has("Map::new") ? ["Map"] : []),
    ...(has("Value") ? ["Value"] : []),
  ];
  if (json.length > 0) lines.push(`use serde_json::{${json.join(", ")}};`);
  if (text.includes("check::fits") || text.includes("check::has_type")) lines.push("\nuse crate::check;");
  const functions = ["fields_of", "optional", "others", "present", "put", "put_others", "put_some", "required"].filter(
    (name) => {
      return name === "present"
        ? text.includes(`"present"`)
        : text.includes(`${name}(`) && new RegExp(`\\b${name}\\(`).test(text);
    },
  );
  const types = ["Never", "OrNull"].filter(has);
  if (functions.length + types.length > 0) lines.push(`use crate::support::{${[...functions, ...types].join(", ")}};`);
  return `${lines.map((line) => line.replace(/^use /m, "#[allow(unused_imports)]\nuse ")).join("\n")}\n`;
}

function tableFile(contract: Contract, checks: Checks): { table: string; reports: Report[] } {
  const reports: Report[] = [];
  const programs = checks.patterns.map(({ source, program }, i) => {
    if (typeof program !== "string") return program;
    for (const { about } of contract.table.nodes.filter((node) => uses(node, i))) {
      reports.push(report(about, `the pattern \`${source.slice(0, 80)}\` ${program}; Rust does not check it`));
    }
    return null;
  });
  for (const { about } of contract.table.nodes.filter((node) => node.format === "regex")) {
    reports.push(report(about, "Rust does not check the format `regex`"));
  }
  return { table: `${JSON.stringify({ nodes: checks.nodes, patterns: programs })}\n`, reports };
}

function uses(node: Node, pattern: number): boolean {
  return (node.patterns?.includes(pattern) || node.patternProperties?.some(([id]) => id === pattern)) ?? false;
}

function report({ tool, side, pointer }: About, message: string): Report {
  return { level: "unsupported", tool, path: `/${side}${pointer}`, message };
}

function toolsFile({ title, server }: Contract, tools: readonly NamedTool[]): string {
  const traits = tools.map(
    ({ tool, fn, output }) => `${rustDocs(tool.docs)}pub trait Can${tool.title} {
    fn ${fn}(&self, args: ${tool.args.type}) -> Answer<'_, ${output}>;
}
`,
  );
  const marks = tools.map(
    ({ tool, output }) => `${rustDocs(tool.docs)}pub struct ${tool.title};

impl sealed::Tool for ${tool.title} {}

impl ToolCap for ${tool.title} {
    const NAME: &'static str = ${quote(tool.name)};
    type Args = ${tool.args.type};
    type Output = ${output};

    fn encode(args: &Self::Args) -> Result<Value, McpError> {
        encode_args(args)
    }

    fn decode(result: Value) -> Result<Self::Output, McpError> {
        ${tool.result ? "decode_result(result)" : "Ok(result)"}
    }
}

impl HasCaps<${tool.title}> for ${title}All {}
${tool.unguarded ? `impl sealed::Unguarded for ${tool.title} {}\nimpl NoGuardrailRequired for ${tool.title} {}\n` : ""}`,
  );
  const clients = tools.map(
    ({ tool, fn, output }) => `impl Can${tool.title} for Client {
    fn ${fn}(&self, args: ${tool.args.type}) -> Answer<'_, ${output}> {
        Box::pin(async move {
            let args = ${tool.title}::encode(&args)?;
            ${tool.title}::decode(ToolCaller::call_tool(self, ${tool.title}::NAME, args).await?)
        })
    }
}
`,
  );
  const bounds = tools.map(({ tool }) => `Can${tool.title}`).join(" + ");
  const text = [...traits, ...marks, ...clients].join("\n");
  const some = tools.length > 0;
  const typed = tools.some(({ tool }) => tool.result !== undefined);
  const unguarded = tools.some(({ tool }) => tool.unguarded);
  const capability = [
    "Agent",
    ...(some ? ["Answer", "HasCaps", "ToolCap", "sealed"] : []),
    "ToolCaller",
    ...(unguarded ? ["NoGuardrailRequired"] : []),
  ];
  return `// ${HEADER}
//! The tools of ${quote(server).slice(1, -1)}: a trait for each, one for all of them, and each as a type.

use std::sync::Arc;
${some ? "\nuse serde_json::Value;\n" : ""}
use crate::capability::{${capability.join(", ")}};
${some ? `use crate::client::Client;\nuse crate::support::${typed ? "{decode_result, encode_args}" : "encode_args"};\nuse crate::types::*;\nuse crate::McpError;\n` : ""}
/// The capability set of the server: the union of its tools.
pub trait ${title}Caps${bounds === "" ? "" : `: ${bounds}`} {}

impl<T${bounds === "" ? "" : `: ${bounds}`}> ${title}Caps for T {}

/// The same set as a type: what an agent at the root holds.
pub struct ${title}All(());

/// An agent that may use every tool of the server. Everyone else gets theirs by delegation.
pub fn root_agent<Id>(caller: Arc<dyn ToolCaller>) -> Agent<Id, ${title}All> {
    Agent::with(caller)
}

${text}`;
}

function serverFile({ title }: Contract, tools: readonly NamedTool[]): string {
  const impls = tools.map(
    ({ tool, fn, output }) => `impl Can${tool.title} for Server {
    fn ${fn}(&self, args: ${tool.args.type}) -> Answer<'_, ${output}> {
        Box::pin(handlers::${fn}(args, Arc::clone(&self.state)))
    }
}
`,
  );
  const arms = tools.map(({ tool, fn }) => {
    // By its trait: a tool may be called like a method that everything has.
    const call = `Can${tool.title}::${fn}(server, decode_args(args)?).await?`;
    const result = tool.result ? `encode_result(&${call})` : `Ok(${call})`;
    return `        ${quote(tool.name)} => ${result},\n`;
  });
  const some = tools.length > 0;
  const typed = tools.some(({ tool }) => tool.result !== undefined);
  return `// ${HEADER}
//! Runs the handlers by the names of their tools.

use std::sync::Arc;

use serde_json::Value;

use crate::capability::Answer;
${some ? "use crate::handlers::{self, SharedState};\n" : "use crate::handlers::SharedState;\n"}use crate::serve::Dispatch;
pub use crate::serve::{answer, serve_stdio};
${some ? `use crate::support::${typed ? "{decode_args, encode_result}" : "decode_args"};\n` : ""}use crate::tools::*;
${some ? "use crate::types::*;\n" : ""}use crate::McpError;

/// The handlers with the state they share.
pub struct Server {
    state: SharedState,
}

impl Server {
    pub fn new(state: SharedState) -> Self {
        Server { state }
    }

    pub fn state(&self) -> SharedState {
        Arc::clone(&self.state)
    }
}

${impls.join("\n")}
/// Calls a tool by name: arguments are checked on the way in, structured results on the way out.
pub async fn dispatch<S: ${title}Caps>(server: &S, tool: &str, args: Value) -> Result<Value, McpError> {
${some ? "" : "    let _ = (server, args);\n"}    match tool {
${arms.join("")}        _ => Err(McpError::ToolNotFound(tool.to_owned())),
    }
}

impl<S: ${title}Caps + Sync> Dispatch for S {
    fn dispatch<'a>(&'a self, tool: &'a str, args: Value) -> Answer<'a, Value> {
        Box::pin(dispatch(self, tool, args))
    }
}
`;
}

function handlersFile(tools: readonly NamedTool[]): string {
  const bodies = tools.map(
    ({ tool, fn, output }) => `
${rustDocs(tool.docs)}pub async fn ${fn}(args: ${tool.args.type}, state: SharedState) -> Result<${output}, McpError> {
    let _ = (args, state);
    Err(McpError::Internal(${quote(`${tool.name} is not implemented`)}.to_owned()))
}
`,
  );
  const values = tools.some(({ output }) => output === "Value") ? "use serde_json::Value;\n\n" : "";
  return `//! Yours to fill in: \`portcullis gen\` writes this file once and never again.

use std::sync::{Arc, RwLock};

${values}${tools.length > 0 ? "use crate::types::*;\nuse crate::McpError;\n\n" : ""}/// What the handlers share.
#[derive(Debug, Default)]
pub struct ServerState {}

pub type SharedState = Arc<RwLock<ServerState>>;
${bodies.join("")}`;
}
