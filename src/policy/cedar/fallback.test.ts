import { expect, test } from "vitest";
import { authorize } from "./authorize.js";
import { PolicyCatalog } from "./catalog.js";
import { CedarTrapped, cedarGeneration, withCedar } from "./cedar.js";
import { PolicyWriter, Random, randomRequest, WORLD_TOOLS } from "./fixtures/generate.js";
import { LoadedPolicy, readSources } from "./load.js";
import type { PolicyRequest } from "./types.js";

const catalog = new PolicyCatalog(WORLD_TOOLS);

function both(text: string): { closures: LoadedPolicy; cedar: LoadedPolicy } {
  const { drafts, problems } = readSources([{ file: "f.cedar", text }]);
  expect(problems).toEqual([]);
  return {
    closures: new LoadedPolicy(drafts, catalog),
    cedar: new LoadedPolicy(drafts, catalog, [], { forceCedar: () => true }),
  };
}

function ask(args: PolicyRequest["arguments"], more: Partial<PolicyRequest> = {}): PolicyRequest {
  const resource = { type: "Tool", id: "fs.read", server: "host" } as const;
  return { app: "a", agent: "x", scope: [], action: "fs.read", resource, arguments: args, transport: "", ...more };
}

test("a rule on Cedar's evaluator answers like its closure", () => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = new Random(seed * 7919);
    const writer = new PolicyWriter(random);
    const texts = Array.from({ length: 1 + random.below(3) }, () => writer.policy());
    const { closures, cedar } = both(texts.join("\n"));
    expect(cedar.usesWasmFallbackFor).toHaveLength(texts.length);
    for (let each = 0; each < 3; each++) {
      const request = randomRequest(random);
      const ours = closures.prepare(request);
      const theirs = cedar.prepare(request);
      if (typeof ours === "string" || typeof theirs === "string") throw new Error("cannot be");
      const ids = ({ permits, forbids, errors }: ReturnType<typeof authorize>): unknown =>
        [permits, forbids, errors.map(({ rule }) => rule)].map((rules) => rules.map((rule) => rule.id));
      const context = `seed ${seed}\n${texts.join("\n")}\n${JSON.stringify(request)}`;
      expect(ids(authorize(theirs.lists, theirs.frame)), context).toEqual(ids(authorize(ours.lists, ours.frame)));
    }
  }
});

test("what the compiler does not cover runs on Cedar, and is listed", () => {
  const { closures } = both('@id("odd") permit (principal, action, resource) when { decimal("1.0", "2.0") == 1 };');
  expect(closures.usesWasmFallbackFor).toEqual(["odd"]);
  const decision = closures.decide(ask({}));
  expect(decision.effect).toBe("deny");
  expect(decision.errors[0]).toContain("wrong number of arguments");
});

test("a value without a Cedar form is an error only for a rule on Cedar that may read it", () => {
  const { cedar } = both(`
    @id("p") permit (principal, action, resource) when { context.arguments.path == "x" };
    @id("f") forbid (principal, action, resource) when { context.arguments has limit && context.arguments.limit == 3 };`);
  expect(cedar.decide(ask({ path: "x", labels: [null], amount: 1e-9 })).effect).toBe("permit");
  expect(cedar.decide(ask({ path: "x", limit: null }))).toMatchObject({ effect: "deny", rules: [{ id: "f" }] });
});

test("challenges and approvals are the same on Cedar's evaluator", () => {
  const { cedar } = both(`permit (principal, action, resource);
    @id("c") @outcome("challenge") forbid (principal, action, resource) unless { context.approved };`);
  expect(cedar.decide(ask({})).effect).toBe("challenge");
  expect(cedar.decide(ask({}, { approvedRules: ["c"] })).effect).toBe("permit");
});

test("more rules than Cedar keeps parsed, and older sets beside newer ones, never mix", () => {
  const text = (offset: number): string =>
    Array.from(
      { length: 50 },
      (_, i) => `@id("r${i}") permit (principal, action, resource) when { context.arguments.limit == ${offset + i} };`,
    ).join("\n");
  const first = both(text(0)).cedar;
  const second = both(text(1000)).cedar;
  for (const [set, limit] of [
    [first, 7],
    [second, 1007],
    [first, 49],
    [second, 1049],
  ] as const) {
    const decision = set.decide(ask({ limit }));
    expect(decision).toMatchObject({ effect: "permit", rules: [{ id: `r${limit % 1000}` }] });
  }
});

test("a trap in Cedar costs that one question and no other", () => {
  const deep = `permit (principal, action, resource) when { ${Array(5000).fill("true").join(" && ")} };`;
  const before = cedarGeneration();
  expect(() => withCedar((cedar) => cedar.policyToJson(deep))).toThrow(CedarTrapped);
  const { cedar } = both("permit (principal, action, resource);");
  expect(cedar.decide(ask({})).effect).toBe("permit");
  expect(cedarGeneration()).toBe(before + 1);
});

test("the deepest rules that load can also be evaluated by Cedar", () => {
  const deep = [
    Array(60).fill("context.arguments.limit == 1").join(" && "),
    `${"(".repeat(30)}true${")".repeat(30)}`,
    `${"!(".repeat(30)}true${")".repeat(30)}`,
    `${"if true then ".repeat(62)}true${" else false".repeat(62)}`,
    `${"(if (1 == 1) then ".repeat(29)}true${" else false)".repeat(29)}`,
    `${"[".repeat(29)}1${"]".repeat(29)} == 1 || true`,
    `${Array(60).fill("1").join(" + ")} > 0`,
  ];
  for (const condition of deep) {
    const clauses = ` when { ${condition} }`.repeat(16);
    const { cedar, closures } = both(`permit (principal, action, resource)${clauses};`);
    expect(closures.usesWasmFallbackFor).toEqual([]);
    expect(cedar.decide(ask({ limit: 1 })), condition.slice(0, 60)).toEqual(closures.decide(ask({ limit: 1 })));
  }
});
