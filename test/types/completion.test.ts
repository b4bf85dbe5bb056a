// What an editor offers is what can be called: no tool more, no tool less.

import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { compileAll, inWorld, snippetFolder } from "./compile.js";
import { LanguageServer } from "./language-server.js";

const NAMES = ["createAgent", "files", "ofTools", "planned", "root", "helper", "writer", "closed"];

/** `|` is where the cursor stands. */
const places: [string, string[]][] = [
  [`helper.guard("|")`, ["fs.read", "fs.write"]],
  [`root.guard("|")`, ["fs.read", "fs.remove", "fs.write"]],
  [`root.guard("fs.w|")`, ["fs.read", "fs.remove", "fs.write"]],
  [`helper.call("|")`, ["fs.read", "fs.write"]],
  [`writer.call("|")`, ["fs.write"]],
  [`helper.unchecked("|")`, ["fs.read"]],
  [`root.unchecked("|")`, ["fs.read"]],
  [`writer.unchecked("|")`, []],
  [`helper.delegate("deep", ["|"])`, ["fs.read", "fs.write"]],
  [`helper.delegate("deep", ["fs.read", "|"])`, ["fs.read", "fs.write"]],
  [`helper.handOver("deep", ["|"])`, ["fs.read", "fs.write"]],
  [`helper.delegate("deep", ["fs.read"]).guard("|")`, ["fs.read"]],
  [`root.guard("fs.write", { | })`, ["content", "path"]],
  [`root.guard("fs.write", { path: "a", | })`, ["content"]],
  [`root.unchecked("fs.read", { path: "a", encoding: "|" })`, ["base64", "utf8"]],
  [`ofTools({ names: ["|"] })`, ["fs.read", "fs.remove", "fs.write"]],
  [`ofTools({ names: ["fs.read", "|"] })`, ["fs.read", "fs.remove", "fs.write"]],
  [`planned.|`, ["capabilities", "connect", "id", "phase"]],
  [`root.|`, ["call", "capabilities", "close", "delegate", "guard", "handOver", "id", "phase", "unchecked"]],
  [`closed.|`, ["capabilities", "id", "phase"]],
];

let folder: string;
let server: LanguageServer;
beforeAll(async () => {
  folder = snippetFolder();
  server = await LanguageServer.start(folder);
});
afterAll(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe("completion", () => {
  it.each(places.map(([code, offered], at) => ({ code, offered, at })))(
    "completion offers the expected names at $code",
    async ({ code, offered, at }) => {
      const file = join(folder, `place${at}.ts`);
      const { text, firstLine } = inWorld(NAMES, code.replace("|", ""));
      writeFileSync(file, text);
      server.open(file, text);
      const found = await server.completions(file, firstLine - 1, code.indexOf("|"));
      expect(found.map((label) => label.replace(/\?$/, ""))).toEqual(offered);
    },
  );
});

describe("the types are stricter than the run time can be", () => {
  const world = ["createAgent", "files", "root", "always"];
  const strict: [string, string, RegExp][] = [
    [
      "an agent's id has to be known to the compiler",
      `const name: string = "x";\nroot.delegate(name, ["fs.read"]);`,
      /"an agent's id has to be a literal, so that types can tell agents apart": string/,
    ],
    [
      "the first agent's as well",
      `const name: string = "x";\ncreateAgent(name, files, { app: "shop" });`,
      /"an agent's id has to be a literal, so that types can tell agents apart": string/,
    ],
    [
      "fewer permitted arguments are less authority, and do not pass for more",
      `type A = import("../../src/mcp/client/index.js").Agent<"x", { t: { args: { path: "a" }; result: string } }, "active">;
type B = import("../../src/mcp/client/index.js").Agent<"x", { t: { args: { path: string }; result: string } }, "active">;
const widened = (agent: A): B => agent;`,
      /is not assignable to type/,
    ],
    [
      "a result is what the tool gives",
      `const result = await root.call("fs.read", root.unchecked("fs.read", { path: "a" }));\nconst size: number = result.bytes;`,
      /Property 'bytes' does not exist on type '\{ content: string; \}'/,
    ],
    [
      "a guardrail gets the arguments of its tool",
      `root.delegate("x", ["fs.remove"], { guardrails: { "fs.remove": ({ arguments: { content } }) => content } });`,
      /Property 'content' does not exist on type '\{ path: string; \}'/,
    ],
    [
      "a tool map says what goes in and what comes out",
      `import("../../src/mcp/client/index.js").then(({ toolset }) => toolset<{ t: { args: string } }>());`,
      /does not satisfy the constraint/,
    ],
  ];
  const right = [
    `const worker = (n: number) => root.delegate(\`worker-\${n}\` as const, ["fs.read"]);`,
    `type A = import("../../src/mcp/client/index.js").Agent<"x", { t: { args: { path: string }; result: string }; u: { args: {}; result: 1 } }, "active">;
type B = import("../../src/mcp/client/index.js").Agent<"x", { t: { args: { path: string }; result: string } }, "active">;
const narrowed = (agent: A): B => agent;`,
  ];

  it("each type error that no run-time check can find is reported at its last line, with a reason", () => {
    const complaints = compileAll(world, [...strict.map(([, code]) => code), ...right]);
    const lines = complaints.map((of) => of.map(({ line }) => line));
    expect(lines).toEqual([...strict.map(([, code]) => [code.split("\n").length]), ...right.map(() => [])]);
    for (const [at, [name, , reason]] of strict.entries()) expect(complaints[at]?.[0]?.message, name).toMatch(reason);
  });
});
