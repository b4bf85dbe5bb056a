// The ledger's commands on a ledger that is long enough to matter.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openLedger } from "../../src/ledger/index.js";
import { portcullis, root } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-audit-"));
const RECORDS = 3_000;

beforeAll(async () => {
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin: "example.com/audit" });
  for (let i = 0; i < RECORDS; i++) {
    const written = ledger.append({ kind: "admin", actor: "olga", action: "note", detail: { i } });
    if (i % 500 === 499) await written;
  }
  await ledger.checkpoint();
  await ledger.close();
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const audit = (...args: string[]) => portcullis(["--dir", dir, "audit", ...args]);

describe("audit tail", () => {
  it("audit tail shows the last records, oldest first", () => {
    const { code, stdout } = audit("tail", "-n", "3");
    expect(code).toBe(0);
    expect(
      stdout
        .trim()
        .split("\n")
        .map((line) => /"i":(\d+)/.exec(line)?.[1]),
    ).toEqual(["2997", "2998", "2999"]);
  });

  it.each(["1.5"])("audit tail refuses %s for a number", (number) => {
    expect(audit("tail", `--lines=${number}`)).toMatchObject({
      code: 64,
      stderr: expect.stringContaining("whole number"),
    });
  });
});

describe("audit export", () => {
  const file = join(dir, "export.ndjson");

  it("audit export writes the same to a file as to standard output, and it verifies", () => {
    const { stdout } = audit("export");
    expect(stdout.split("\n").length).toBeGreaterThan(RECORDS);
    expect(audit("export", "-o", file).code).toBe(0);
    expect(readFileSync(file, "utf8")).toBe(stdout);
    expect(existsSync(`${file}.part`)).toBe(false);
    expect(audit("verify", file).code).toBe(0);
  });

  it("an audit export that fails leaves the file that was there", () => {
    writeFileSync(file, "the old one");
    expect(audit("export", "-o", file, "--from", "999999").code).toBe(1);
    expect(readFileSync(file, "utf8")).toBe("the old one");
    expect(existsSync(`${file}.part`)).toBe(false);
  });

  it("audit export ends without an error when its reader ends early", { skip: process.platform === "win32" }, () => {
    const main = join(root, "dist", "cli", "main.js");
    const line = `set -o pipefail; "${process.execPath}" "${main}" --dir "${dir}" audit export | head -n 1 | wc -l`;
    const env = { ...process.env, BASH_ENV: "" };
    const { stdout, stderr } = spawnSync("bash", ["-c", line], { encoding: "utf8", timeout: 60_000, env });
    expect({ lines: stdout.trim(), stderr }).toEqual({ lines: "1", stderr: "" });
  });
});
