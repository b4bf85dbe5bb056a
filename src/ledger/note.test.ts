import { generateKeyPairSync } from "node:crypto";
import { describe, expect, it } from "vitest";
import { isKeyName, openCheckpoint, openNote, parseCheckpoint, parseVkey, signerFor, signNote } from "./note.js";

// Published examples of other implementations: Go's sumdb/note and an Elixir library.
const PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const PETER_NOTE =
  "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n" +
  "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
const FOO = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
const FOO_NOTE =
  "This is an example message.\n\n" +
  "\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

const newSigner = (name: string) => signerFor(name, generateKeyPairSync("ed25519").privateKey);
const ROOT = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";

describe("signed notes", () => {
  it("opens the published examples of other implementations", () => {
    expect(openNote(PETER_NOTE, [parseVkey(PETER)]).text).toBe(PETER_NOTE.slice(0, PETER_NOTE.indexOf("\n\n") + 1));
    expect(openNote(FOO_NOTE, [parseVkey(FOO)]).signedBy.map((key) => key.id)).toEqual(["530d903a"]);
  });

  it("rejects a note when any character of it changes", () => {
    const keys = [parseVkey(FOO)];
    for (let i = 0; i < FOO_NOTE.length; i++) {
      const changed = `${FOO_NOTE.slice(0, i)}${FOO_NOTE[i] === "x" ? "y" : "x"}${FOO_NOTE.slice(i + 1)}`;
      expect(() => openNote(changed, keys), `character ${i}`).toThrow();
    }
  });

  it("ignores signatures by unknown keys and needs one by a known key", () => {
    const ours = newSigner("log.example/a");
    const theirs = newSigner("witness.example/w");
    const note = signNote("hello\n", [theirs, ours]);
    expect(openNote(note, [ours]).signedBy.map((key) => key.name)).toEqual(["log.example/a"]);
    expect(openNote(note, [ours, theirs]).signedBy).toHaveLength(2);
    expect(() => openNote(note, [newSigner("log.example/a")])).toThrow(/none of which is trusted/);
  });

  it("splits text and signatures at the last blank line", () => {
    const signer = newSigner("log.example/a");
    const text = "first\n\nsecond\n";
    expect(openNote(signNote(text, [signer]), [signer]).text).toBe(text);
  });

  it("rejects a verifier key whose id, type or base64 is wrong", () => {
    expect(() => parseVkey(FOO.replace("530d903a", "530d903b"))).toThrow(/its bytes give 530d903a/);
    expect(() => parseVkey(FOO.replace("+Aeky", "+Aeky*"))).toThrow(/name\+id\+base64/);
    expect(() => parseVkey("no plus")).toThrow(/name\+id\+base64/);
    expect(() => parseVkey(`a+00000000+${Buffer.alloc(33, 2).toString("base64")}`)).toThrow(/not an Ed25519 key/);
  });

  it("takes origins without spaces, plus or control characters only", () => {
    for (const good of ["example.com/log42", "local", "größe.example/ä"]) expect(isKeyName(good)).toBe(true);
    for (const bad of ["", "a b", "a+b", "a\u00a0b", "a\nb", "a\u2028b"]) expect(isKeyName(bad)).toBe(false);
  });
});

describe("checkpoints", () => {
  it("round-trip through a signed note", () => {
    const signer = newSigner("example.com/behind-the-sofa");
    const note = signNote(`example.com/behind-the-sofa\n20852163\n${ROOT}\n`, [signer]);
    expect(openCheckpoint(note, [signer])).toMatchObject({ origin: signer.name, size: 20852163, root: ROOT });
  });

  it("checkpoints keep extension lines out of the way and reject malformed bodies", () => {
    expect(parseCheckpoint(`o\n0\n${ROOT}\nextension\n`).size).toBe(0);
    for (const bad of [
      `o\n01\n${ROOT}\n`,
      `o\n-1\n${ROOT}\n`,
      `o\n99999999999999999999\n${ROOT}\n`,
      `\n1\n${ROOT}\n`,
      `o\n1\nshort\n`,
      `o\n1\n${ROOT}`,
      `o\n1\n${ROOT}\n\nx\n`,
    ]) {
      expect(() => parseCheckpoint(bad), JSON.stringify(bad)).toThrow();
    }
  });
});
