import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { loadPolicy, loadPolicyInSlices, noPolicy } from "./load.js";
import { PolicyInvalid, type PolicyProblem, type PolicyRequest, type ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "fs.read",
    server: "host",
    tags: ["files"],
    inputSchema: {
      type: "object",
      required: ["path"],
      properties: {
        path: { type: "string" },
        limit: { type: "integer" },
        amount: { type: "number" },
        id: { type: ["string", "integer"] },
        maybe: { type: ["string", "null"] },
        filter: { type: "object", additionalProperties: { type: "string" } },
        tree: { $ref: "#/$defs/tree" },
        mixed: { type: "array", items: { type: ["string", "integer"] } },
        options: { type: "object", properties: { mode: { type: "string" }, extra: {} } },
      },
      additionalProperties: false,
      $defs: { tree: { type: "object", properties: { child: { $ref: "#/$defs/tree" }, name: { type: "string" } } } },
    },
  },
  { name: "fs.write", server: "host", inputSchema: { type: "object", properties: { path: { type: "string" } } } },
  { name: "anything", server: "other", inputSchema: { type: "object" } },
  {
    name: "loose",
    server: "other",
    inputSchema: { type: "object", properties: { command: { type: "string" } }, additionalProperties: true },
  },
];

function load(text: string, tools = TOOLS) {
  return loadPolicy([{ file: "etc/main.cedar", text }], tools);
}

function problemsOf(text: string, tools = TOOLS): readonly PolicyProblem[] {
  try {
    load(text, tools);
  } catch (error) {
    if (error instanceof PolicyInvalid) return error.problems;
    throw error;
  }
  return [];
}

function ask(args: JsonObject = {}, more: Partial<PolicyRequest> = {}): PolicyRequest {
  return {
    app: "blog",
    agent: "writer",
    scope: [],
    action: "fs.read",
    resource: { type: "Tool", id: "fs.read" },
    arguments: args,
    transport: "stdio",
    ...more,
  };
}

const READ = 'permit (principal, action == Action::"fs.read", resource)';

