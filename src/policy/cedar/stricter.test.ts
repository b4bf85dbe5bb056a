import { expect, it } from "vitest";
import { stricterOf } from "../recorded-policy.js";
import { loadPolicy } from "./load.js";
import type { PolicySet } from "./types.js";

const TOOLS = [{ name: "a.b", server: "a", inputSchema: { type: "object" } }];
const PERMIT = '@id("permit")\npermit (principal, action, resource);\n';
const FORBID = '@id("forbid")\nforbid (principal, action, resource);\n';
const ask = (id: string, approvers?: string): string =>
  `@id("${id}")\n@outcome("challenge")\n${approvers ? `@approvers("${approvers}")\n` : ""}` +
  "forbid (principal, action, resource) unless { context.approved };\n";

function load(text: string): PolicySet {
  return loadPolicy([{ file: "p.cedar", text }], TOOLS);
}

function decide(policy: PolicySet, approvedRules: string[] = []) {
  const resource = { type: "Tool" as const, id: "a.b", server: "a" };
  const principal = { app: "x", agent: "y", scope: [] };
  return policy.decide({ ...principal, action: "a.b", resource, arguments: {}, transport: "http", approvedRules });
}

it("answers with the stricter of two policies, whichever is the older one [U7]", () => {
  const sets = { deny: load(FORBID), challenge: load(PERMIT + ask("one")), permit: load(PERMIT) };
  const order = ["deny", "challenge", "permit"] as const;
  for (const [i, a] of order.entries()) {
    for (const [j, b] of order.entries()) {
      const expected = order[Math.min(i, j)];
      expect(decide(stricterOf(sets[a], sets[b])).effect, `${a} and ${b}`).toBe(expected);
    }
  }
});

it("asks for the approval of the rules of both policies, and takes no part of them for all", () => {
  const both = stricterOf(load(PERMIT + ask("one")), load(PERMIT + ask("two")));
  expect(
    decide(both)
      .rules.map(({ id }) => id)
      .sort(),
  ).toEqual(["one", "two"]);
  expect(decide(both, ["one"]).effect).toBe("challenge");
  expect(decide(both, ["two"]).effect).toBe("challenge");
  expect(decide(both, ["one", "two"]).effect).toBe("permit");
});

it("accepts only approvers that both policies accept", () => {
  const ops = load(PERMIT + ask("one", "ops,dev"));
  expect(decide(stricterOf(ops, load(PERMIT + ask("one", "dev")))).approvers).toEqual(["dev"]);
  expect(decide(stricterOf(ops, load(PERMIT + ask("one", "legal")))).effect).toBe("deny");
});

it("keeps the obligations of both policies", () => {
  const capped = (bytes: number): string => `@cap("${bytes}")\n${PERMIT}`;
  const both = stricterOf(load(PERMIT), load(capped(100)));
  expect(decide(both).obligations).toEqual(decide(load(capped(100))).obligations);
  expect(decide(both).obligations).not.toEqual([]);
});
