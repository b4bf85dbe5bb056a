// The FileManager example in Rust, as a reader would run it. The other languages are in gen.test.ts.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { CARGO_TARGET, whyNoCargo } from "../../src/codegen/fixtures/compile.js";
import { root } from "./serving.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-gen-rust-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe("the FileManager example", () => {
  const missing = whyNoCargo(dir);
  it.skipIf(missing !== undefined)(
    `the FileManager example runs in Rust: handlers, and a client that talks to our server${missing === undefined ? "" : ` (skipped: ${missing})`}`,
    () => {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [join(root, "examples/filemanager/run.mjs"), "rust"],
        {
          encoding: "utf8",
          timeout: 240_000,
          env: { ...process.env, NO_COLOR: "1", CARGO_TARGET_DIR: CARGO_TARGET },
        },
      );
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(stdout.match(/Rust \w+: ok/g)).toEqual(["Rust handlers: ok", "Rust client: ok", "Rust client: ok"]);
    },
    300_000,
  );
});
