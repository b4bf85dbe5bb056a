import { describe, expect, test } from "vitest";
import { loadPolicy } from "../cedar/load.js";
import { PolicyInvalid, type PolicyRequest, type ToolSummary } from "../cedar/types.js";

const TOOLS: readonly ToolSummary[] = [
  {
    name: "mail.send",
    server: "mail",
    inputSchema: {
      type: "object",
      properties: { to: { type: "string" }, size: { type: "integer" } },
      required: ["to"],
      additionalProperties: false,
    },
  },
  { name: "mail.read", server: "mail", inputSchema: { type: "object", properties: {}, additionalProperties: false } },
];

const REQUEST: PolicyRequest = {
  app: "a",
  agent: "b",
  scope: [],
  action: "mail.send",
  resource: { type: "Tool", id: "mail.send" },
  arguments: { to: "x" },
  transport: "stdio",
};

const READ_FIRST = `permit (principal, action == Action::"mail.send", resource)
when temporal {
  formerly within 1h Action::"mail.read"::permitted{ principal: principal }
};
`;

function problemsOf(text: string): string[] {
  try {
    loadPolicy([{ file: "rules.cedar", text }], TOOLS);
    return [];
  } catch (error) {
    if (!(error instanceof PolicyInvalid)) throw error;
    return error.problems.map(({ line, column, message }) => `${line}:${column} ${message}`);
  }
}

function rule(condition: string): string {
  return `permit (principal, action == Action::"mail.send", resource)\nwhen temporal {\n  ${condition}\n};\n`;
}

describe("rules over past events", () => {
  test("are decided by what history says of them, together with the rest of the rule", () => {
    const set = loadPolicy([{ file: "rules.cedar", text: READ_FIRST }], TOOLS);
    expect(set.conditions).toHaveLength(1);
    expect(set.decide({ ...REQUEST, history: () => true }).effect).toBe("permit");
    expect(set.decide({ ...REQUEST, history: () => false }).effect).toBe("deny");
    expect(set.rules[0]?.text).toContain("formerly within 1h");
  });

  test("are denied where history is not available, and where it cannot be read", () => {
    const set = loadPolicy([{ file: "rules.cedar", text: READ_FIRST }], TOOLS);
    expect(set.decide(REQUEST)).toMatchObject({ effect: "deny", reason: expect.stringContaining("not available") });
    const broken = (): boolean => {
      throw new Error("the disk is gone");
    };
    expect(set.decide({ ...REQUEST, history: broken }).effect).toBe("deny");
  });

  test("count their conditions through all files of a set", () => {
    const other = READ_FIRST.replace("1h", "2h");
    const set = loadPolicy(
      [
        { file: "a.cedar", text: READ_FIRST },
        {
          file: "b.cedar",
          text: `forbid (principal, action, resource) when { ${other.slice(other.indexOf("temporal"), -2)} };`,
        },
      ],
      TOOLS,
    );
    expect(set.conditions).toHaveLength(2);
    expect(set.decide({ ...REQUEST, history: (condition) => condition === 0 }).effect).toBe("permit");
    expect(set.decide({ ...REQUEST, history: () => true }).effect).toBe("deny");
  });

  test("change the hash of a set with what they say, and not with how they are laid out", () => {
    const hash = (text: string): string => loadPolicy([{ file: "rules.cedar", text }], TOOLS).hash;
    expect(hash(READ_FIRST.replace("1h", "2h"))).not.toBe(hash(READ_FIRST));
    expect(hash(READ_FIRST.replace("  formerly", "\n\n// often\nformerly"))).toBe(hash(READ_FIRST));
  });

  test("are refused with file, line and column of what is wrong", () => {
    expect(problemsOf(rule(`formerly Action::"mail.read"::request{}`))[0]).toMatch(
      /^3:12 unexpected `Action`, expected `within`/,
    );
    expect(problemsOf(rule(`formerly within 1h Action::"mail.reed"::request{}`))[0]).toBe(
      "3:22 there is no tool or method mail.reed",
    );
    expect(problemsOf(rule(`formerly within 1h Action::"mail.send"::requested{}`))[0]).toBe(
      "3:22 there is no event ::requested",
    );
    expect(problemsOf(rule(`formerly within 1h Action::"mail.send"::request{ arguments.too: "x" }`))[0]).toBe(
      "3:52 mail.send takes no argument arguments.too",
    );
    expect(problemsOf(rule(`formerly within 1h Action::"mail.send"::request{ arguments.to: 5 }`))[0]).toBe(
      "3:52 `arguments.to` of `mail.send` is a String, and a Long is given",
    );
    expect(
      problemsOf(rule(`formerly within 1h Action::"mail.send"::request{ arguments.size: context.arguments.to }`))[0],
    ).toMatch(/is a Long, and a String is given$/);
    expect(problemsOf(rule(`formerly within 1h Action::"mail.send"::request{ arguments.to: who }`))[0]).toBe(
      "3:3 variable `who` is not bound",
    );
  });

  test("are refused where nothing would bound what has to be remembered", () => {
    const condition = `formerly within 1h ((count for (t: Timepoint). where (formerly within 1h
      (Action::"mail.send"::request{ arguments.to: context.arguments.to } && tp(t)))) == 0)`;
    expect(problemsOf(rule(condition))[0]).toMatch(/cannot be kept within bounds/);
    expect(problemsOf(rule(`exists (x: String). !Action::"mail.send"::request{ arguments.to: x }`))[0]).toMatch(
      /can have any value/,
    );
  });

  test("leave positions in the rest of the file as they were", () => {
    const problems = problemsOf(`${READ_FIRST}permit (principal, action == Action::"mail.send", resource)
when temporal { formerly within 1h Action::"mail.read"::request{} } when { context.arguments.too == "x" };`);
    expect(problems[0]).toMatch(/^6:76 /);
  });

  test("can use macros, those of the library and their own", () => {
    const text = `def temporal lately(?event) { formerly within 10m ?event };
forbid (principal, action == Action::"mail.send", resource)
when temporal { count_within(1h, Action::"mail.send"::permitted{ principal: principal }) >= 3 && lately(Action::"mail.read"::request{}) };`;
    expect(problemsOf(text)).toEqual([]);
    expect(problemsOf(text.replace("lately(", "latly(").replace("def temporal latly", "def temporal lately"))).toEqual(
      [],
    );
    expect(problemsOf(text.replace("&& lately", "&& earlier"))[0]).toMatch(/^3:\d+ there is no macro `earlier`/);
  });
});