describe("what is refused at load", () => {
  test("a misspelt argument, with file, line and the name that was meant", () => {
    expect(problemsOf(`// é\n${READ}\nwhen { "é" == "é" && context.arguments.pth == "x" };`)).toEqual([
      {
        file: "etc/main.cedar",
        line: 3,
        column: 22,
        message: 'fs.read has no argument "pth" (in context.arguments.pth)',
        help: 'did you mean "path"?',
      },
    ]);
  });

  test("a misspelt argument that is only asked for with has, which Cedar would call false", () => {
    const [problem] = problemsOf(`${READ} when {\n context.arguments has pahth };`);
    expect(problem).toMatchObject({ line: 2, column: 2, help: 'did you mean "path"?' });
  });

  test("a misspelt name inside a nested object", () => {
    const [problem] = problemsOf(`${READ} when { context.arguments has options.moed };`);
    expect(problem).toMatchObject({ line: 1, help: 'did you mean "mode"?' });
  });

  test("a misspelt name where the schema leaves room for others", () => {
    const loose = 'permit (principal, action == Action::"loose", resource)';
    expect(problemsOf(`${loose} when { context.arguments has comand };`)[0]).toMatchObject({
      help: 'did you mean "command"?',
    });
    expect(problemsOf(`${loose} when { context.arguments has cwd && context.arguments.cwd == "/" };`)).toEqual([]);
  });

  test("tools and methods that do not exist", () => {
    expect(problemsOf('permit (principal, action == Action::"fs.raed", resource);')[0]).toMatchObject({
      line: 1,
      column: 20,
      message: "there is no tool or method fs.raed",
      help: 'did you mean Action::"fs.read"?',
    });
    expect(problemsOf('forbid (principal, action, resource == Tool::"fs.wriet");')[0]).toMatchObject({
      help: 'did you mean Tool::"fs.write"?',
    });
  });

  test("reports an agent id that no caller can have", () => {
    expect(problemsOf('permit (principal == Agent::"writer", action, resource);')[0]?.help).toBe(
      'an agent is written Agent::"<app>/<agent>"',
    );
  });

  test("a comparison with the wrong type, placed by Cedar in bytes and by us in characters", () => {
    const [problem] = problemsOf(`${READ} when { "é😀" == "é😀" && context.arguments.path < 3 };`);
    expect(problem).toMatchObject({ line: 1, column: 84 });
    expect(problem?.message).toContain("expected Long but saw String");
  });

  test("an optional argument that is read without asking for it first", () => {
    const [problem] = problemsOf(`${READ} when { context.arguments.limit > 3 };`);
    expect(problem?.message).toContain("optional attribute `arguments.limit`");
    expect(problem?.help).toContain("context.arguments has limit");
  });

  test("an argument that only some of the tools have, once and not once a tool", () => {
    const many = Array.from({ length: 50 }, (_, index) => ({
      name: `t${index}`,
      server: "s",
      inputSchema: { type: "object", properties: { ["n" + index]: { type: "string" } } },
    }));
    const problems = problemsOf(
      'permit (principal, action, resource is Tool) when { context.arguments.n7 == "x" };',
      many,
    );
    expect(problems).toHaveLength(2);
    expect(problems[0]?.message).toContain("attribute `arguments.n7` in context");
    expect(problems[0]?.help).toContain("name the tool with action ==");
  });

  test("syntax, at the place where it is wrong", () => {
    expect(problemsOf(`${READ};\n\n${READ} when { 1 + };`)[0]).toMatchObject({
      line: 3,
      message: "unexpected token `}`",
    });
    expect(problemsOf(`${READ};\n  "never closed`)[0]).toMatchObject({ line: 2, column: 3 });
  });

  test("every problem at once, in every file", () => {
    const error = (() => {
      try {
        loadPolicy(
          [
            { file: "a.cedar", text: `${READ} when { context.arguments has nope };\n@huh("x")\n${READ};` },
            { file: "b.cedar", text: "permit (" },
          ],
          TOOLS,
        );
      } catch (caught) {
        return caught as PolicyInvalid;
      }
    })();
    expect(error?.code).toBe("POLICY_INVALID");
    expect(error?.problems.map(({ file, line }) => `${file}:${line}`)).toEqual(["a.cedar:2", "b.cedar:1"]);
    expect(error?.message).toContain("a.cedar:2:1: @huh is not an annotation here");
  });

  test("templates", () => {
    expect(problemsOf("permit (principal == ?principal, action, resource);")[0]?.message).toContain("template");
  });

  test("nesting that would take Cedar's instance down, and Cedar still answers afterwards", () => {
    expect(problemsOf(`${READ} when { ${"(".repeat(500)}true${")".repeat(500)} };`)[0]?.message).toContain("32 levels");
    expect(problemsOf(`${READ} when { ${Array(500).fill("true").join(" && ")} };`)[0]?.message).toContain("64 levels");
    expect(problemsOf(`${READ} when { ${"!".repeat(100_000)}true };`)[0]?.message).toContain("64 levels");
    expect(problemsOf(`${READ} when { ${"if true then ".repeat(10_000)} };`)[0]?.message).toContain("64 levels");
    expect(problemsOf(`${READ} when { ${Array(64).fill("true").join(" && ")} };`)).toEqual([]);
  });

  test("a tool with the name of a method", () => {
    const tool = { name: "resources/read", server: "evil", inputSchema: {} };
    expect(problemsOf("", [tool])[0]).toMatchObject({ file: "tools of evil" });
    expect(problemsOf("", [{ ...tool, name: "tools/call" }])).toHaveLength(1);
  });
});

