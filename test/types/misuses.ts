// Ways to misuse an agent. Each is one text, used twice: compiled, where it must be refused at its last line (or the
// one that ends in `// here`) with `compiler` in the message; and run as plain JavaScript, where no type is left, and
// where it must fail with `run` and reach no tool. `right` is the nearest right use: it compiles, and it works.

export interface Misuse {
  readonly name: string;
  readonly wrong: string;
  readonly right: string;
  readonly compiler: RegExp;
  readonly run: RegExp;
}

const notHeld = (tool: string, agent: string) => ({
  compiler: new RegExp(`"not within this agent's capabilities": "${tool}"; agent: "${agent}"`),
  run: new RegExp(`\`${tool}\` is not within the capabilities of agent \`${agent}\``),
});
const foreign = (tool: string, owner: string, agent: string) => ({
  compiler: new RegExp(`<"${tool}", "${owner}">' is not assignable to parameter of type '.*"${tool}", "${agent}"`),
  run: new RegExp(`\`${tool}\` was not called for agent \`${agent}\`: the token is of agent \`${owner}\``),
});
const missing = (method: string, type: string, run: RegExp) => ({
  compiler: new RegExp(`Property '${method}' does not exist on type '${type}`),
  run,
});

export const misuses: readonly Misuse[] = [
  // Capabilities.
  {
    name: "asking the guardrails about a tool that the agent does not hold",
    wrong: `await helper.guard("fs.remove", { path: "a" });`,
    right: `await root.guard("fs.remove", { path: "a" });`,
    ...notHeld("fs.remove", "helper"),
  },
  {
    name: "calling a tool that the agent does not hold, with a token that its parent got",
    wrong: `const token = await root.guard("fs.remove", { path: "a" });
await helper.call("fs.remove", token);`,
    right: `const token = await root.guard("fs.remove", { path: "a" });
await root.call("fs.remove", token);`,
    ...notHeld("fs.remove", "helper"),
  },
  {
    name: "an unchecked invocation of a tool that the agent does not hold",
    wrong: `await writer.unchecked("fs.read", { path: "a" });`,
    right: `await helper.call("fs.read", helper.unchecked("fs.read", { path: "a" }));`,
    ...notHeld("fs.read", "writer"),
  },
  {
    name: "delegating what the agent does not hold",
    wrong: `helper.delegate("deep", ["fs.remove"]);`,
    right: `root.delegate("deep", ["fs.remove"]);`,
    ...notHeld("fs.remove", "helper"),
  },
  {
    name: "delegating one thing too many",
    wrong: `helper.delegate("deep", ["fs.read", "fs.remove", "fs.write"]);`,
    right: `helper.delegate("deep", ["fs.read", "fs.write"]);`,
    ...notHeld("fs.remove", "helper"),
  },
  {
    name: "handing over what the agent does not hold",
    wrong: `helper.handOver("deep", ["fs.remove"]);`,
    right: `helper.handOver("deep", ["fs.write"]);`,
    ...notHeld("fs.remove", "helper"),
  },
  {
    name: "regaining further down what was narrowed away",
    wrong: `const deep = helper.delegate("deep", ["fs.read"]);
const deeper = deep.delegate("deeper", ["fs.write"]);`,
    right: `const deep = helper.delegate("deep", ["fs.read"]);
const deeper = deep.delegate("deeper", ["fs.read"]);
await deeper.call("fs.read", deeper.unchecked("fs.read", { path: "a" }));`,
    ...notHeld("fs.write", "deep"),
  },
  {
    name: "using after a delegation what only the parent kept",
    wrong: `const deep = root.delegate("deep", ["fs.read"]);
await deep.guard("fs.write", { path: "a", content: "b" });`,
    right: `const deep = root.delegate("deep", ["fs.read"]);
await deep.guard("fs.read", { path: "a" });`,
    ...notHeld("fs.write", "deep"),
  },
  {
    name: "a misspelt tool",
    wrong: `await root.guard("fs.raed", { path: "a" });`,
    right: `await root.guard("fs.read", { path: "a" });`,
    ...notHeld("fs.raed", "root"),
  },
  {
    name: "a tool's name in other letters",
    wrong: `await root.guard("FS.READ", { path: "a" });`,
    right: `await root.guard("fs.read", { path: "a" });`,
    ...notHeld("FS.READ", "root"),
  },
  {
    name: "a name that every object has",
    wrong: `await root.guard("constructor", {});`,
    right: `await root.guard("fs.read", { path: "a" });`,
    ...notHeld("constructor", "root"),
  },
  {
    name: "no name at all",
    wrong: `await root.guard(undefined, {});`,
    right: `await root.guard("fs.read", { path: "a" });`,
    compiler: /Argument of type 'undefined' is not assignable/,
    run: /`undefined` is not within the capabilities of agent `root`/,
  },
  {
    name: "a name put together at run time",
    wrong: `const name = ["fs", "remove"].join(".");
await helper.guard(name, { path: "a" });`,
    right: `const name = "fs.write";
await helper.guard(name, { path: "a", content: "b" });`,
    compiler: /"not within this agent's capabilities": string; agent: "helper"/,
    run: /`fs\.remove` is not within the capabilities of agent `helper`/,
  },
  {
    name: "passing an agent to a function that needs more than it holds",
    wrong: `await removeOne(helper);`,
    right: `await removeOne(root);`,
    compiler:
      /'ActiveAgent<"helper", .*>' is not assignable to parameter of type 'ActiveAgent<"helper", .*"fs\.remove">>'/,
    run: /`fs\.remove` is not within the capabilities of agent `helper`/,
  },
  {
    name: "a guardrail for a tool that is not delegated",
    wrong: `root.delegate("deep", ["fs.read"], { guardrails: { "fs.write": () => undefined } });`,
    right: `root.delegate("deep", ["fs.read"], { guardrails: { "fs.read": () => undefined } });`,
    compiler: /'"fs\.write"' does not exist in type/,
    run: /`fs\.write` is not within the capabilities of agent `deep`/,
  },
  {
    name: "a guardrail for a tool that is not in the set",
    wrong: `createAgent("other", files, { app: "shop", guardrails: { "fs.raed": () => undefined } });`,
    right: `createAgent("other", files, { app: "shop", guardrails: { "fs.read": () => undefined } });`,
    compiler: /'"fs\.raed"' does not exist in type/,
    run: /`fs\.raed` is not within the capabilities of agent `other`/,
  },
  {
    name: "a set with a tool that the map does not have",
    wrong: `const set = ofTools({ names: ["fs.read", "fs.format"] }); // here
await createAgent("other", set, { app: "shop" }).connect(server);`,
    right: `const set = ofTools({ names: ["fs.read"] });
const other = await createAgent("other", set, { app: "shop" }).connect(server);
await other.close();`,
    compiler: /"not a tool of this map": "fs\.format"/,
    run: /agent `other` holds `fs\.format`, which the server does not offer/,
  },
  {
    name: "declaring that a tool outside the set needs no guardrail",
    wrong: `ofTools({ names: ["fs.read"], noGuardrailRequired: ["fs.write"] });`,
    right: `ofTools({ names: ["fs.read", "fs.write"], noGuardrailRequired: ["fs.write"] });`,
    compiler: /"not among the names of this set": "fs\.write"/,
    run: /noGuardrailRequired: `fs\.write` is not among the names of this set/,
  },
  {
    name: "a list of names in place of a set",
    wrong: `createAgent("other", { names: ["fs.read"], noGuardrailRequired: ["fs.read"] }, { app: "shop" });`,
    right: `createAgent("other", ofTools({ names: ["fs.read"], noGuardrailRequired: ["fs.read"] }), { app: "shop" });`,
    compiler: /missing the following properties from type 'Toolset</,
    run: /tools: give what `toolset<Tools>\(\)\(\{ names \}\)` made/,
  },
  {
    name: "an agent of no application",
    wrong: `createAgent("other", files, {});`,
    right: `createAgent("other", files, { app: "shop" });`,
    compiler: /Property 'app' is missing/,
    run: /app: say which application/,
  },
  {
    name: "delegating to oneself",
    wrong: `root.delegate("root", ["fs.read"]);`,
    right: `root.delegate("other", ["fs.read"]);`,
    compiler: /"an agent cannot delegate to itself": "root"/,
    run: /there is an agent `root` already/,
  },
  {
    name: "delegating a name instead of a list",
    wrong: `root.delegate("other", "fs.read");`,
    right: `root.delegate("other", ["fs.read"]);`,
    compiler: /Argument of type '"?(string|fs\.read)"?' is not assignable to parameter of type 'readonly /,
    run: /capabilities: give an array of tool names/,
  },

  // Arguments.
  {
    name: "leaving a required argument out",
    wrong: `const token = await root.guard("fs.write", { path: "a" }); // here
await root.call("fs.write", token);`,
    right: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", token);`,
    compiler: /Property 'content' is missing/,
    run: /content/,
  },
  {
    name: "an argument of the wrong type",
    wrong: `const token = await root.guard("fs.write", { path: "a", content: 5 }); // here
await root.call("fs.write", token);`,
    right: `const token = await root.guard("fs.write", { path: "a", content: "5" });
await root.call("fs.write", token);`,
    compiler: /Type 'number' is not assignable to type 'string'/,
    run: /content/,
  },
  {
    name: "an argument that the tool does not have",
    wrong: `const token = await root.guard("fs.remove", { path: "a", recursive: true }); // here
await root.call("fs.remove", token);`,
    right: `const token = await root.guard("fs.remove", { path: "a" });
await root.call("fs.remove", token);`,
    compiler: /'recursive' does not exist in type/,
    run: /recursive/,
  },
  {
    name: "a value outside an argument's choices",
    wrong: `const token = root.unchecked("fs.read", { path: "a", encoding: "latin1" }); // here
await root.call("fs.read", token);`,
    right: `const token = root.unchecked("fs.read", { path: "a", encoding: "base64" });
await root.call("fs.read", token);`,
    compiler: /Type '"latin1"' is not assignable to type '"base64" \| "utf8"/,
    run: /encoding/,
  },
  {
    name: "no arguments",
    wrong: `await root.guard("fs.write");`,
    right: `await root.guard("fs.write", { path: "a", content: "b" });`,
    compiler: /Expected 2 arguments, but got 1/,
    run: /the arguments of `fs\.write` cannot be sent/,
  },
  {
    name: "one of two tools, with the arguments of the other",
    wrong: `const tool = always ? "fs.write" : "fs.remove";
const token = await root.guard(tool, { path: "a" }); // here
await root.call(tool, token);`,
    right: `const tool = always ? "fs.write" : "fs.remove";
await root.guard(tool, { path: "a", content: "b" });`,
    compiler: /Property 'content' is missing/,
    run: /content/,
  },

  // Tokens.
  {
    name: "calling without a token",
    wrong: `await root.call("fs.write");`,
    right: `await root.call("fs.write", await root.guard("fs.write", { path: "a", content: "b" }));`,
    compiler: /Expected 2-3 arguments, but got 1/,
    run: /`fs\.write` was not called for agent `root`: there is no guardrail token/,
  },
  {
    name: "calling with nothing for a token",
    wrong: `await root.call("fs.write", undefined);`,
    right: `await root.call("fs.write", await root.guard("fs.write", { path: "a", content: "b" }));`,
    compiler: /Argument of type 'undefined' is not assignable to parameter of type '.*"fs\.write", "root"/,
    run: /`fs\.write` was not called for agent `root`: there is no guardrail token/,
  },
  {
    name: "calling with arguments for a token",
    wrong: `await root.call("fs.write", { path: "a", content: "b" });`,
    right: `await root.call("fs.write", await root.guard("fs.write", { path: "a", content: "b" }));`,
    compiler: /'path' does not exist in type|is not assignable to parameter of type '.*"fs\.write", "root"/,
    run: /what was given is not a guardrail token/,
  },
  {
    name: "a token out of thin air",
    wrong: `await root.call("fs.write", {});`,
    right: `await root.call("fs.write", await root.guard("fs.write", { path: "a", content: "b" }));`,
    compiler: /Argument of type '\{\}' is not assignable to parameter of type '.*"fs\.write", "root"/,
    run: /what was given is not a guardrail token/,
  },
  {
    name: "a copy of a token",
    wrong: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", { ...token });`,
    right: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", token);`,
    compiler: /is not assignable to parameter of type '.*"fs\.write", "root"/,
    run: /what was given is not a guardrail token/,
  },
  {
    name: "making a token with the token's own constructor",
    wrong: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", new token.constructor(root, "fs.write", "{}"));`,
    right: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", token);`,
    compiler: /This expression is not constructable|is not assignable/,
    run: /`fs\.write` was not called for agent `root`: the token is of agent `root`|no guardrail token/,
  },
  {
    name: "a token that nobody waited for",
    wrong: `await root.call("fs.write", root.guard("fs.write", { path: "a", content: "b" }));`,
    right: `await root.call("fs.write", await root.guard("fs.write", { path: "a", content: "b" }));`,
    compiler: /Argument of type 'Promise<GuardrailToken<"fs\.write", "root">>' is not assignable/,
    run: /what was given is not a guardrail token/,
  },
  {
    name: "a token for another tool",
    wrong: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.remove", token);`,
    right: `const token = await root.guard("fs.remove", { path: "a" });
await root.call("fs.remove", token);`,
    compiler: /GuardrailToken<"fs\.write", "root">' is not assignable to parameter of type '.*"fs\.remove", "root"/,
    run: /`fs\.remove` was not called for agent `root`: the token is for `fs\.write`/,
  },
  {
    name: "a parent's token",
    wrong: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await helper.call("fs.write", token);`,
    right: `const token = await helper.guard("fs.write", { path: "a", content: "b" });
await helper.call("fs.write", token);`,
    ...foreign("fs.write", "root", "helper"),
  },
  {
    name: "a child's token",
    wrong: `const token = await helper.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", token);`,
    right: `const token = await root.guard("fs.write", { path: "a", content: "b" });
await root.call("fs.write", token);`,
    ...foreign("fs.write", "helper", "root"),
  },
  {
    name: "a sibling's token",
    wrong: `const token = await writer.guard("fs.write", { path: "a", content: "b" });
await helper.call("fs.write", token);`,
    right: `const token = await writer.guard("fs.write", { path: "a", content: "b" });
await writer.call("fs.write", token);`,
    ...foreign("fs.write", "writer", "helper"),
  },
  {
    name: "spending an agent's token through a function made for another agent",
    wrong: `const token = await helper.guard("fs.write", { path: "a", content: "b" });
await writeAsHelper(writer, token);`,
    right: `const token = await helper.guard("fs.write", { path: "a", content: "b" });
await writeAsHelper(helper, token);`,
    compiler: /'ActiveAgent<"writer", .*>' is not assignable to parameter of type 'ActiveAgent<"helper"/,
    run: /the token is of agent `helper`/,
  },
  {
    name: "an unchecked invocation of a tool that needs a guardrail",
    wrong: `await root.call("fs.write", root.unchecked("fs.write", { path: "a", content: "b" }));`,
    right: `await root.call("fs.read", root.unchecked("fs.read", { path: "a" }));`,
    compiler: /"needs a guardrail token, because noGuardrailRequired was not declared for": "fs\.write"/,
    run: /`fs\.write` needs a guardrail token of agent `root`: noGuardrailRequired was not declared/,
  },
  {
    name: "another agent's unchecked invocation",
    wrong: `const unchecked = root.unchecked("fs.read", { path: "a" });
await helper.call("fs.read", unchecked);`,
    right: `const unchecked = helper.unchecked("fs.read", { path: "a" });
await helper.call("fs.read", unchecked);`,
    ...foreign("fs.read", "root", "helper"),
  },
  {
    name: "an unchecked invocation of a harmless tool, spent on another",
    wrong: `const unchecked = root.unchecked("fs.read", { path: "a" });
await root.call("fs.remove", unchecked);`,
    right: `const unchecked = root.unchecked("fs.read", { path: "a" });
await root.call("fs.read", unchecked);`,
    compiler: /UncheckedInvocation<"fs\.read", "root">' is not assignable to parameter of type '.*"fs\.remove", "root"/,
    run: /`fs\.remove` was not called for agent `root`: the token is for `fs\.read`/,
  },
  {
    name: "a guardrail that answers with something that is no answer",
    wrong: `const strict = root.delegate("strict", ["fs.write"], { guardrails: { "fs.write": () => true } }); // here
await strict.guard("fs.write", { path: "a", content: "b" });`,
    right: `const strict = root.delegate("strict", ["fs.write"], { guardrails: { "fs.write": () => undefined } });
await strict.guard("fs.write", { path: "a", content: "b" });`,
    compiler: /Type 'boolean' is not assignable to type/,
    run: /it answered true; return nothing to let the call pass/,
  },

  // Phases.
  {
    name: "calling before connecting",
    wrong: `await planned.call("fs.read", root.unchecked("fs.read", { path: "a" }));`,
    right: `const agent = await planned.connect(server);
await agent.call("fs.read", agent.unchecked("fs.read", { path: "a" }));
await agent.close();`,
    ...missing("call", 'NewAgent<"planned"', /agent `planned` cannot call `fs\.read`: it is not connected yet/),
  },
  {
    name: "asking the guardrails before connecting",
    wrong: `await planned.guard("fs.write", { path: "a", content: "b" });`,
    right: `const agent = await planned.connect(server);
await agent.guard("fs.write", { path: "a", content: "b" });
await agent.close();`,
    ...missing("guard", 'NewAgent<"planned"', /agent `planned` cannot call `fs\.write`: it is not connected yet/),
  },
  {
    name: "an unchecked invocation before connecting",
    wrong: `await planned.unchecked("fs.read", { path: "a" });`,
    right: `const agent = await planned.connect(server);
agent.unchecked("fs.read", { path: "a" });
await agent.close();`,
    ...missing("unchecked", 'NewAgent<"planned"', /agent `planned` cannot call `fs\.read`: it is not connected yet/),
  },
  {
    name: "delegating before connecting",
    wrong: `planned.delegate("deep", ["fs.read"]);`,
    right: `const agent = await planned.connect(server);
agent.delegate("deep", ["fs.read"]);
await agent.close();`,
    ...missing("delegate", 'NewAgent<"planned"', /agent `planned` cannot delegate `fs\.read`: it is not connected yet/),
  },
  {
    name: "handing over before connecting",
    wrong: `planned.handOver("deep", ["fs.read"]);`,
    right: `const agent = await planned.connect(server);
await agent.handOver("deep", ["fs.read"]).close();`,
    ...missing(
      "handOver",
      'NewAgent<"planned"',
      /agent `planned` cannot hand over `fs\.read`: it is not connected yet/,
    ),
  },
  {
    name: "closing what was never connected",
    wrong: `await planned.close();`,
    right: `await (await planned.connect(server)).close();`,
    ...missing("close", 'NewAgent<"planned"', /agent `planned` cannot close: it is not connected yet/),
  },
  {
    name: "passing an agent that is not connected to a function that calls",
    wrong: `await removeOne(planned);`,
    right: `const agent = await planned.connect(server);
await removeOne(agent);
await agent.close();`,
    compiler: /'NewAgent<"planned", .*' is missing the following properties from type 'ActiveAgent<.*: guard/,
    run: /agent `planned` cannot call `fs\.remove`: it is not connected yet/,
  },
  {
    name: "connecting twice",
    wrong: `await root.connect(server);`,
    right: `await (await planned.connect(server)).close();`,
    ...missing("connect", 'ActiveAgent<"root"', /agent `root` cannot connect: it is connected already/),
  },
  {
    name: "calling after the end",
    wrong: `await closed.call("fs.read", root.unchecked("fs.read", { path: "a" }));`,
    right: `await root.call("fs.read", root.unchecked("fs.read", { path: "a" }));`,
    ...missing("call", 'ClosedAgent<"closed"', /agent `closed` cannot call `fs\.read`: it is closed/),
  },
  {
    name: "asking the guardrails after the end",
    wrong: `const over = await helper.close();
await over.guard("fs.write", { path: "a", content: "b" });`,
    right: `await helper.guard("fs.write", { path: "a", content: "b" });
await helper.close();`,
    ...missing("guard", 'ClosedAgent<"helper"', /agent `helper` cannot call `fs\.write`: it is closed/),
  },
  {
    name: "delegating after the end",
    wrong: `closed.delegate("deep", ["fs.read"]);`,
    right: `root.delegate("deep", ["fs.read"]);`,
    ...missing("delegate", 'ClosedAgent<"closed"', /agent `closed` cannot delegate `fs\.read`: it is closed/),
  },
  {
    name: "connecting after the end",
    wrong: `await closed.connect(server);`,
    right: `await (await planned.connect(server)).close();`,
    ...missing("connect", 'ClosedAgent<"closed"', /agent `closed` cannot connect: it is closed/),
  },
  {
    name: "a method without its agent",
    wrong: `const { guard } = root;
await guard("fs.write", { path: "a", content: "b" });`,
    right: `const guard = () => root.guard("fs.write", { path: "a", content: "b" });
await guard();`,
    compiler: /The 'this' context of type 'void' is not assignable/,
    run: /cannot call `fs\.write`: this is not an agent/,
  },
  {
    name: "making an agent with the agent's own constructor",
    wrong: `const token = await root.guard("fs.remove", { path: "a" });
const life = { id: "helper", tokenTtlMs: 60_000, mustHold: () => "fs.remove" };
const agent = new helper.constructor(life, "active"); // here
await agent.call("fs.remove", token);`,
    right: `const token = await root.guard("fs.remove", { path: "a" });
await root.call("fs.remove", token);`,
    compiler: /This expression is not constructable/,
    run: /`fs\.remove` was not called for agent `helper`: the token is of agent `root`/,
  },
  {
    name: "an agent's method on a copy of the agent",
    wrong: `const copy = { ...root, guard: root.guard };
await copy.guard("fs.write", { path: "a", content: "b" });`,
    right: `const same = root;
await same.guard("fs.write", { path: "a", content: "b" });`,
    compiler: /Property 'sealed' is missing in type .* but required in type 'AnyActive'/,
    run: /cannot call `fs\.write`: this is not an agent/,
  },
];
