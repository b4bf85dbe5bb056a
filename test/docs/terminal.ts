// A reader at a terminal: types the commands of a page one after another, in a folder of the page's own.

import type { ChildProcess } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { run, start, stop } from "./process.js";
import type { Snippet } from "./snippets.js";

export interface Command {
  readonly line: number;
  readonly text: string;
  /** 0 unless its comment says otherwise: `# denied: exit code 2`. */
  readonly exitCode: number;
}

const COMMAND_MS = 120_000;
const START_MS = 120_000;

/** One command a line; a backslash at the end goes on with the next. */
export function commandsOf({ code, line }: Snippet): Command[] {
  const commands: Command[] = [];
  let text = "";
  let from = line;
  for (const [index, part] of code.split("\n").entries()) {
    if (text === "") from = line + index;
    text += part;
    if (text.endsWith("\\")) {
      text = text.slice(0, -1);
      continue;
    }
    const trimmed = text.trim();
    text = "";
    if (trimmed === "" || trimmed.startsWith("#")) continue;
    commands.push({ line: from, text: trimmed, exitCode: Number(/#.*\bexit code (\d+)/.exec(trimmed)?.[1] ?? 0) });
  }
  return commands;
}

/**
 * `portcullis` as a reader has it, with free ports instead of the usual ones: `serve` chooses them, what speaks to it is
 * told where it is.
 */
function shim(main: string): string {
  return `#!/usr/bin/env bash
for word in "$@"; do
  case "$word" in
    --json) ;;
    serve) exec "${process.execPath}" "${main}" "$@" --port 0 --admin-port 0 --json ;;
    ls | call) [[ " $* " == *" --url "* ]] || set -- "$@" --url "$DOCS_URL"; break ;;
    approvals | approve | deny) [[ " $* " == *" --admin "* ]] || set -- "$@" --admin "$DOCS_ADMIN"; break ;;
    *) break ;;
  esac
done
exec "${process.execPath}" "${main}" "$@"
`;
}

export class Terminal {
  readonly folder: string;
  readonly #root: string;
  readonly #page: string;
  #gateway: { child: ChildProcess; url: string; admin: string } | undefined;

  constructor(root: string, folder: string, page: string) {
    this.#root = root;
    this.#page = page;
    this.folder = join(folder, "work");
    mkdirSync(join(folder, "bin"), { recursive: true });
    mkdirSync(this.folder);
    const portcullis = join(folder, "bin", "portcullis");
    writeFileSync(portcullis, shim(join(root, "dist", "cli", "main.js")));
    chmodSync(portcullis, 0o755);
    symlinkSync(join(root, "examples"), join(this.folder, "examples"));
  }

  write(file: string, text: string): void {
    writeFileSync(join(this.folder, file), text);
  }

  /** Runs one command and returns its output; throws, with the output, when the exit code differs from the page's. */
  async type({ line, text, exitCode }: Command): Promise<string> {
    if (/^npm\b/.test(text)) await this.#npm(line, text);
    if (/^portcullis (--json )?serve\b/.test(text)) await this.#serve(line, text);
    if (/^npm\b|^portcullis (--json )?serve\b/.test(text)) return "";
    const { code, output, timedOut } = await run(["bash", "-c", text], {
      cwd: this.folder,
      env: this.#environment(),
      timeoutMs: COMMAND_MS,
    });
    if (timedOut) throw new Error(`${this.#page}:${line}: \`${text}\` did not end within ${COMMAND_MS} ms\n${output}`);
    if (code !== exitCode) {
      throw new Error(`${this.#page}:${line}: \`${text}\` ended with exit code ${code}, not ${exitCode}\n${output}`);
    }
    return output;
  }

  /** Installing and testing is what got us here: it is enough that there is such a script. `start` ends in `serve`. */
  async #npm(line: number, text: string): Promise<void> {
    const { scripts } = JSON.parse(readFileSync(join(this.#root, "package.json"), "utf8")) as { scripts: object };
    const [, script = ""] = /^npm (?:run )?([\w:-]+)\s*(?:#.*)?$/.exec(text) ?? [];
    if (!Object.hasOwn(scripts, script)) {
      throw new Error(`${this.#page}:${line}: \`${text}\` names no script of package.json`);
    }
    if (script === "start") await this.#serve(line, "portcullis serve");
  }

  /** A gateway serves until the page ends, or until the page starts another. */
  async #serve(line: number, text: string): Promise<void> {
    await this.close();
    const child = start(["bash", "-c", text], { cwd: this.folder, env: this.#environment() });
    const started = await untilStarted(child).catch((error: Error) => {
      throw new Error(`${this.#page}:${line}: \`${text}\` did not come up: ${error.message}`);
    });
    this.#gateway = { child, url: started.urls[0] as string, admin: started.admin };
    await this.#untilServersStarted();
  }

  /** A reader types slower than a server starts that npx fetches first: nothing is typed while one is starting. */
  async #untilServersStarted(): Promise<void> {
    const options = { cwd: this.folder, env: this.#environment(), timeoutMs: COMMAND_MS };
    await run(["bash", "-c", "portcullis ls"], options);
    for (const until = Date.now() + START_MS; Date.now() < until; await sleep(500)) {
      const { output } = await run(["bash", "-c", 'portcullis server ls --admin "$DOCS_ADMIN"'], options);
      if (!/ starting /.test(output)) return;
    }
  }

  #environment(): Record<string, string> {
    const nowhere = "http://127.0.0.1:9";
    return {
      PATH: `${join(this.folder, "..", "bin")}${delimiter}${process.env.PATH}`,
      HOME: join(this.folder, ".."),
      DOCS_URL: this.#gateway?.url ?? nowhere,
      DOCS_ADMIN: this.#gateway?.admin ?? nowhere,
    };
  }

  async close(): Promise<void> {
    const child = this.#gateway?.child;
    this.#gateway = undefined;
    if (!child || child.exitCode !== null) return;
    const closed = new Promise((resolve) => child.once("close", resolve));
    stop(child, "SIGTERM");
    await closed;
  }
}

interface Started {
  urls: string[];
  admin: string;
}

function untilStarted(child: ChildProcess): Promise<Started> {
  return new Promise((resolve, reject) => {
    let text = "";
    let said = "";
    const fail = (why: string): void => {
      clearTimeout(timer);
      stop(child, "SIGKILL");
      reject(new Error(`${why}\n${said}${text}`));
    };
    const timer = setTimeout(() => fail(`nothing for ${START_MS} ms`), START_MS);
    child.once("error", (error) => fail(error.message));
    child.once("close", (code) => fail(`exit code ${code}`));
    child.stderr?.on("data", (chunk) => {
      said += String(chunk);
    });
    child.stdout?.on("data", (chunk) => {
      text += String(chunk);
      let started: Started;
      try {
        started = JSON.parse(text) as Started;
      } catch {
        return;
      }
      clearTimeout(timer);
      child.removeAllListeners("close");
      resolve(started);
    });
  });
}
