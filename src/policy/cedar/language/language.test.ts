import { expect, test } from "vitest";
import { withCedar } from "../cedar.js";
import { Random } from "../fixtures/generate.js";
import type { PolicyTree } from "./ast.js";
import { sameTree, treeFromJson } from "./json.js";
import { parsePolicyTokens } from "./parse.js";
import {
  Lines,
  offsetOfByte,
  quotePattern,
  quoteString,
  ScanError,
  scan,
  splitPolicies,
  unquote,
  unquotePattern,
} from "./scan.js";

function bothTrees(text: string): { ours: PolicyTree; theirs: PolicyTree } {
  const answer = withCedar((cedar) => cedar.policyToJson(text));
  if (answer.type === "failure") throw new Error(JSON.stringify(answer.errors));
  return { ours: parsePolicyTokens(scan(text)), theirs: treeFromJson(answer.json) };
}

test("any text survives being quoted, also as Cedar reads it", () => {
  const random = new Random(7);
  const characters = [
    "a",
    '"',
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    "\u007f",
    "\u0085",
    "é",
    "😀",
    "*",
    "\u202e",
    "\ufeff",
    "'",
    "{",
    "\u2028",
  ];
  for (let each = 0; each < 200; each++) {
    const text = random.many(12, () => random.pick(characters)).join("");
    expect(unquote(quoteString(text))).toBe(text);
    expect(unquotePattern(quotePattern([text, ""]))).toEqual([text, ""]);
    const policy = `permit (principal, action, resource) when { context.a == ${quoteString(text)} && context.b like ${quotePattern([text, ""])} };`;
    const { theirs } = bothTrees(policy);
    const both = theirs.clauses[0]?.body;
    const [left, right] = both?.kind === "binary" ? [both.left, both.right] : [];
    expect(left?.kind === "binary" && left.right).toEqual({ kind: "literal", value: text });
    expect(right?.kind === "like" && right.pattern).toEqual([text, ""]);
  }
});

test.each([
  'permit (principal, action, resource) when { "\\u{1F600}\\n\\0\\x41\\\'" == "\\u{0_0_4_1}" };',
  'permit (principal, action, resource) when { context["a"].b has c.d.e && context has "x y" };',
  'permit (principal, action, resource,) when { [1, 2,].contains(-3) && {a: 1, "b": 2,} has a };',
  'forbid (principal is A::B in C::"d", action in [Action::"a", X::Action::"b"], resource in R::"r") unless { 1 - 2 - 3 * 4 * 5 == -(6) };',
  "permit (principal, action, resource) when { !!true && !!!(!false) } unless { if true then false else if true then true else false };",
  '@a @b("c") permit (principal, action, resource) when { ip("1.2.3.4").isInRange(ip("1.0.0.0/8"), ip("2.0.0.0/8")) };',
  'permit (principal, action, resource) when { principal is Agent in App::"a" || context.x like "\\*a*\\u{2a}" };',
  'permit (principal, action, resource) when { context.a.contains(1).b == {"if": 1, "true": 2}["if"] };',
])("%s is read as Cedar reads it", (text) => {
  const { ours, theirs } = bothTrees(text);
  expect(sameTree(ours, theirs), JSON.stringify([ours, theirs])).toBe(true);
});

test("a difference in the smallest part is a difference", () => {
  const tree = (condition: string): PolicyTree =>
    parsePolicyTokens(scan(`permit (principal, action, resource) when { ${condition} };`));
  expect(sameTree(tree("1 == 2"), tree("1  ==  (2)"))).toBe(true);
  expect(sameTree(tree("1 == 2"), tree("1 == 3"))).toBe(false);
  expect(sameTree(tree("context.a"), tree("context.b"))).toBe(false);
  expect(sameTree(tree("[1]"), tree("[1, 1]"))).toBe(false);
});

test("policies are cut at semicolons that are not in strings or comments", () => {
  const text =
    '// a; b\npermit (principal, action, resource) when { ";" == "\\";" }; // c;\nforbid (principal, action, resource);';
  const parts = splitPolicies(scan(text)).map((tokens) => text.slice(tokens[0]?.start, tokens.at(-1)?.end));
  expect(parts).toEqual([
    'permit (principal, action, resource) when { ";" == "\\";" };',
    "forbid (principal, action, resource);",
  ]);
});

test("a string that never closes and a character that means nothing are found where they are", () => {
  for (const [text, offset] of [
    ['permit "x', 7],
    ["permit #", 7],
    ["a é", 2],
  ] as const) {
    expect(() => scan(text)).toThrow(ScanError);
    try {
      scan(text);
    } catch (error) {
      expect((error as ScanError).offset).toBe(offset);
    }
  }
});

test("positions count lines and characters from one, whatever Cedar counts", () => {
  const text = "é\r\n😀x\n";
  const lines = new Lines(text);
  expect(lines.at(0)).toEqual({ line: 1, column: 1 });
  expect(lines.at(offsetOfByte(text, 2))).toEqual({ line: 1, column: 2 });
  expect(lines.at(offsetOfByte(text, 8))).toEqual({ line: 2, column: 3 });
  expect(lines.at(text.length)).toEqual({ line: 3, column: 1 });
});
