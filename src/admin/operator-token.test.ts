import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { ensureOperatorToken, OperatorTokenError, readOperatorToken } from "./operator-token.js";

const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

function place(): string {
  const dir = mkdtempSync(join(tmpdir(), "token-"));
  open.push(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, "state", "operator.token");
}

describe("the operator's token", () => {
  it("the operator's token is made once, random, for its owner's eyes alone, and stays the same", () => {
    const path = place();
    const token = ensureOperatorToken(path);
    expect(token).toMatch(/^pcop_[A-Za-z0-9_-]{43}$/);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, "..")).mode & 0o777).toBe(0o700);
    expect(ensureOperatorToken(path)).toBe(token);
    expect(readOperatorToken(path)).toBe(token);
    expect(readdirSync(join(path, ".."))).toEqual(["operator.token"]);
    expect(ensureOperatorToken(place())).not.toBe(token);
  });

  it("the operator's token of the operator's own making is taken as it is", () => {
    const path = place();
    mkdirSync(join(path, ".."));
    writeFileSync(path, `${"s3cret-".repeat(6)}\n`, { mode: 0o600 });
    expect(ensureOperatorToken(path)).toBe("s3cret-".repeat(6));
  });

  it.each([0o640, 0o604, 0o620, 0o666])(
    "the operator's token with mode %o is not used, for others may have read or written it",
    (mode) => {
      const path = place();
      const token = ensureOperatorToken(path);
      chmodSync(path, mode);
      expect(() => ensureOperatorToken(path)).toThrow(/can be read or written by others.*chmod 600/);
      expect(readFileSync(path, "utf8").trim()).toBe(token);
    },
  );

  it.each([
    ["is empty", ""],
    ["is short", "abc"],
    ["has spaces", `${"a".repeat(20)} ${"b".repeat(20)}`],
    ["is far too long", "a".repeat(10_000)],
  ])("the operator's token that %s is not used", (_what, text) => {
    const path = place();
    mkdirSync(join(path, ".."));
    writeFileSync(path, text, { mode: 0o600 });
    expect(() => ensureOperatorToken(path)).toThrow(OperatorTokenError);
  });

  it("behind a symbolic link or in a folder's place is not used", () => {
    const path = place();
    const real = `${path}.real`;
    ensureOperatorToken(real);
    symlinkSync(real, path);
    expect(() => ensureOperatorToken(path)).toThrow(/symbolic link/);
    rmSync(path);
    mkdirSync(path);
    expect(() => ensureOperatorToken(path)).toThrow(/not a regular file/);
  });
});
