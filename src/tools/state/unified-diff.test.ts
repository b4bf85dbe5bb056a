import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { gitIsMissing } from "./fixtures/git.js";
import { applyUnifiedDiff } from "./unified-diff.js";

const RUNS = Number(process.env.DIFF_RUNS ?? 40);

function reasonOf(current: string | undefined, diff: string, path = "f"): string {
  try {
    return `applied ${JSON.stringify(applyUnifiedDiff(path, current, diff))}`;
  } catch (error) {
    return (error as Error).message;
  }
}

describe("a unified diff", () => {
  it("changes, adds and takes away lines", () => {
    const diff = "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+2b\n three\n";
    expect(applyUnifiedDiff("f", "one\ntwo\nthree\nfour\n", diff)).toBe("one\nTWO\n2b\nthree\nfour\n");
  });

  it("a unified diff makes a new file from /dev/null", () => {
    expect(applyUnifiedDiff("f", undefined, "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n")).toBe("a\nb\n");
  });

  it("knows a missing line feed at the end", () => {
    const diff = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n";
    expect(applyUnifiedDiff("f", "a", diff)).toBe("b");
    expect(reasonOf("a\n", diff)).toContain("hunk 1 does not match");
  });

  it.each([
    ["another line", "x\ny\nz\n", "@@ -1,2 +1,2 @@\n x\n-Y\n+q\n", "the first line that differs is line 2"],
    ["a line number that is off", "p\nx\ny\nz\n", "@@ -1,2 +1,2 @@\n x\n-y\n+q\n", "its old lines are at line 2"],
    ["other space at the end of a line", "x \n", "@@ -1 +1 @@\n-x\n+q\n", "does not match"],
    ["a second hunk that does not fit", "a\nb\nc\n", "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-x\n+C\n", "hunk 2"],
    ["overlapping hunks", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n@@ -2 +2 @@\n-b\n+C\n", "begins before the end"],
    ["wrong counts", "a\nb\n", "@@ -1,3 +1,2 @@\n a\n-b\n+B\n", "says 3 old and 2 new lines but has 2 and 2"],
    ["no hunk", "a\n", "hello", "has no hunk"],
    ["a file that is not there", undefined, "@@ -0,0 +1 @@\n+a\n", "does not exist"],
    ["a new file that is there", "a\n", "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n", "but the file exists"],
    ["another file", "a\n", "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "about another file"],
    ["a path upwards", "a\n", "--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-a\n+b\n", "about another file"],
    ["a deletion", "a\n", "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "use core.state.deleteDefinitionFile"],
    ["a rename", "a\n", "diff --git a/f b/g\nrename from f\nrename to g\n@@ -1 +1 @@\n-a\n+b\n", "renames"],
    ["a mode", "a\n", "diff --git a/f b/f\nold mode 100644\nnew mode 120000\n@@ -1 +1 @@\n-a\n+b\n", "mode"],
    [
      "two files",
      "a\n",
      "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n",
      "neither a hunk",
    ],
    ["text after the last hunk", "a\n", "@@ -1 +1 @@\n-a\n+b\nand so on\n", "neither a hunk"],
    ["line 0", "a\n", "@@ -0,1 +1 @@\n-a\n+b\n", "begins at line 0"],
    ["a line far behind the end", "a\n", "@@ -900,0 +901 @@\n+b\n", "does not match"],
    ["a line after one without a line feed", "a", "@@ -1,0 +2 @@\n+b\n", "no longer be the last"],
  ])("a unified diff that does not fit is refused whole: %s", (_, current, diff, reason) => {
    expect(reasonOf(current, diff)).toContain(reason);
    expect(reasonOf(current, diff)).toContain("nothing was changed");
  });
});

describe("diffs that git makes", () => {
  const missing = gitIsMissing();
  const directory = mkdtempSync(join(tmpdir(), "diff-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  const line = fc.constantFrom("a", "b", "", "c d", "-x", "+y", "@@ -1 +1 @@", "\\ No", "é", "--- a/f", "\r");
  const text = fc
    .tuple(fc.array(line, { maxLength: 30 }), fc.boolean())
    .map(([lines, ends]) => lines.join("\n") + (ends && lines.length > 0 ? "\n" : ""));

  it("turn the one text into the other, and fit no other [H7]", ({ skip }) => {
    if (missing) return skip(missing);
    fc.assert(
      fc.property(text, text, text, fc.integer({ min: 0, max: 4 }), (before, after, third, context) => {
        fc.pre(before !== after && before !== "");
        const diff = gitDiff(directory, before, after, context);
        expect(applyUnifiedDiff("f", before, diff)).toBe(after);
        // With its whole context a diff fits nothing that does not begin as the text it was made from.
        const whole = gitDiff(directory, before, after, 100);
        if (!third.startsWith(before)) expect(reasonOf(third, whole)).toContain("nothing was changed");
      }),
      { numRuns: RUNS },
    );
  });
});

function gitDiff(directory: string, before: string, after: string, context: number): string {
  writeFileSync(join(directory, "before"), before);
  writeFileSync(join(directory, "after"), after);
  const args = ["diff", "--no-index", "--text", "--no-color", `-U${context}`, "--", "before", "after"];
  try {
    execFileSync("git", args, { cwd: directory, stdio: "pipe" });
    return "";
  } catch (error) {
    const diff = String((error as { stdout: Buffer }).stdout);
    // The two files have names of their own; the tool's caller writes the file's.
    return diff.slice(diff.indexOf("\n@@ ") + 1);
  }
}