describe("arguments that Cedar has no type for", () => {
  const guard = (condition: string): string => `${READ} when { ${condition} };`;

  test("a union can be compared with values of both its types", () => {
    const policy = load(
      guard('context.arguments has id && (context.arguments.id == "5" || context.arguments.id == 5)'),
    );
    expect(policy.decide(ask({ path: "", id: "5" })).effect).toBe("permit");
    expect(policy.decide(ask({ path: "", id: 5 })).effect).toBe("permit");
    expect(policy.decide(ask({ path: "", id: 6 })).effect).toBe("deny");
  });

  test("maps, recursion, mixed arrays and schemas that say nothing can be read", () => {
    for (const condition of [
      'context.arguments has filter && context.arguments.filter has owner && context.arguments.filter.owner == "me"',
      'context.arguments has tree.child.child && context.arguments.tree.child.child.name like "a*"',
      'context.arguments has mixed && context.arguments.mixed.contains("a") && context.arguments.mixed.contains(1)',
      "context.arguments has options.extra && context.arguments.options.extra > 3",
      'context.arguments has options.extra && context.arguments.options.extra.deep == ["a"]',
      "context.arguments has mixed && [1, 2].containsAll(context.arguments.mixed)",
      "context.arguments has options.extra && context.arguments.options.extra == principal.agent",
      'context.arguments has options.extra && context.arguments.options.extra.lessThan(decimal("1.0"))',
      "context.arguments has options.extra && context.arguments.options.extra",
    ]) {
      expect(problemsOf(guard(condition)), condition).toEqual([]);
    }
  });

  test("beside them everything else is still checked, at its own place", () => {
    const [problem] = problemsOf(
      guard(
        "context.arguments has id && context.arguments.id == 5 &&\n context.arguments.id == 6 && context.arguments.path > 5",
      ),
    );
    expect(problem).toMatchObject({ line: 2, column: 31 });
    expect(problem?.message).toContain("expected Long but saw String");
  });

  test("a tool with a schema that says nothing takes any name, and one that types the name is still checked", () => {
    const wide =
      'permit (principal, action in Action::"tools/call", resource) when { context.arguments has path && context.arguments.path';
    expect(problemsOf(`${wide} == "x" };`)).toEqual([]);
    expect(problemsOf(`${wide} == 5 };`)).not.toEqual([]);
  });
});

describe("a rule about many tools", () => {
  const odd = {
    name: "odd",
    server: "evil",
    inputSchema: { type: "object", properties: { path: { type: "integer" } } },
  };
  const wide =
    'forbid (principal, action in Action::"tools/call", resource)\nwhen { context.arguments has path && context.arguments.path like "/etc/*" };';

  test("a rule about many tools cannot be kept from loading by one that types an argument otherwise: its calls are denied, with a warning", () => {
    const policy = load(`permit (principal, action, resource);\n${wide}`, [...TOOLS, odd]);
    expect(policy.warnings).toEqual([
      {
        file: "etc/main.cedar",
        line: 3,
        column: 38,
        message: "unexpected type: expected String but saw Long, in odd; calls that get this far will be denied",
        help: 'leave it out with action != Action::"odd" && …',
      },
    ]);
    const resource = { type: "Tool", id: "odd" } as const;
    expect(policy.decide(ask({ path: 5 }, { action: "odd", resource })).effect).toBe("deny");
    expect(policy.decide(ask({}, { action: "odd", resource })).effect).toBe("permit");
    expect(policy.decide(ask({ path: "/srv" })).effect).toBe("permit");
    expect(load(wide.replace("{ context", '{ action != Action::"odd" && context'), [...TOOLS, odd]).warnings).toEqual(
      [],
    );
  });

  test("a rule about many tools is refused where it reads what some of them do not have, because that would deny all their calls", () => {
    const none = { name: "none", server: "s", inputSchema: { type: "object", properties: {} } };
    const unguarded =
      'permit (principal, action in Action::"tools/call", resource) when { context.arguments.path like "/*" };';
    expect(problemsOf(unguarded, TOOLS.slice(0, 1))).toEqual([]);
    expect(problemsOf(unguarded, [...TOOLS.slice(0, 1), none])[0]?.message).toContain("not found");
  });

  test("a rule about many tools is refused where it is wrong for every tool that has the argument, or for one it names", () => {
    expect(problemsOf(wide, [odd, { ...odd, name: "odder" }])).not.toEqual([]);
    const named = wide.replace('in Action::"tools/call"', 'in [Action::"fs.read", Action::"odd"]');
    expect(problemsOf(named, [...TOOLS, odd])).not.toEqual([]);
  });
});

