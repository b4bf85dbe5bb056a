import { expect, test } from "vitest";
import { authorize } from "./authorize.js";
import { PolicyCatalog } from "./catalog.js";
import { compareWithCedar } from "./fixtures/agreement.js";
import { WORLD_TOOLS } from "./fixtures/generate.js";
import { askOracle } from "./fixtures/oracle.js";
import { LoadedPolicy, readSources } from "./load.js";
import type { PolicyRequest } from "./types.js";

test("closures and Cedar agree on decision, deciding rules and erroring rules", () => {
  const counts = compareWithCedar(2000, 1);
  // A sample in which nothing happens would prove nothing.
  expect(counts.allows).toBeGreaterThan(200);
  expect(counts.denies).toBeGreaterThan(200);
  expect(counts.withErrors).toBeGreaterThan(200);
  expect(counts.withReasons).toBeGreaterThan(500);
  // Our parser saw every policy as Cedar does, and the compiler covered all of them.
  expect(counts.withoutPositions).toBe(0);
  expect(counts.byCedar).toBe(0);
});

const REQUEST: PolicyRequest = {
  app: "a",
  agent: "x",
  scope: ["s", "t"],
  user: "ann",
  groups: ["g", "h"],
  now: Date.UTC(2024, 1, 29, 12, 30),
  action: "fs.read",
  resource: { type: "Tool", id: "fs.read", server: "host", tags: ["files"], readOnly: true },
  arguments: {
    path: "/srv/docs/é😀.txt",
    limit: 7,
    amount: 1,
    force: true,
    labels: ["a", "b", "a"],
    counts: [1, 2, 3],
    options: { mode: "r", depth: 2, rate: 0.5 },
  },
  forwarded: { _meta: { "com.example/tenant": "blue", depth: 2 }, flag: true },
  transport: "http",
};

/** What Cedar says of a condition, and what we say: true, false, or an error. */
function evaluate(condition: string): { ours: string; theirs: string } {
  const catalog = new PolicyCatalog(WORLD_TOOLS);
  const text = `permit (principal, action, resource) when { ${condition} };`;
  const { drafts, problems } = readSources([{ file: "c.cedar", text }]);
  expect(problems, condition).toEqual([]);
  const policy = new LoadedPolicy(drafts, catalog);
  const prepared = policy.prepare(REQUEST);
  if (typeof prepared === "string") throw new Error(prepared);
  const own = authorize(prepared.lists, prepared.frame);
  const oracle = askOracle({ c: text }, prepared.frame, ["fs.read", "fs.write"]);
  return {
    ours: own.errors.length > 0 ? "error" : String(own.permits.length > 0),
    theirs: oracle.errors.length > 0 ? "error" : String(oracle.allow),
  };
}

