import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { appendEntry } from "./yaml-edit.js";

describe("appendEntry", () => {
  test("adds an entry below the last one of a list and keeps its comment", () => {
    const text = `# mine
version: 1   # the only one

allowedRoots:
    - "~/code"   # work
    # more to come

writeRules: []
`;
    expect(appendEntry(text, "allowedRoots", "/srv/data")).toBe(`# mine
version: 1   # the only one

allowedRoots:
    - "~/code"   # work
    - /srv/data
    # more to come

writeRules: []
`);
  });

  test("adds an entry to a list on one line", () => {
    expect(appendEntry('allowedRoots: ["~/code"] # two\nversion: 1\n', "allowedRoots", "/srv/d")).toBe(
      'allowedRoots: ["~/code", "/srv/d"] # two\nversion: 1\n',
    );
    expect(appendEntry("allowedRoots: [ a, ]\n", "allowedRoots", "b")).toBe('allowedRoots: [ a, "b" ]\n');
    expect(appendEntry("writeRules: [{ path: a }]\n", "writeRules", { path: "b", recursive: true })).toBe(
      'writeRules: [{ path: a }, {"path":"b","recursive":true}]\n',
    );
  });

  test("adds the first entry of an empty or missing list", () => {
    expect(appendEntry("version: 1\nallowedRoots: [] # none\nsandbox: off\n", "allowedRoots", "a")).toBe(
      "version: 1\nallowedRoots: # none\n  - a\nsandbox: off\n",
    );
    expect(appendEntry("version: 1", "commands", { id: "ls" })).toBe("version: 1\n\ncommands:\n  - id: ls\n");
    expect(appendEntry("commands: # later\nversion: 1\n", "commands", { id: "ls" })).toBe(
      "commands: # later\n  - id: ls\nversion: 1\n",
    );
    expect(appendEntry("", "allowedRoots", "a")).toBe("allowedRoots:\n  - a\n");
    expect(appendEntry("# nothing yet\n", "allowedRoots", "a")).toBe("# nothing yet\n\nallowedRoots:\n  - a\n");
  });

  test("keeps numbers with underscores, quotes and the lines of the last entry", () => {
    const text = `commands:
- id: 'ls'
  timeoutMs: 5_000
  args:
    allow: ["-l"]
limits: {maxReadBytes: 5_000_000}
`;
    expect(appendEntry(text, "commands", { id: "cat", profile: "cat" })).toBe(`commands:
- id: 'ls'
  timeoutMs: 5_000
  args:
    allow: ["-l"]
- id: cat
  profile: cat
limits: {maxReadBytes: 5_000_000}
`);
  });

  test("adds an entry with the same data in files of every layout", () => {
    const path = fc.stringMatching(/^[ -~]{1,20}$/);
    const roots = fc.array(path, { maxLength: 4 });
    const style = fc.constantFrom<object>(
      {},
      { defaultStringType: "QUOTE_SINGLE" },
      { collectionStyle: "flow" },
      { indentSeq: false },
      { indent: 4 },
    );
    fc.assert(
      fc.property(roots, path, style, fc.boolean(), (before, added, how, last) => {
        const data = last
          ? { version: 1, allowedRoots: before }
          : {
              version: 1,
              allowedRoots: before,
              sandbox: "required",
              commands: [{ id: "x", args: { allow: [...before] } }],
            };
        const text = stringify(data, how);
        expect(parse(appendEntry(text, "allowedRoots", added))).toEqual({ ...data, allowedRoots: [...before, added] });
      }),
    );
  });
});
