// A user of one mode: a home directory of their own, commands that run there, and processes that serve.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { main } from "./first-hour.js";
import { type Ran, root } from "./serving.js";

const COMMAND_MS = 120_000;
const START_MS = 120_000;

export interface Gateway {
  readonly url: string;
  readonly admin: string;
  readonly child: ChildProcess;
  stop(): Promise<number | null>;
}

/** An entry for Portcullis in the configuration of a client. */
export interface ClientEntry {
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly command?: string;
  readonly args?: readonly string[];
}

export class World {
  readonly home = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-story-")));
  readonly work = join(this.home, "work");
  /** The data directory of this user, which commands find without being told. */
  readonly data = join(this.home, ".local/state/portcullis");
  readonly env: Record<string, string> = { PATH: process.env.PATH ?? "", HOME: this.home, NO_COLOR: "1" };
  readonly #ends: (() => unknown)[] = [];

  constructor() {
    mkdirSync(this.work);
  }

  /** Not spawnSync: servers of a test may run in this process. */
  async run(...args: string[]): Promise<Ran> {
    return this.#collect(process.execPath, [main, ...args]);
  }

  async json<T>(...args: string[]): Promise<T> {
    const { stdout, stderr } = await this.run("--json", ...args);
    if (stdout === "") throw new Error(`\`${args.join(" ")}\` printed nothing: ${stderr}`);
    return JSON.parse(stdout) as T;
  }

  /** Runs a line as it was printed, with the built program under its name. */
  shell(line: string): Promise<Ran> {
    return this.#collect("sh", ["-c", `portcullis() { "$NODE" "$MAIN" "$@"; }; ${line}`], {
      NODE: process.execPath,
      MAIN: main,
    });
  }

  #collect(command: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ran> {
    const child = spawn(command, args, {
      cwd: this.work,
      env: { ...this.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: COMMAND_MS,
    });
    const [stdout, stderr] = [collected(child.stdout), collected(child.stderr)];
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code) => resolve({ code, stdout: stdout(), stderr: stderr() }));
    });
  }

  /** `portcullis serve` on free ports, or `npm start`'s own script. */
  async serve(args: readonly string[] = [], program: readonly string[] = [main, "serve"]): Promise<Gateway> {
    const ports = ["--port", "0", "--admin-port", "0", "--challenge-wait", "0.2"];
    const child = spawn(process.execPath, [...program, ...ports, ...args], {
      cwd: program[0] === main ? this.work : root,
      env: this.env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const [stdout, stderr] = [collected(child.stdout), collected(child.stderr)];
    const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
    const stop = async (): Promise<number | null> => {
      child.kill("SIGTERM");
      return exited;
    };
    this.#ends.push(stop);
    const until = Date.now() + START_MS;
    for (;;) {
      const url = /MCP\s+(http:\S+)/.exec(stdout())?.[1];
      const admin = /admin\s+(http:\S+)/.exec(stdout())?.[1];
      if (url !== undefined && admin !== undefined) return { url, admin, child, stop };
      if (child.exitCode !== null || Date.now() > until) throw new Error(`serve did not start: ${stderr()}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** The official SDK's client, as the entry in a client's configuration says. With `onPage` it opens pages for its user. */
  async client(entry: ClientEntry, onPage?: (url: URL) => Promise<void>): Promise<Client> {
    const capabilities = onPage === undefined ? {} : { elicitation: { url: {} } };
    const client = new Client({ name: "a client", version: "1.0.0" }, { capabilities });
    if (onPage !== undefined) {
      client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
        if (params.mode !== "url") return { action: "cancel" };
        await onPage(new URL(params.url));
        return { action: "accept" };
      });
    }
    await client.connect(this.#transport(entry));
    this.#ends.push(() => client.close());
    return client;
  }

  #transport({ url, headers = {}, command = "", args = [] }: ClientEntry): Transport {
    if (url === undefined) {
      return new StdioClientTransport({ command, args: [...args], env: this.env, cwd: this.work, stderr: "ignore" });
    }
    const filled = Object.entries(headers).map(([name, value]) => [
      name,
      value.replace(/\$\{(?:env:)?(\w+)\}/g, (_, variable: string) => this.env[variable] ?? ""),
    ]);
    // Without a connection that stays, each request can reach another process.
    const requestInit = { headers: { ...Object.fromEntries(filled), connection: "close" } };
    return new StreamableHTTPClientTransport(new URL(url), { requestInit });
  }

  onClose(end: () => unknown): void {
    this.#ends.push(end);
  }

  async close(): Promise<void> {
    for (const end of this.#ends.reverse()) await end();
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

function collected(stream: NodeJS.ReadableStream): () => string {
  let text = "";
  stream.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  return () => text;
}

/** The text of a file, or none where it does not exist. */
export function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}
