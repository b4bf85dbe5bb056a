import { describe, expect, it } from "vitest";
import { parseWorkflow } from "../../lattice/index.js";
import { workflowRules } from "./serving.js";

const rulesOf = (text: string) => workflowRules(parseWorkflow(text), "hash");

const rules = rulesOf(`
servers:
  s3: { prefix: community.aws.s3., tools: [{ name: put, inputSchema: { type: object, required: [key] } }] }
  own: { prefix: "", tools: [{ name: ping }] }
  net: { tools: [{ name: send }] }
agents:
  boss: { servers: [s3, own, net] }
  clerk: { servers: [s3, net], allow: { s3.put: { properties: { key: { pattern: "^in/" } } } } }
delegations:
  - { from: boss, to: clerk, tools: [s3.put], arguments: { s3.put: { properties: { key: { maxLength: 5 } } } } }
  - { from: boss, to: clerk, tools: [s3.put], arguments: { s3.put: { properties: { key: { const: "a long one" } } } } }
`);

describe("a workflow as rules for the gate", () => {
  it("uses the gateway's tool names where they differ from capabilities", () => {
    expect(["s3.put", "own.ping", "net.send", "net.no"].map(rules.toolOf)).toEqual([
      "community.aws.s3.put",
      "ping",
      "net.send",
      undefined,
    ]);
    expect(["community.aws.s3.put", "ping", "s3.put"].map(rules.capabilityOf)).toEqual([
      "s3.put",
      "own.ping",
      undefined,
    ]);
  });

  it("permits a call when any delegation between two agents permits it", async () => {
    const admits = (key: string) => rules.admits("boss", "clerk", "s3.put", { key });
    expect(await Promise.all(["short", "a long one", "too long"].map(admits))).toEqual([true, true, false]);
    expect(await rules.admits("boss", "clerk", "net.send", {})).toBe(false);
    expect(await rules.admits("clerk", "boss", "s3.put", { key: "a" })).toBe(false);
    expect(rules.passedOn("boss", "clerk")?.("net.send")).toBe(false);
    expect(rules.passedOn("clerk", "boss")).toBeUndefined();
  });

  it("counts every entry that names a capability", async () => {
    const overlapping = rulesOf(`
servers: { s: { tools: [{ name: put }, { name: get }] } }
agents:
  boss: { servers: [s] }
  clerk: { servers: [s], allow: { s.put: { required: [b] }, s.*: true } }
delegations:
  - { from: boss, to: clerk, arguments: { s.put: { required: [a] }, "*": true } }
`);
    const [empty, a, b] = [{}, { a: 1 }, { b: 1 }];
    const admits = (args: typeof a | typeof b | typeof empty) => overlapping.admits("boss", "clerk", "s.put", args);
    expect(await Promise.all([empty, a, b].map(admits))).toEqual([false, true, false]);
    const allows = (args: typeof a | typeof b | typeof empty) => overlapping.allows("clerk", "s.put", args);
    expect(await Promise.all([empty, a, b].map(allows))).toEqual([false, false, true]);
    expect(await overlapping.admits("boss", "clerk", "s.get", empty)).toBe(true);
  });

  it("knows the arguments of a capability and the capabilities of an agent, and no other agent", async () => {
    expect(await rules.takes("s3.put", {})).toBe(false);
    expect(await rules.takes("s3.put", { key: "x" })).toBe(true);
    expect(await rules.takes("no.such", {})).toBe(false);
    expect(await rules.allows("clerk", "s3.put", { key: "in/x" })).toBe(true);
    expect(await rules.allows("clerk", "s3.put", { key: "out/x" })).toBe(false);
    expect(await rules.allows("clerk", "net.send", {})).toBe(false);
    expect(await rules.allows("boss", "net.send", {})).toBe(true);
    expect(await rules.allows("stranger", "net.send", {})).toBe(false);
    expect([rules.isRoot("boss"), rules.isRoot("clerk"), rules.isRoot("stranger")]).toEqual([true, false, false]);
  });

  it("does not decide by a schema that cannot be used or has a remote reference", () => {
    expect(() => rules.fits({ type: "nonsense" }, {})).toThrow();
    expect(() => rules.fits({ $ref: "https://example.com/schema" }, {})).toThrow();
    expect(rules.fits(false, {})).toBe(false);
  });

  it("refuses two capabilities with one tool name, with the line", () => {
    const named = "  b: { prefix: a., tools: [{ name: x }] }";
    const plain = "  a: { tools: [{ name: x }] }";
    const agents = "agents: { boss: { servers: [a, b] } }";
    expect(() => rulesOf(["servers:", plain, named, agents].join("\n"))).toThrow(
      "line 3: `b.x` and `a.x` would both be served as `a.x`",
    );
    expect(() => rulesOf(["servers:", named, plain, agents].join("\n"))).toThrow("line 2: ");
  });
});
