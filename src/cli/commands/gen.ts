import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { type Command, Option } from "commander";
import type { Generated, GeneratedFile, Report } from "../../codegen/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { paintErr } from "../../lib/print.js";
import { connect } from "../../mcp/client/index.js";
import { connectionError } from "../../runtime/connection-error.js";
import { outFor } from "../../runtime/options.js";

const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;
const MAX_SHOWN = 20;
const URL_LIKE = /^(?:https?|wss?|tcp):\/\//;

interface GenOptions {
  out: string;
  name?: string;
  unguarded?: string[];
  strict?: boolean;
}

const LANGUAGES = {
  ts: "generate a TypeScript module: types, decoders, a typed caller, handlers, the capability type",
  rust: "generate a Rust crate: types, traits, guardrail tokens, a client, handlers",
  csharp: "generate a C# project: records, interfaces, guardrail evidence, handlers with injected services",
} as const;

export function addGen(program: Command): void {
  const gen = program.command("gen").description("generate typed code from a server's tools");
  for (const [language, description] of Object.entries(LANGUAGES)) {
    gen
      .command(`${language} <source...>`)
      .description(`${description}; SOURCE is a manifest, a URL, or a command that starts the server`)
      .option("-o, --out <directory>", "directory to write to", "generated")
      .option("--name <name>", "name of the server in the code (default: its own name)")
      .addOption(
        new Option("--unguarded <tool...>", "tools that need no guardrail, such as read-only or idempotent ones"),
      )
      .option("--strict", "exit 1 when a part of a schema is unsupported")
      .action(async (source: string[], options: GenOptions, command: Command) => {
        const out = outFor(command);
        const { manifest, name } = await manifestFrom(source);
        const generated = await run(language, manifest, { name, ...options });
        const written = generated.files.filter((file) => write(options.out, file)).map(({ path }) => path);
        const kept = generated.files.map(({ path }) => path).filter((path) => !written.includes(path));
        for (const line of wordsFor(generated.reports)) out.note(line);
        out.data(
          {
            out: options.out,
            tools: generated.tools,
            written,
            kept,
            fields: generated.fields,
            reports: generated.reports,
          },
          () =>
            `${written.length} files for ${generated.tools} tools in ${options.out}${kept.length > 0 ? `; kept ${kept.join(", ")}` : ""}`,
        );
        if (options.strict && unsupported(generated.reports).length > 0) process.exitCode = EXIT.error;
      });
  }
}

async function run(
  language: string,
  manifest: unknown,
  options: { name?: string | undefined; unguarded?: string[] },
): Promise<Generated> {
  const [{ CodegenError }, { generateCode }] = await Promise.all([
    import("../../codegen/index.js"),
    import("../generate.js"),
  ]);
  try {
    return generateCode(language, manifest, {
      ...(options.name !== undefined && { name: options.name }),
      ...(options.unguarded !== undefined && { unguarded: options.unguarded }),
    });
  } catch (error) {
    if (!(error instanceof CodegenError)) throw error;
    throw new CliError(error.message, error.code === "CODEGEN_TARGET" ? EXIT.usage : EXIT.error);
  }
}

async function manifestFrom(source: readonly string[]): Promise<{ manifest: unknown; name: string | undefined }> {
  const [first = "", ...args] = source;
  if (args.length === 0 && !URL_LIKE.test(first) && existsSync(first) && /\.json$/i.test(first)) return fromFile(first);
  if (args.length === 0 && /\.json$/i.test(first)) {
    throw new CliError(`there is no file ${first}`, EXIT.usage, "name a manifest, an address, or a command after --");
  }
  const target = URL_LIKE.test(first) ? first : { command: first, args };
  const client = await connect(target).catch((error: unknown) => {
    const start = "name a manifest (a .json file), an address such as http://127.0.0.1:7420/mcp, or a command after --";
    const instead = "save its answer to tools/list in a .json file, and name that";
    throw connectionError(error, source.join(" "), start, { instead });
  });
  try {
    const tools = await client.listTools();
    const { serverInfo } = await client.discover();
    return { manifest: { tools, serverInfo }, name: undefined };
  } finally {
    await client.close();
  }
}

function fromFile(file: string): { manifest: unknown; name: string | undefined } {
  if (statSync(file).size > MAX_MANIFEST_BYTES)
    throw new CliError(`${file} is larger than ${MAX_MANIFEST_BYTES} bytes`);
  let manifest: unknown;
  try {
    manifest = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
  const says =
    typeof manifest === "object" &&
    manifest !== null &&
    ["name", "package", "serverInfo"].some((key) => key in manifest);
  return { manifest, name: says ? undefined : basename(file).replace(/\.json$/i, "") };
}

/** Returns false for a file that its reader edits and that exists. */
function write(directory: string, { path, text, once }: GeneratedFile): boolean {
  const target = join(directory, path);
  if (once && existsSync(target)) return false;
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, text);
  return true;
}

function unsupported(reports: readonly Report[]): Report[] {
  return reports.filter((report) => report.level === "unsupported");
}

function wordsFor(reports: readonly Report[]): string[] {
  const hard = unsupported(reports);
  const lines = hard.slice(0, MAX_SHOWN).map(({ tool, path, message }) => {
    return `${paintErr.yellow("unsupported")} ${JSON.stringify(tool)} ${JSON.stringify(path)}: ${message}`;
  });
  if (hard.length > MAX_SHOWN) lines.push(`… and ${hard.length - MAX_SHOWN} more; --json lists them all`);
  const notes = reports.length - hard.length;
  if (notes > 0) lines.push(`${notes} notes about parts that no validator honours; --json lists them`);
  return lines;
}