test("names from servers, however odd, cannot make a good policy unloadable", () => {
  const names = ["__cedar", "", "\0", "type", "required", "a b", "in", "é😀", "constructor", '"; permit', "$0", "$$1"];
  const properties = { ...Object.fromEntries(names.map((name) => [name, { type: "string" }])), weird: {} };
  const tools: ToolSummary[] = ['we"ird\\\n', "__cedar", "__proto__", "toString", "Action"].map((name) => ({
    name,
    server: "evil",
    inputSchema: { type: "object", properties },
  }));
  for (const text of [
    "permit (principal, action, resource);",
    'permit (principal, action == Action::"Action", resource) when { context.arguments has weird && context.arguments.weird > 3 && context.arguments has "$0" && context.arguments["$0"] == "x" };',
    'permit (principal, action == Action::"we\\"ird\\\\\\n", resource) when { context.arguments has "a b" && context.arguments["a b"] == "x" };',
    'permit (principal, action == Action::"__proto__", resource) when { context.arguments has "in" && context.arguments["in"] == "x" };',
  ]) {
    expect(problemsOf(text, tools), text).toEqual([]);
  }
});

describe("the set as a whole", () => {
  test("an empty set denies, and says so otherwise than no policy at all", () => {
    const empty = load("// nothing yet\n").decide(ask());
    expect(empty).toMatchObject({ effect: "deny", rules: [], reason: "no policy permits this", errors: [] });
    const none = noPolicy.decide(ask());
    expect(none).toMatchObject({ effect: "deny", rules: [], reason: "no policy is loaded, so everything is denied" });
    expect(noPolicy.outlook(ask())).toBe("never");
    expect(noPolicy.hash).toMatch(/^[0-9a-f]{64}$/);
  });

  test("ids come from @id or from the file, and are unique", () => {
    const set = loadPolicy(
      [
        { file: "etc/b.cedar", text: `\n${READ};\n@id("named")\n${READ};` },
        { file: "etc/a.cedar", text: `${READ};` },
      ],
      TOOLS,
    );
    expect(set.rules.map(({ id, file, line }) => `${id} ${file}:${line}`)).toEqual([
      "b.cedar#1 etc/b.cedar:2",
      "named etc/b.cedar:3",
      "a.cedar#1 etc/a.cedar:1",
    ]);
    const twice = ["a/p.cedar", "b/p.cedar"].map((file) => ({ file, text: `${READ};` }));
    expect(() => loadPolicy(twice, TOOLS)).toThrow(
      'b/p.cedar:1:1: the id p.cedar#1 is taken (by the rule at a/p.cedar:1; add @id("…") or rename the file)',
    );
    expect(problemsOf(`@id("x")\n${READ};\n@id("x")\n${READ};`)[0]).toMatchObject({
      line: 3,
      message: "the id x is taken",
      help: "by the rule at etc/main.cedar:1; give one of them another @id",
    });
  });

  test("more than ten rules in one file keep their own numbers", () => {
    const set = load(
      Array.from({ length: 12 }, (_, i) => `${READ} when { context.arguments.path == "${i}" };`).join("\n"),
    );
    expect(set.decide(ask({ path: "10" })).rules).toEqual([{ id: "main.cedar#11", file: "etc/main.cedar", line: 11 }]);
  });

  test("the hash names the rules and the tools, not their layout or order", () => {
    const a = `@id("a") ${READ} when { context.arguments.path == "x" };`;
    const b = `@id("b") forbid (principal, action, resource);`;
    const hash = load(`${a}\n${b}`).hash;
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(load(`${b} // moved\n\n  ${a}`).hash).toBe(hash);
    expect(load(`${a.replace('"x"', '"y"')}\n${b}`).hash).not.toBe(hash);
    expect(load(`${a}\n${b.replace('@id("b")', '@id("c")')}`).hash).not.toBe(hash);
    expect(load(`${a}\n${b}`, TOOLS.slice(0, 3)).hash).not.toBe(hash);
    const big = (n: string): string =>
      load(`@id("a") ${READ} when { context.arguments has limit && context.arguments.limit < ${n} };`).hash;
    expect(big("9007199254740993")).not.toBe(big("9007199254740992"));
  });

  test("Cedar's warnings are kept", () => {
    const [warning] = load(`${READ} when { false };`).warnings;
    expect(warning?.message).toContain("policy is impossible");
    expect(warning).toMatchObject({ file: "etc/main.cedar", line: 1 });
  });

  test("a byte order mark and Windows line ends are no problem", () => {
    expect(problemsOf(`\uFEFF${READ}\r\nwhen {\r\n context.arguments has nope };`)[0]).toMatchObject({
      line: 3,
      column: 2,
    });
  });
});

