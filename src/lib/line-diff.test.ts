import fc from "fast-check";
import { expect, it } from "vitest";
import { lineDiff } from "./line-diff.js";

it("shows a changed line with three lines around it, and leaves out the others", () => {
  const before = "a\nb\nc\nd\ne\nf\ng\nh\ni\n";
  expect(lineDiff(before, before.replace("e", "E"))).toEqual([
    "  …",
    "  b",
    "  c",
    "  d",
    "- e",
    "+ E",
    "  f",
    "  g",
    "  h",
    "  …",
  ]);
  expect(lineDiff("a\nb\n", "a\nx\nb\ny\n")).toEqual(["  a", "+ x", "  b", "+ y"]);
});

it("leads from one text to the other, whatever they are", () => {
  const text = fc.array(fc.constantFrom("a", "b", "c", ""), { maxLength: 6 }).map((lines) => `${lines.join("\n")}\n`);
  fc.assert(
    fc.property(text, text, (before, after) => {
      const lines = lineDiff(before, after).filter((line) => line !== "  …");
      const side = (sign: string): string[] =>
        lines.filter((line) => line.startsWith(" ") || line.startsWith(sign)).map((line) => line.slice(2));
      if (before === after) return lines.length === 0;
      const [was, is] = [before, after].map((each) => `${each.split("\n").slice(0, -1).join("\n")}\n`) as [
        string,
        string,
      ];
      return was.includes(side("-").join("\n")) && is.includes(side("+").join("\n"));
    }),
  );
});
