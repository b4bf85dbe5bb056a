import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { makeKey, parseSecret, publicKeyText, signFile } from "../../../scripts/release/signing.mjs";
import { missingPrograms } from "../../../test/setup/programs.js";
import { parsePublicKey, verifySignature } from "./release.js";

// Made by minisign 0.11 with a key of its own: data, so that the check holds where minisign is not installed.
const KEY = "RWRFVUtzsaC9RGq3O1oanRsB6fcQBVM5uA2fk61kAi7bCRLhnPOxPDql";
const MESSAGE = Buffer.from("hello release\n");
const HASHED = `untrusted comment: signature from minisign secret key
RURFVUtzsaC9RJ+WWZaCG7K42qLn1CsYrAJd+ugJDglgy3i59e7hbXh6zMg4tsGZuOaDeC87jmYcRRr/f+Ll+iqFBTP+4iqG7go=
trusted comment: timestamp:1	version:1.2.3
W7YJFoTcM1qd7t4GccqI+0TmO9JrqGxgStS1XrrdYRkzU9UuX+1jV4Gt1cT2qTsPlgYl6vcaapv1bEAp21HICQ==
`;
const LEGACY = `untrusted comment: signature from minisign secret key
RWRFVUtzsaC9RICny8c4g9aej1WHZcd+OhO54sUzpoN3PSSVTF9D4owl+ezq26MRUOZEJT0YJtvvm7Q8SE7c2slt32L1bdFsnAA=
trusted comment: legacy comment
VijQ0lTw0Ra2Lhhqimh/NjxYJe0UAGsHRdU0MiKgunvx+Cpk3E1P2kOSWNqa9LV2LvkHx0pxk7jPwVnjbz9vDA==
`;
const key = parsePublicKey(KEY);
const check = (signature: string, message = MESSAGE): string => verifySignature(message, Buffer.from(signature), key);

/** Another algorithm or key id in front of the same signature. */
function relabelled(signature: string, bytes: Buffer, at: number): string {
  const lines = signature.split("\n");
  const raw = Buffer.from(lines[1] as string, "base64");
  bytes.copy(raw, at);
  lines[1] = raw.toString("base64");
  return lines.join("\n");
}

describe("a minisign signature", () => {
  it("verifies minisign signatures of both kinds and returns the trusted comment", () => {
    expect(check(HASHED)).toBe("timestamp:1\tversion:1.2.3");
    expect(check(LEGACY)).toBe("legacy comment");
    expect(check(HASHED.replaceAll("\n", "\r\n"))).toBe("timestamp:1\tversion:1.2.3");
    expect(key.id).toBe("44BDA0B1734B5545");
  });

  it.each([
    ["another file", HASHED, Buffer.from("hello release"), "does not fit the file"],
    ["another trusted comment", HASHED.replace("1.2.3", "1.2.4"), MESSAGE, "trusted comment"],
    [
      "the global signature of another",
      HASHED.replace(/W7YJ.*/, LEGACY.split("\n")[3] as string),
      MESSAGE,
      "trusted comment",
    ],
    ["another key", signFile(MESSAGE, makeKey(), "x"), MESSAGE, "only 44BDA0B1734B5545 is trusted"],
    ["a hash signed, said to be the file", relabelled(HASHED, Buffer.from("Ed"), 0), MESSAGE, "does not fit the file"],
    ["an unknown algorithm", relabelled(HASHED, Buffer.from("EE"), 0), MESSAGE, "algorithm"],
    ["no trusted comment", HASHED.split("\n").slice(0, 2).join("\n"), MESSAGE, "four lines"],
    ["a line more", `${HASHED}more\n`, MESSAGE, "four lines"],
    ["base64 with something behind it", HASHED.replace("7go=\n", "7go=A\n"), MESSAGE, "minisign's form"],
    ["nothing", "", MESSAGE, "four lines"],
    ["far too much", `${HASHED}${" ".repeat(10_000)}`, MESSAGE, "four lines"],
  ])("a minisign signature with %s is refused", (_, signature, message, problem) => {
    expect(() => check(signature, message)).toThrow(problem);
  });

  it("refuses a signature by another key with the same id", () => {
    const stranger = { ...makeKey(), id: Buffer.from(KEY, "base64").subarray(2, 10) };
    expect(() => check(signFile(MESSAGE, stranger, "x"))).toThrow("does not fit the file");
  });

  it("refuses a signature with one changed bit", () => {
    const bytes = Buffer.from(HASHED);
    const start = HASHED.indexOf("\n") + 1;
    for (let at = start; at < bytes.length - 1; at += 1) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] as number) ^ 1;
      expect(() => verifySignature(MESSAGE, changed, key), `byte ${at}`).toThrow();
    }
  });
});

it.each(["", "RW", KEY.slice(0, -4), `${KEY}\n${KEY}\n${KEY}`, KEY.replace("RWR", "RXR"), "untrusted comment: only"])(
  "refuses %j as a public key",
  (text) => {
    expect(() => parsePublicKey(text)).toThrow("not a minisign public key");
  },
);

describe("minisign itself", () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-minisign-"));
  const file = join(dir, "file");
  const missing = missingPrograms("minisign");
  beforeAll(() => writeFileSync(file, MESSAGE));
  afterAll(() => rmSync(dir, { recursive: true, force: true }));
  const minisign = (...args: string[]): string => execFileSync("minisign", args, { encoding: "utf8", cwd: dir });

  it("agrees with the minisign program on signatures in both directions", ({ skip }) => {
    if (missing !== undefined) skip(missing);
    minisign("-G", "-W", "-p", "its.pub", "-s", "its.key");
    const its = parsePublicKey(readFileSync(join(dir, "its.pub"), "utf8"));
    for (const kind of ["-H", "-l"]) {
      minisign("-S", kind, "-s", "its.key", "-m", "file", "-x", "sig", "-t", "a\tcomment: ü");
      expect(verifySignature(MESSAGE, readFileSync(join(dir, "sig")), its)).toBe("a\tcomment: ü");
    }
    for (const [secret, legacy] of [
      [parseSecret(readFileSync(join(dir, "its.key"), "utf8")), false],
      [makeKey(), false],
      [makeKey(), true],
    ] as const) {
      writeFileSync(join(dir, "ours.pub"), publicKeyText(secret));
      writeFileSync(join(dir, "sig"), signFile(MESSAGE, secret, "ours, ü", { legacy }));
      expect(minisign("-V", "-p", "ours.pub", "-m", "file", "-x", "sig")).toContain("ours, ü");
    }
  });
});