test("a policy that is loaded in slices is the one that is loaded at once, and lets others work meanwhile", async () => {
  const tools = Array.from({ length: 3_000 }, (_, i): ToolSummary => {
    const properties = { path: { type: "string" }, [`a${i}`]: { type: "integer" } };
    return { name: `t${i}`, server: "s", inputSchema: { type: "object", properties } };
  });
  const text =
    'permit (principal, action, resource) when { context.arguments has path && context.arguments.path like "/tmp/*" };';
  const sources = [{ file: "a.cedar", text }];
  let turns = 0;
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  turn();
  const set = await loadPolicyInSlices(sources, tools);
  isOver = true;
  expect(turns).toBeGreaterThan(3);
  expect(set.hash).toBe(loadPolicy(sources, tools).hash);
  await expect(loadPolicyInSlices([{ file: "b.cedar", text: "permit (" }], tools)).rejects.toBeInstanceOf(
    PolicyInvalid,
  );
});

describe("thousands of tools with types of their own", () => {
  const typed = (name: string, type: string): ToolSummary => ({
    name,
    server: "many",
    inputSchema: {
      type: "object",
      required: ["at"],
      properties: { at: { type: "object", required: [name, "id"], properties: { [name]: {}, id: { type } } } },
      additionalProperties: false,
    },
  });
  const many = Array.from({ length: 450 }, (_, i) => typed(`tool${i}`, "string"));

  test("thousands of tools with types of their own are checked a part at a time, so that others are served in between", async () => {
    // Loaded at the first use.
    loadPolicy([{ file: "a.cedar", text: "permit (principal, action, resource);" }], []);
    const validate = vi.spyOn(createRequire(import.meta.url)("@cedar-policy/cedar-wasm/nodejs"), "validate");
    const text = `permit (principal, action in Action::"tools/call", resource) when { context.arguments.at.id == "x" };
      permit (principal, action == Action::"tool449", resource) when { context.arguments.at.id == "y" };`;
    await loadPolicyInSlices([{ file: "a.cedar", text }], many);
    const sizes = validate.mock.calls.map(([call]) => {
      const { actions } = (call as { schema: Record<string, { actions: Record<string, { appliesTo?: unknown }> }> })
        .schema[""] as { actions: Record<string, { appliesTo?: unknown }> };
      return Object.values(actions).filter(({ appliesTo }) => appliesTo).length;
    });
    validate.mockRestore();
    expect(Math.max(...sizes)).toBeLessThanOrEqual(100);
    expect(sizes.length).toBeGreaterThanOrEqual(5);
  });

  test("thousands of tools with types of their own are all checked: a wrong type in one of them is found", () => {
    const text = `permit (principal, action in Action::"tools/call", resource) when { context.arguments.at.id like "x*" };`;
    const tools = [...many.slice(0, 300), typed("odd", "integer"), ...many.slice(300)];
    const load = (): unknown => loadPolicy([{ file: "a.cedar", text }], tools).warnings;
    let found: string;
    try {
      found = JSON.stringify(load());
    } catch (error) {
      found = (error as Error).message;
    }
    expect(found).toMatch(/String|Long/);
  });

  test("thousands of tools with types of their own do not make a rule about one of them look as if it applied to nothing", () => {
    const text = `permit (principal, action == Action::"tool7", resource) when { context.arguments.at.id == "y" };`;
    expect(loadPolicy([{ file: "a.cedar", text }], many).warnings).toEqual([]);
  });
});
