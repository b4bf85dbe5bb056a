import { spawn } from "node:child_process";
import { type LedgerFs, nodeFs, replaceFile } from "./files.js";

/** Where checkpoints go, so that someone other than the owner of this disk can hold the ledger to them. */
export type Publish =
  /** Replaced each time; put it on another disk or a synced folder. Read again at start: the log must still match. */
  | { readonly file: string }
  /** Run without a shell, the note on its standard input. */
  | { readonly command: readonly [string, ...string[]]; readonly timeoutMs?: number }
  | ((note: string) => void | Promise<void>);

const TIMEOUT_MS = 10_000;
const MAX_ERROR_BYTES = 2_000;
const MODE = 0o644;

export async function publishNote(target: Publish, note: string, disk: LedgerFs = nodeFs): Promise<void> {
  if (typeof target === "function") return withLimit(Promise.resolve(target(note)));
  if ("file" in target) return replaceFile(disk, target.file, note, MODE);
  return runCommand(target.command, note, target.timeoutMs ?? TIMEOUT_MS);
}

function withLimit(work: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`publishing the checkpoint took longer than ${TIMEOUT_MS} ms`)),
      TIMEOUT_MS,
    );
    timer.unref();
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function runCommand(
  [command, ...args]: readonly [string, ...string[]],
  note: string,
  timeoutMs: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ["pipe", "ignore", "pipe"],
      timeout: timeoutMs,
      killSignal: "SIGKILL",
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-MAX_ERROR_BYTES);
    });
    child.on("error", (error) => reject(new Error(`cannot run ${command} to publish a checkpoint: ${error.message}`)));
    child.on("close", (code, signal) => {
      if (code === 0) return resolve();
      const how = signal === null ? `exit code ${code}` : `${signal} (limit ${timeoutMs} ms)`;
      reject(new Error(`${command} did not publish the checkpoint: ${how} ${said.trim()}`.trim()));
    });
    // A command that does not read its input still decides by its exit code.
    child.stdin.on("error", () => {});
    child.stdin.end(note);
  });
}