// Each row is one corner of the language; the expected value is written down and Cedar has to agree with it too.
test.each([
  ["false && 1", "false"],
  ["true || 1", "true"],
  ["true && 1", "error"],
  ["1 && true", "error"],
  ["!1", "error"],
  ["if 1 then true else true", "error"],
  ["if true then true else 1 + true", "true"],
  ['1 == "1"', "false"],
  ['1 != "1"', "true"],
  ["principal == resource", "false"],
  ['principal == Agent::"a/x"', "true"],
  ["[1, 2, 2] == [2, 1]", "true"],
  ["[1, [2]] == [[2], 1, 1]", "true"],
  ["[1] == [1, 2]", "false"],
  ["[1, 2] == [1]", "false"],
  ["[[1, 2]] == [[1]]", "false"],
  ["[] == []", "true"],
  ["{a: 1, b: 2} == {b: 2, a: 1}", "true"],
  ["{a: 1} == {a: 1, b: 2}", "false"],
  ['"a" < "b"', "error"],
  ["1 < 2", "true"],
  ["9223372036854775807 + 1 > 0", "error"],
  ["-9223372036854775808 - 1 < 0", "error"],
  ["-(-9223372036854775808) > 0", "error"],
  ["3037000500 * 3037000500 > 0", "error"],
  ["3037000499 * 3037000499 == 9223372030926249001", "true"],
  ["9007199254740993 == 9007199254740992", "false"],
  ["9007199254740992 + 1 == 9007199254740993", "true"],
  ["[9007199254740993].contains(9007199254740992)", "false"],
  ["0 * -1 == 0", "true"],
  ["[0].contains(0 * -1)", "true"],
  ["context.arguments.nope == 1", "error"],
  ["context.arguments has nope", "false"],
  ["context.arguments has nope && context.arguments.nope == 1", "false"],
  ["context.arguments has options.mode", "true"],
  ["context.arguments has options.nope.deeper", "false"],
  ["context.arguments has path.x", "error"],
  ["principal has app && principal.app == principal.app", "true"],
  ["principal has nope", "false"],
  ["principal.nope == 1", "error"],
  ['App::"a" has anything', "false"],
  ['App::"a".anything == 1', "error"],
  ["1 has a", "error"],
  ['principal in App::"a"', "true"],
  ['principal in [App::"b", App::"a"]', "true"],
  ['principal in [App::"a", 1]', "error"],
  ["principal in 1", "error"],
  ["1 in principal", "error"],
  ['App::"z" in App::"z"', "true"],
  ['Action::"fs.write" in Action::"tools/call"', "true"],
  ['Action::"resources/read" in Action::"tools/call"', "false"],
  ['resource in Server::"host" && resource in Tag::"files"', "true"],
  ['resource is Tool in Server::"host"', "true"],
  ["principal is Tool in 1", "false"],
  ["principal is Agent in 1", "error"],
  ["1 is Agent", "error"],
  ['context.arguments.path like "/srv/*.txt"', "true"],
  ['context.arguments.path like "*é?*"', "false"],
  ['context.arguments.path like "*é😀*"', "true"],
  ['"a*b" like "a\\*b"', "true"],
  ['"axb" like "a\\*b"', "false"],
  ['"" like "*"', "true"],
  ['"aa" like "a*a*a"', "false"],
  ['"abcab" like "ab*ab"', "true"],
  ['1 like "*"', "error"],
  ['context.arguments.labels.containsAll(["b", "a"])', "true"],
  ["context.arguments.labels.containsAny([])", "false"],
  ["context.arguments.labels.containsAll([])", "true"],
  ['context.arguments.path.contains("a")', "error"],
  ["[1].contains([1])", "false"],
  ["[[1]].contains([1])", "true"],
  ["[].isEmpty()", "true"],
  ['principal.hasTag("x")', "false"],
  ['principal.getTag("x") == 1', "error"],
  ["principal.hasTag(1)", "error"],
  ['context.arguments.amount == decimal("1.0")', "true"],
  ["context.arguments.amount == 1", "false"],
  ['context.arguments.amount < decimal("2.0")', "error"],
  ['context.arguments.options.rate.lessThan(decimal("0.5001"))', "true"],
  ['decimal("1.5") == decimal("1.50")', "true"],
  ['decimal("1.12345") == 1', "error"],
  ['ip("10.0.0.1") == ip("10.0.0.1/32")', "true"],
  ['ip("10.0.0.1").isInRange(ip("10.0.0.0/8"))', "true"],
  ['ip("::1").isInRange(ip("0.0.0.0/0"))', "false"],
  ['ip("127.0.0.1/7").isLoopback()', "false"],
  ['ip("10.0.0.1").isInRange(ip("11.0.0.0/8"), ip("10.0.0.0/8"))', "error"],
  ['ip("10.0.0.1").isInRange()', "error"],
  ['ip("10.0.0.1").isIpv4(ip("10.0.0.1"))', "error"],
  ['decimal("1.0").lessThan(decimal("2.0"), decimal("3.0"))', "error"],
  ['ip("::ffff:1.2.3.4").isIpv6()', "error"],
  ['datetime("2024-02-29") < datetime("2024-02-29T00:00:00.001Z")', "true"],
  ['datetime("2023-02-29") == 1', "error"],
  ['datetime("2024-01-01T00:00:00+0100") == datetime("2023-12-31T23:00:00Z")', "true"],
  ['datetime("0050-01-01").toDate() == datetime("0050-01-01")', "true"],
  ['duration("-1d1h").toHours() == -25', "true"],
  ['duration("-90s").toMinutes() == -1', "true"],
  ['datetime("1969-12-31T23:00:00Z").toTime() == duration("23h")', "true"],
  ['datetime("1970-01-01").offset(duration("9223372036854775807ms")).offset(duration("1ms")) == 1', "error"],
  ['datetime("1970-01-01") < duration("1h")', "error"],
  ['decimal("000000000000000000000000000000001.0") == decimal("1.0")', "true"],
  ['{"a b": {c: true}}["a b"].c', "true"],
  ["context.arguments == context.arguments", "true"],
  ['context.transport == "http" && context has approved', "true"],
  ['context.forwarded._meta["com.example/tenant"] == "blue"', "true"],
  ["context.forwarded has _meta && context.forwarded._meta.depth < 3", "true"],
  ["context.forwarded has _meta.nope", "false"],
  ["context.forwarded.inputResponses == {}", "error"],
  ["context.forwarded == {}", "false"],
  ["context.forwarded.flag", "true"],
  ['principal has user && principal.user == "ann"', "true"],
  ['principal.groups == ["h", "g"] && !principal.groups.contains("i")', "true"],
  ['context has now && context.now == datetime("2024-02-29T12:30:00Z")', "true"],
  ['context.now.toTime() >= duration("12h31m")', "false"],
  ["context.now < 7", "error"],
  ["- 1 == -1 && --1 == 1", "true"],
])("%s is %s, here and in Cedar", (condition, expected) => {
  expect(evaluate(condition)).toEqual({ ours: expected, theirs: expected });
});
