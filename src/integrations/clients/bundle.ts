// `.mcpb` bundles: an archive with a server's program and a manifest that says how it is started.

import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { CliError } from "../../lib/exit.js";
import { readZip, type ZipEntry, ZipInvalid } from "../../lib/zip.js";
import { isJsonObject, type JsonObject, type JsonValue, parseStrict } from "../../mcp/index.js";
import type { ClientEnvironment } from "./places.js";
import { mapTexts, type ReadConfig } from "./read.js";

const MAX_BYTES = 512 * 1024 * 1024;
const MANIFEST = "manifest.json";

export interface Bundle extends ReadConfig {
  /** Writes the program to the directory that the server's entry names. Nothing is written before. */
  extract(): void;
}

/** `directory` is where bundles are extracted to, each by its content: another version does not change one that runs. */
export function readBundle(file: string, directory: string, { platform, home }: ClientEnvironment): Bundle {
  const bytes = contentOf(file);
  const entries = entriesOf(bytes, file);
  const manifest = manifestOf(entries, file);
  const name = typeof manifest.name === "string" ? manifest.name : "bundle";
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
  const target = join(directory, `${name.replace(/[^A-Za-z0-9_-]+/g, "-").slice(0, 60)}-${digest}`);
  const { server, user_config: declared } = manifest;
  if (!isJsonObject(server) || !isJsonObject(server.mcp_config))
    throw new CliError(`${file}: the manifest has no \`server.mcp_config\``);
  const { platform_overrides: overrides, ...config } = server.mcp_config;
  const override = isJsonObject(overrides) && isJsonObject(overrides[platform]) ? overrides[platform] : {};
  refuseVariables([server.mcp_config, declared ?? {}], file);
  const inHome = (text: string): string => withDirectories(text, home);
  const options = mapTexts(isJsonObject(declared) ? declared : {}, inHome) as JsonObject;
  const fields = mapTexts(withInputs({ ...config, ...override }, target, options), inHome) as JsonObject;
  return {
    servers: [{ name, fields, dialect: "bundle", file, path: [name], project: undefined }],
    inputs: Object.entries(options).flatMap(([id, option]) => (isJsonObject(option) ? [inputOf(id, option)] : [])),
    otherProjects: [],
    warnings: [],
    extract: () => extract(entries, target),
  };
}

const KNOWN_VARIABLE = /^(__dirname|user_config\.[^{}]{1,128}|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|\/)$/;

/** A manifest is a stranger's text: a variable of the user's environment or of a client would be filled in for it. */
function refuseVariables(value: JsonValue, file: string): void {
  for (const [, name = ""] of JSON.stringify(value).matchAll(/\$\{([^}]*)\}?/g)) {
    if (KNOWN_VARIABLE.test(name)) continue;
    throw new CliError(
      `${file}: the manifest names the variable \`${name.slice(0, 128)}\`, which no bundle may read`,
      undefined,
      "remove it from the manifest, or declare the value under user_config",
    );
  }
}

/** Directories that a manifest may name. */
function withDirectories(text: string, home: string): string {
  return text.replaceAll(/\$\{(HOME|DESKTOP|DOCUMENTS|DOWNLOADS)\}/g, (_whole, name: string) =>
    name === "HOME" ? home : join(home, name[0] + name.slice(1).toLowerCase()),
  );
}

function contentOf(file: string): Buffer {
  const facts = statSync(file, { throwIfNoEntry: false });
  if (!facts?.isFile()) throw new CliError(`there is no file ${file}`);
  if (facts.size > MAX_BYTES) throw new CliError(`${file} has more than ${MAX_BYTES} bytes`);
  return readFileSync(file);
}

function entriesOf(bytes: Buffer, file: string): ZipEntry[] {
  try {
    return readZip(bytes);
  } catch (error) {
    if (error instanceof ZipInvalid) throw new CliError(`${file} is not a valid bundle: ${error.message}`);
    throw error;
  }
}

function manifestOf(entries: readonly ZipEntry[], file: string): JsonObject {
  const entry = entries.find(({ name }) => name === MANIFEST);
  if (!entry) throw new CliError(`${file} contains no ${MANIFEST}`);
  try {
    const manifest = parseStrict(entry.read().toString("utf8"));
    if (isJsonObject(manifest)) return manifest;
  } catch (error) {
    throw new CliError(`${file}: ${MANIFEST} is not valid JSON: ${(error as Error).message}`);
  }
  throw new CliError(`${file}: ${MANIFEST} is not a JSON object`);
}

/** The manifest's own variables become those that every client's configuration may have. */
function withInputs(value: JsonValue, target: string, options: JsonObject): JsonValue {
  if (typeof value === "string") {
    const located = value.replaceAll("${__dirname}", target).replaceAll(/\$\{(?:pathSeparator|\/)\}/g, "/");
    return located.replaceAll(/\$\{user_config\.([^{}]{1,128})\}/g, "${input:$1}");
  }
  if (Array.isArray(value)) {
    return value.flatMap((each) => severalOf(each, options) ?? [withInputs(each as JsonValue, target, options)]);
  }
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => [key, withInputs(each as JsonValue, target, options)]),
  );
}

/** An argument that stands for an option with several values becomes one argument for each default. */
function severalOf(value: unknown, options: JsonObject): JsonValue[] | undefined {
  const [, id = ""] = /^\$\{user_config\.([^{}]{1,128})\}$/.exec(String(value)) ?? [];
  const option = Object.hasOwn(options, id) ? options[id] : undefined;
  return isJsonObject(option) && Array.isArray(option.default) ? (option.default as JsonValue[]) : undefined;
}

function inputOf(id: string, option: JsonObject): JsonObject {
  const { title, sensitive, default: usual, required } = option;
  const isPlain = typeof usual === "string" || typeof usual === "number" || typeof usual === "boolean";
  return {
    id,
    ...(typeof title === "string" ? { description: title } : {}),
    password: sensitive === true,
    // An option that is not required may be empty.
    ...(isPlain ? { default: String(usual) } : required === true ? {} : { default: "" }),
  };
}

function extract(entries: readonly ZipEntry[], target: string): void {
  if (existsSync(target)) return;
  // Complete or not there: a gateway may start the server at once.
  const partial = `${target}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true, mode: 0o700 });
  for (const entry of entries) {
    const file = join(partial, ...entry.name.split("/"));
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, entry.read(), { mode: 0o600, flag: "wx" });
    if (entry.isExecutable) chmodSync(file, 0o700);
  }
  renameSync(partial, target);
}
