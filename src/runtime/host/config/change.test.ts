import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { changeEntry } from "./yaml-edit.js";

describe("changeEntry", () => {
  test("replaces values of an entry and keeps comments, order and spelling", () => {
    const text = `# mine
writeRules:
  - path: a   # first
    recursive: true   # all of it
    maxFileBytes: 1_000
  # the other one
  - path: b
    recursive: true
version: 1
`;
    expect(changeEntry(text, "writeRules", 0, { recursive: false, createIfMissing: true })).toBe(`# mine
writeRules:
  - path: a   # first
    recursive: false   # all of it
    maxFileBytes: 1_000
    createIfMissing: true
  # the other one
  - path: b
    recursive: true
version: 1
`);
    expect(changeEntry(text, "writeRules", 1, { recursive: true })).toBe(text);
  });

  test("adds a field to an entry on one line and to the last line of a file", () => {
    expect(
      changeEntry("writeRules: [{ path: a, recursive: true }] # x\n", "writeRules", 0, { recursive: false, n: 1 }),
    ).toBe("writeRules: [{ path: a, recursive: false, n: 1 }] # x\n");
    expect(changeEntry("writeRules:\n- path: a", "writeRules", 0, { recursive: false })).toBe(
      "writeRules:\n- path: a\n  recursive: false",
    );
  });

  test("changes an entry that cannot be spliced", () => {
    const text = "writeRules:\n  - path: a\n    recursive:\n";
    expect(parse(changeEntry(text, "writeRules", 0, { recursive: false }))).toEqual({
      writeRules: [{ path: "a", recursive: false }],
    });
  });
});
