import { expect, test } from "vitest";
import { PolicyCatalog } from "./catalog.js";
import { PolicyWriter, Random, randomArguments, randomRequest, WORLD_TOOLS } from "./fixtures/generate.js";
import { LoadedPolicy, loadPolicy, readSources } from "./load.js";
import type { Outlook, OutlookRequest, ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "t",
    server: "s",
    tags: ["x"],
    inputSchema: { type: "object", required: ["p"], properties: { p: { type: "string" } } },
  },
];
const PERMIT = "permit (principal, action, resource);\n";

function outlook(text: string, more: Partial<OutlookRequest> = {}): Outlook {
  const policy = loadPolicy([{ file: "p.cedar", text }], TOOLS);
  return policy.outlook({ app: "a", agent: "b", scope: [], action: "t", resource: { type: "Tool", id: "t" }, ...more });
}

test.each<[string, Outlook]>([
  ["", "never"],
  [PERMIT, "possible"],
  ['permit (principal in App::"z", action, resource);', "never"],
  ['permit (principal, action == Action::"t", resource) when { context.arguments.p == "x" };', "possible"],
  [
    'permit (principal, action == Action::"t", resource) when { context.arguments.p == "x" && principal.app == "z" };',
    "never",
  ],
  [
    'permit (principal, action == Action::"t", resource) when { principal.app == "z" || context.arguments.p == "x" };',
    "possible",
  ],
  [`${PERMIT}forbid (principal, action, resource in Tag::"x");`, "never"],
  [`${PERMIT}forbid (principal, action == Action::"t", resource) when { context.arguments.p == "x" };`, "possible"],
  [
    `${PERMIT}forbid (principal, action == Action::"t", resource) when { context.arguments.p == "x" || true };`,
    "never",
  ],
  [
    `${PERMIT}forbid (principal, action == Action::"t", resource) when { true || context.arguments.p == "x" };`,
    "never",
  ],
  [`${PERMIT}@outcome("challenge") forbid (principal, action, resource) unless { context.approved };`, "challenge"],
  ['@outcome("challenge") forbid (principal, action, resource) unless { context.approved };', "never"],
  [
    `${PERMIT}@outcome("challenge") forbid (principal, action == Action::"t", resource) when { context.arguments.p == "x" } unless { context.approved };`,
    "possible",
  ],
  [
    `${PERMIT}@outcome("challenge") forbid (principal, action, resource) unless { context.approved && principal.app == "z" };`,
    "never",
  ],
  [`${PERMIT}@outcome("challenge") forbid (principal, action, resource) when { context.approved };`, "possible"],
  [`${PERMIT}forbid (principal, action, resource) when { 9223372036854775807 + 1 == 0 };`, "never"],
  [`${PERMIT}forbid (principal, action, resource) when { context.transport == "http" };`, "possible"],
])("%s", (text, expected) => {
  expect(outlook(text)).toBe(expected);
});

test("a transport that is known counts", () => {
  const text = `${PERMIT}forbid (principal, action, resource) when { context.transport == "http" };`;
  expect(outlook(text, { transport: "http" })).toBe("never");
  expect(outlook(text, { transport: "stdio" })).toBe("possible");
});

test("a tool that policy does not know has no outlook", () => {
  expect(outlook(PERMIT, { action: "gone" })).toBe("never");
});

test("never means never, and challenge never turns into a permit by itself", () => {
  const catalog = new PolicyCatalog(WORLD_TOOLS);
  const counts = { never: 0, challenge: 0, possible: 0 };
  for (let seed = 1; seed <= 250; seed++) {
    const random = new Random(seed);
    const writer = new PolicyWriter(random);
    const texts = Array.from({ length: 1 + random.below(4) }, () => {
      const text = writer.policy();
      if (!text.includes("forbid (") || random.chance(0.3)) return text;
      const challenge = text.replace("forbid (", '@outcome("challenge") forbid (');
      return random.chance(0.7) ? challenge.replace(/;$/, " unless { context.approved };") : challenge;
    });
    if (random.chance(0.6)) texts.push(PERMIT);
    const { drafts } = readSources([{ file: "g.cedar", text: texts.join("\n") }]);
    const policy = new LoadedPolicy(drafts, catalog);
    const request = randomRequest(random);
    const isAnyone = random.chance(0.5);
    const outlook = policy.outlook(isAnyone ? { ...request, groups: undefined } : request);
    counts[outlook]++;
    if (outlook === "possible") continue;
    for (let each = 0; each < 25; each++) {
      const { user, groups, now } = randomRequest(random);
      const who = isAnyone ? { user, groups } : {};
      const asked = { ...request, ...who, now, arguments: randomArguments(random) };
      const first = policy.decide(asked);
      const second = policy.decide({ ...asked, approvedRules: first.rules.map((rule) => rule.id) });
      const context = `seed ${seed}: ${outlook}\n${texts.join("\n")}\n${JSON.stringify(asked)}`;
      expect(first.effect, context).not.toBe("permit");
      if (outlook === "never") expect([first.effect, second.effect], context).toEqual(["deny", "deny"]);
    }
  }
  expect(counts.never).toBeGreaterThan(30);
  expect(counts.challenge).toBeGreaterThan(5);
  expect(counts.possible).toBeGreaterThan(30);
});
