// The tools that each application served last, in the data directory: commands that check, explain and test policies read
// them, also while no gateway runs.

import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { toolSummaries } from "../../gateway/index.js";
import type { ServerDefinition } from "../../tool/index.js";
import type { Telemetry } from "../../telemetry/index.js";
import type { ServedTool } from "../voices.js";

const DIRECTORY = "tools";
const SUFFIX = ".json";

export function servedTools(server: ServerDefinition, readOnly: ReadonlySet<string> = new Set()): ServedTool[] {
  return toolSummaries(server, readOnly).map((tool) => ({
    ...tool,
    noGuardrailRequired: server.tools.get(tool.name)?.noGuardrailRequired ?? false,
  }));
}

/** `ToolSnapshots` writes one file per application, and only when its tools have changed. */
export class ToolSnapshots {
  readonly #directory: string;
  readonly #telemetry: Telemetry;
  readonly #written = new Map<string, string>();
  #writing: Promise<void> = Promise.resolve();

  constructor(dataDirectory: string, telemetry: Telemetry) {
    this.#directory = join(dataDirectory, DIRECTORY);
    this.#telemetry = telemetry;
  }

  put(app: string, server: ServerDefinition, readOnly: ReadonlySet<string>): void {
    const text = `${JSON.stringify(servedTools(server, readOnly))}\n`;
    if (this.#written.get(app) === text) return;
    this.#written.set(app, text);
    this.#writing = this.#writing.then(() => this.#write(app, text));
  }

  /** Resolves when everything that was put is written. */
  async close(): Promise<void> {
    await this.#writing;
  }

  async #write(app: string, text: string): Promise<void> {
    const file = fileOf(this.#directory, app);
    try {
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      const part = `${file}.${process.pid}`;
      await writeFile(part, text, { mode: 0o600 });
      await rename(part, file);
    } catch (error) {
      // Served calls do not need it: the commands that read it report what is missing.
      this.#telemetry.log.debug("tool snapshot not written", { app, problem: (error as Error).message });
    }
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
