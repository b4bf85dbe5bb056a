import { describe, expect, test } from "vitest";
import { absolutePath, canHaveLookAlike, checkNewName, expandTilde, findLookAlike } from "./path-text.js";

const facts = { platform: "linux", home: "/home/me", base: "/srv/root" } as const;

function rule(text: string): string {
  const found = absolutePath(text, "path", facts, facts.base);
  return typeof found === "string" ? found : found.rule;
}

describe("the text of a path", () => {
  test("~ is the home, ~user is refused", () => {
    expect(rule("~")).toBe("/home/me");
    expect(rule("~/x/../y")).toBe("/home/me/x/../y");
    expect(rule("~root/.bashrc")).toBe("tildeUser");
    expect(expandTilde("/a/~b", "/home/me")).toBe("/a/~b");
  });

  test("a relative path starts at the first root and is not trimmed", () => {
    expect(rule("a/b")).toBe("/srv/root/a/b");
    expect(rule("  /etc/passwd")).toBe("/srv/root/  /etc/passwd");
  });

  test("the text of a path without a root there is nothing to start from", () => {
    const found = absolutePath("a", "path", facts, undefined);
    expect(found).toMatchObject({ code: "INVALID_ARGS", rule: "relativePath" });
  });

  test.each([
    ["a NUL byte", "/a\0/b"],
    ["a newline", "/a\nb"],
    ["DEL", "/a\x7f"],
    ["half a surrogate pair", "/a\ud800x"],
  ])("%s is refused", (_, text) => expect(rule(text)).toBe("controlCharacter"));

  test("names of 255 bytes pass, longer ones do not, whatever their length in characters", () => {
    expect(rule(`/${"a".repeat(255)}`)).toBe(`/${"a".repeat(255)}`);
    expect(rule(`/${"a".repeat(256)}`)).toBe("pathTooLong");
    expect(rule(`/${"é".repeat(128)}`)).toBe("pathTooLong");
    expect(rule(`/${"a/".repeat(2100)}`)).toBe("pathTooLong");
  });

  test("a fullwidth dot is a character like any other, not a way up", () => {
    expect(rule("/srv/root/\uff0e\uff0e/x")).toBe("/srv/root/\uff0e\uff0e/x");
  });
});

describe("names of new files", () => {
  test.each([["readme.md"], [".env"], ["..notes"], ["a b.txt"], ["日本.txt"], ["👩‍👩‍👧.txt"]])("%s is fine", (name) =>
    expect(checkNewName(name)).toBeUndefined(),
  );
  test.each([
    ["..", "notAFileName"],
    [".", "notAFileName"],
    ["", "notAFileName"],
    ["a.", "trailingDotOrSpace"],
    ["a ", "trailingDotOrSpace"],
    [" a", "trailingDotOrSpace"],
    ["invoice\u202efdp.exe", "lookAlikeName"],
    ["a\u200bb", "lookAlikeName"],
    ["\ufeffa", "lookAlikeName"],
  ])("%j is refused", (name, expected) => expect(checkNewName(name)?.rule).toBe(expected));

  test("the same text in another normal form is a look-alike", () => {
    const composed = "caf\u00e9";
    const decomposed = "cafe\u0301";
    expect(findLookAlike(decomposed, ["x", composed])).toBe(composed);
    expect(findLookAlike(composed, [composed])).toBeUndefined();
    expect(canHaveLookAlike("plain.txt")).toBe(false);
    expect(canHaveLookAlike(decomposed)).toBe(true);
  });
});
