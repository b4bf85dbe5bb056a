// The tools that each application served last, in the data directory: commands that check, explain and test policies read
// them, also while no gateway runs.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inSlices } from "../mcp/index.js";
import type { ServerDefinition } from "../mcp/server/index.js";
import type { Telemetry } from "../telemetry/index.js";
import type { ServedTool } from "./served.js";

const DIRECTORY = "tools";
const SUFFIX = ".json";

/** More than this is not written: a server chooses how much it lists. */
const MAX_BYTES = 16 * 1024 * 1024;

/**
 * `ToolSnapshots` writes one file per application, and only when its tools have changed. Of changes that follow each other
 * the last one is written.
 */
export class ToolSnapshots {
  readonly #directory: string;
  readonly #telemetry: Telemetry;
  /** Digest of what was written, by application. */
  readonly #written = new Map<string, string>();
  readonly #pending = new Map<string, () => Promise<readonly ServedTool[]>>();
  #writing: Promise<void> | undefined;

  constructor(dataDirectory: string, telemetry: Telemetry) {
    this.#directory = join(dataDirectory, DIRECTORY);
    this.#telemetry = telemetry;
  }

  put(app: string, server: ServerDefinition, readOnly: ReadonlySet<string>): void {
    this.#pending.set(app, () => servedTools(server, readOnly));
    this.#start();
  }

  /** Resolves when everything that was put is written. */
  async close(): Promise<void> {
    while (this.#writing) await this.#writing;
  }

  #start(): void {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      if (this.#pending.size > 0) this.#start();
    });
  }

  async #writeAll(): Promise<void> {
    for (const [app, tools] of this.#pending) {
      this.#pending.delete(app);
      try {
        await this.#write(app, await tools());
      } catch (error) {
        // Served calls do not need it: the commands that read it report what is missing.
        this.#telemetry.log.debug("tool snapshot not written", { app, problem: (error as Error).message });
      }
    }
  }

  async #write(app: string, tools: readonly ServedTool[]): Promise<void> {
    const parts: string[] = [];
    const hash = createHash("sha256");
    let bytes = 0;
    // In slices: an application may have thousands of tools, and others are served meanwhile.
    await inSlices(tools, (tool) => {
      if (bytes > MAX_BYTES) return;
      const text = JSON.stringify(tool);
      bytes += Buffer.byteLength(text);
      hash.update(text);
      parts.push(text);
    });
    if (bytes > MAX_BYTES) throw new Error(`the definitions have more than ${MAX_BYTES} bytes`);
    const digest = hash.digest("base64url");
    if (this.#written.get(app) === digest) return;
    const file = fileOf(this.#directory, app);
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const part = `${file}.${process.pid}`;
    await writeFile(part, `[${parts.join(",\n")}]\n`, { mode: 0o600 });
    await rename(part, file);
    this.#written.set(app, digest);
  }
}

function fileOf(directory: string, app: string): string {
  return join(directory, `${encodeURIComponent(app)}${SUFFIX}`);
}

/** The applications whose tools are known in this data directory. */
export function snapshotApps(dataDirectory: string): string[] {
  const directory = join(dataDirectory, DIRECTORY);
  if (!existsSync(directory)) return [];
  const files = readdirSync(directory).filter((name) => name.endsWith(SUFFIX));
  return files.map((name) => decodeURIComponent(name.slice(0, -SUFFIX.length))).sort();
}

/** Undefined where nothing was served for this application yet. */
export function readSnapshot(dataDirectory: string, app: string): ServedTool[] | undefined {
  const file = fileOf(join(dataDirectory, DIRECTORY), app);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as ServedTool[]) : undefined;
}

/**
 * The tools that an application serves and its policy leaves out of a list. Read from the data directory: a gateway does
 * not disclose to callers what it hides from them. Undefined when the list is not from an application of this directory.
 */
export function hiddenTools(
  dataDirectory: string,
  listed: readonly { readonly name: string }[],
): { readonly app: string; readonly names: readonly string[] } | undefined {
  const shown = new Set(listed.map(({ name }) => comparable(name)));
  const matches = snapshotApps(dataDirectory).flatMap((app) => {
    const served = readSnapshot(dataDirectory, app) ?? [];
    const known = new Set(served.map(({ name }) => comparable(name)));
    if (![...shown].every((name) => known.has(name))) return [];
    return [{ app, names: served.map(({ name }) => name).filter((name) => !shown.has(comparable(name))) }];
  });
  const [only] = matches;
  return only && matches.length === 1 && only.names.length > 0 ? only : undefined;
}

/** The same for a full name and for the short one that lists may show for it. */
function comparable(name: string): string {
  return name.replace(/[^A-Za-z0-9_-]+/g, "_").replace(/_[0-9a-f]{8}$/, "");
}

/** The tools of a server as commands know them. The gateway is loaded here: commands that only read snapshots do without. */
export async function servedTools(
  server: ServerDefinition,
  readOnly: ReadonlySet<string> = new Set(),
): Promise<ServedTool[]> {
  const { toolSummaries } = await import("../gateway/index.js");
  return toolSummaries(server, readOnly).map((summary) => {
    const tool = server.tools.get(summary.name);
    const description = tool?.definition.description;
    return {
      ...summary,
      ...(description === undefined ? {} : { description }),
      noGuardrailRequired: tool?.noGuardrailRequired ?? false,
    };
  });
}
