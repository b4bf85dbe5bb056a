import { randomBytes } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { createSealer, loadSealKeys, type SealedAs } from "./seal.js";

const directory = mkdtempSync(join(tmpdir(), "portcullis-seal-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const AS: SealedAs = { kind: "secret", app: "blog", name: "token" };
const code = (work: () => unknown): string => {
  try {
    work();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return "none";
};

describe("a sealed secret", () => {
  const key = randomBytes(32);
  const sealer = createSealer([key]);

  it("opens to what it was, and looks different every time", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 200 }), (plain) => {
        const sealed = sealer.seal(AS, plain);
        expect(sealer.open(AS, sealed)).toBe(plain);
        expect(Buffer.from(sealed).equals(Buffer.from(sealer.seal(AS, plain)))).toBe(false);
        if (plain.length > 8) expect(Buffer.from(sealed).includes(plain)).toBe(false);
      }),
      { numRuns: 100 },
    );
  });

  it.each([
    ["another application", { ...AS, app: "shop" }],
    ["another name", { ...AS, name: "tokem" }],
    ["another kind", { ...AS, kind: "token" }],
    ["the same characters split at another place", { ...AS, app: "blogt", name: "oken" }],
  ] as [string, SealedAs][])("does not open as that of %s", (_who, as) => {
    const sealed = sealer.seal(AS, "hunter2");
    expect(code(() => sealer.open(as, sealed))).toBe("STORAGE_SEAL");
  });

  it("does not open when any bit of it was changed, or any byte is missing [H5]", () => {
    const sealed = sealer.seal(AS, "hunter2");
    for (let bit = 0; bit < sealed.length * 8; bit++) {
      const changed = Buffer.from(sealed);
      changed[bit >> 3] = (changed[bit >> 3] as number) ^ (1 << (bit & 7));
      expect(code(() => sealer.open(AS, changed))).toBe("STORAGE_SEAL");
    }
    for (let length = 0; length < sealed.length; length++) {
      expect(code(() => sealer.open(AS, sealed.subarray(0, length)))).toBe("STORAGE_SEAL");
    }
  });

  it("survives a change of keys, and says when it is time to seal it again", () => {
    const sealed = sealer.seal(AS, "hunter2");
    const next = createSealer([randomBytes(32), key]);
    expect(next.open(AS, sealed)).toBe("hunter2");
    expect([sealer.isOld(sealed), next.isOld(sealed)]).toEqual([false, true]);
    expect(next.isOld(next.seal(AS, "x"))).toBe(false);
    expect(code(() => sealer.open(AS, next.seal(AS, "x")))).toBe("STORAGE_SEAL");
  });

  it("a sealed secret that cannot be opened is spoken of without a word of it, or of the key", () => {
    const other = createSealer([randomBytes(32)]);
    const sealed = other.seal(AS, "hunter2");
    expect(() => sealer.open(AS, sealed)).toThrow(/^`token` is sealed with key [0-9a-f]{16}, which is not here/);
  });
});

describe("sealing keys", () => {
  it("sealing keys come from a file that is made for its owner alone", () => {
    const defaultFile = join(directory, "new", "seal.key");
    const first = loadSealKeys({ defaultFile, env: {} });
    expect(statSync(defaultFile).mode & 0o777).toBe(0o600);
    expect(loadSealKeys({ defaultFile, env: {} })).toEqual(first);
    chmodSync(defaultFile, 0o640);
    expect(() => loadSealKeys({ defaultFile, env: {} })).toThrow("can be read by others");
  });

  it("sealing keys come from the environment, the current one first, and then no file is made", () => {
    const defaultFile = join(directory, "none", "seal.key");
    const [one, two] = [randomBytes(32), randomBytes(32)];
    const env = { PORTCULLIS_SEAL_KEY: `${one.toString("base64")},${two.toString("base64")}` };
    expect(loadSealKeys({ defaultFile, env })).toEqual([one, two]);
    expect(existsSync(defaultFile)).toBe(false);
    expect(loadSealKeys({ defaultFile, env: { K: one.toString("base64") }, source: "env:K" })).toEqual([one]);
  });

  it("sealing keys that are none are refused, and not repeated", () => {
    const env = { PORTCULLIS_SEAL_KEY: "hunter2" };
    expect(() => loadSealKeys({ defaultFile: "x", env })).toThrow(
      /^key 1 in the variable PORTCULLIS_SEAL_KEY is not 32 bytes in base64$/,
    );
    expect(() => loadSealKeys({ defaultFile: "x", env: {}, source: "env:K" })).toThrow("K is not set");
    expect(() => loadSealKeys({ defaultFile: "x", env: {}, source: "vault" })).toThrow(
      "env:NAME, file:PATH or keyring",
    );
  });

  // No desktop session here: a program of the same name speaks the same way and keeps its entry in a file.
  it.skipIf(process.platform !== "linux")(
    "sealing keys come from the keyring by its tool, on stdin and not as an argument",
    () => {
      const bin = join(directory, "bin");
      mkdirSync(bin);
      const kept = join(directory, "kept");
      const script = `#!/bin/sh\necho "$@" >> ${kept}.args\ncase "$1" in\nlookup) cat ${kept} 2>/dev/null || exit 1;;\nstore) cat > ${kept};;\nesac\n`;
      writeFileSync(join(bin, "secret-tool"), script, { mode: 0o755 });
      const env = { PATH: `${bin}:${process.env.PATH}` };
      const made = loadSealKeys({ defaultFile: "x", env, source: "keyring:main" });
      expect(loadSealKeys({ defaultFile: "x", env, source: "keyring:main" })).toEqual(made);
      expect(readFileSync(`${kept}.args`, "utf8")).not.toContain(Buffer.from(made[0] as Uint8Array).toString("base64"));
      const without = { PATH: join(directory, "nowhere") };
      expect(() => loadSealKeys({ defaultFile: "x", env: without, source: "keyring:main" })).toThrow(
        "use file: or env:",
      );
    },
  );
});
