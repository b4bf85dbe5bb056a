import { expect, test } from "vitest";
import { Random, randomRequest, WORLD_TOOLS } from "./fixtures/generate.js";
import { loadPolicy } from "./load.js";
import { type ObservedCall, suggestPolicy } from "./suggest.js";
import type { ToolSummary } from "./types.js";

const READ: ToolSummary = {
  name: "fs.read",
  server: "host",
  inputSchema: {
    type: "object",
    required: ["path"],
    properties: {
      path: { type: "string" },
      limit: { type: "integer" },
      rate: { type: "number" },
      force: { type: "boolean" },
      labels: { type: "array", items: { type: "string" } },
    },
  },
};

function call(args: ObservedCall["arguments"], more: Partial<ObservedCall> = {}): ObservedCall {
  const resource = { type: "Tool", id: "fs.read" } as const;
  return { app: "blog", agent: "writer", action: "fs.read", resource, ...(args ? { arguments: args } : {}), ...more };
}

function permits(text: string, calls: readonly ObservedCall[], tools: readonly ToolSummary[]): string[] {
  const policy = loadPolicy([{ file: "suggested.cedar", text }], tools);
  return calls
    .map((each) => policy.decide({ scope: [], transport: "stdio", arguments: {}, ...each }))
    .filter((decision) => decision.effect !== "permit")
    .map((decision) => decision.reason);
}

test("a few values are listed, the rest is shut", () => {
  const text = suggestPolicy([call({ path: "/srv/a" }), call({ path: "/srv/b", limit: 5 })], [READ]);
  expect(text).toContain(`// writer of blog: fs.read, seen 2 times
@id("suggested-1")
permit (
  principal == Agent::"blog/writer",
  action == Action::"fs.read",
  resource == Tool::"fs.read"
)
when {
  !(context.arguments has force) &&
  !(context.arguments has labels) &&
  (if context.arguments has limit then context.arguments.limit == 5 else true) &&
  ["/srv/a", "/srv/b"].contains(context.arguments.path) &&
  !(context.arguments has rate)
};
`);
});

test("many paths become their common folder, without a way out of it; many numbers become a range", () => {
  const calls = Array.from({ length: 20 }, (_, i) => call({ path: `/srv/docs/${i}.txt`, limit: i - 3, rate: i / 4 }));
  const text = suggestPolicy(calls, [READ]);
  expect(text).toContain('context.arguments.path like "/srv/docs/*"');
  expect(text).toContain('!(context.arguments.path like "*..*")');
  expect(text).toContain("context.arguments.limit >= -3");
  expect(text).toContain('context.arguments.rate.lessThanOrEqual(decimal("4.7500"))');
  expect(permits(text, calls, [READ])).toEqual([]);
  expect(permits(text, [call({ path: "/srv/docs/../../etc/passwd", limit: 1, rate: 1 })], [READ])).toHaveLength(1);
  expect(permits(text, [call({ path: "/srv/docs/x", limit: 99, rate: 1 })], [READ])).toHaveLength(1);
});

test("a call without its arguments leaves the arguments free", () => {
  const text = suggestPolicy([call({ path: "/a" }), call(undefined)], [READ]);
  expect(text).not.toContain("context.arguments");
});

test("nothing is said about a value that no rule could read", () => {
  const calls = [call({ path: "/a", limit: null, rate: 1e-9 }), call({ path: "/a", limit: 1, rate: 1 })];
  const text = suggestPolicy(calls, [READ]);
  expect(text).toContain("context.arguments has limit");
  expect(text).not.toContain("context.arguments.limit");
  expect(permits(text, calls, [READ])).toEqual([]);
});

test("names and values from callers stay inside their quotes and comments", () => {
  const evil = 'x"\n};\npermit (principal, action, resource);//\u202e';
  const calls = [call({ path: evil }, { agent: evil })];
  const text = suggestPolicy(calls, [READ]);
  expect(permits(text, calls, [READ])).toEqual([]);
  expect(permits(text, [call({ path: "/etc/passwd" })], [READ])).toEqual(["no policy permits this"]);
});

test("calls that no policy can permit are left out, and said to be", () => {
  const text = suggestPolicy(
    [call({ path: "", x: { __entity: 1 } }), call({}, { action: "gone" }), call({}, { app: "a/b" })],
    [READ],
  );
  expect(text.match(/^\/\/ 1 call left out: .*$/gm)).toHaveLength(3);
  expect(loadPolicy([{ file: "s.cedar", text }], [READ]).rules).toEqual([]);
});

test("resources are listed while they are few", () => {
  const read = (id: string): ObservedCall =>
    call({}, { action: "resources/read", resource: { type: "Resource", id, server: "host" } });
  expect(suggestPolicy([read("file:///a")], [READ])).toContain('resource == Resource::"file:///a"');
  const few = [read("file:///b"), read("file:///a")];
  expect(suggestPolicy(few, [READ])).toContain('[Resource::"file:///a", Resource::"file:///b"].contains(resource)');
  const many = Array.from({ length: 60 }, (_, i) => read(`file:///${i}`));
  const text = suggestPolicy(many, [READ]);
  expect(text).toContain('["host"].contains(resource.server)');
  expect(permits(text, many, [READ])).toEqual([]);
});

test("whatever was seen is permitted by what is suggested, and the suggestion loads", () => {
  for (let seed = 1; seed <= 40; seed++) {
    const random = new Random(seed);
    const calls = Array.from({ length: 1 + random.below(25) }, () => randomRequest(random));
    const text = suggestPolicy(calls, WORLD_TOOLS);
    expect(permits(text, calls, WORLD_TOOLS), `seed ${seed}\n${text}`).toEqual([]);
  }
});

test("what a rule forbade is told and not permitted, what waited for a person still does", () => {
  const SHELL: ToolSummary = { name: "shell.run", server: "host", inputSchema: { type: "object" } };
  const shell = { action: "shell.run", resource: { type: "Tool", id: "shell.run" } } as const;
  const seen = [
    call({ path: "/a" }),
    call({ path: "/b" }, { effect: "deny", rules: [] }),
    call({ path: "/c" }, { effect: "deny", rules: ["guardrail.missing", "read-things"] }),
    call({ path: "/secret" }, { effect: "challenge", rules: ["ask"], approvers: ["oncall"] }),
    call({}, { ...shell, effect: "deny", rules: ['no-shell\n"};permit(principal,action,resource);//'] }),
  ];
  const text = suggestPolicy(seen, [READ, SHELL]);
  const policy = loadPolicy([{ file: "suggested.cedar", text }], [READ, SHELL]);
  const effects = seen.map((each) => policy.decide({ scope: [], transport: "stdio", arguments: {}, ...each }).effect);
  expect(effects).toEqual(["permit", "permit", "permit", "challenge", "deny"]);
  expect(text).toContain("shell.run, seen 1 time: forbidden by no-shell");
  expect(text).toContain("fs.read, seen 3 times, denied 1 time because nothing permitted it");
  expect(text).toContain('@approvers("oncall")');
  expect(policy.rules).toHaveLength(3);
});
