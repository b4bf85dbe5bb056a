import { Ajv } from "ajv";
import { describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import { analyse } from "../workflow/analyse.js";
import { parseWorkflow } from "../workflow/parse.js";
import { tell } from "./picture.js";
import { toSvg } from "./svg.js";
import { toDot, toJson, toMermaid, toSarif } from "./text.js";

const TEXT = `servers:
  vault:
    tools:
      - name: read
        inputSchema: { type: object, properties: { path: { type: string } }, required: [path] }
  net:
    tools: [{ name: send }]
agents:
  boss: { servers: [vault, net] }
  reader: { servers: [vault] }
  "<mailer & \\"co\\">":
    servers: [vault, net]
    allow:
      net.send: true
      vault.read: { properties: { path: { pattern: "^/public/" } } }
delegations:
  - { from: boss, to: reader }
  - { from: boss, to: "<mailer & \\"co\\">", tools: [net.send] }
  - from: reader
    to: "<mailer & \\"co\\">"
rules:
  - { name: no leak, never: [vault.read, net.send], except: [boss] }
`;
const workflow = parseWorkflow(TEXT);
const violations = analyse(workflow, { validator: ajvValidator() }).violations();
const mailer = '<mailer & "co">';

describe("reports", () => {
  it("reports tell a violation with its way and an argument that the allow list rejects", () => {
    expect(violations.map((violation) => violation.kind)).toEqual(["allow", "rule", "rule"]);
    expect(tell(violations[0] as never)).toBe(
      `\`${mailer}\` can come to hold \`vault.read\` with arguments that its allow list does not have: {"path":""}, by \`boss\` → \`reader\` → \`${mailer}\``,
    );
    expect(violations[1]).toMatchObject({
      rule: "no leak",
      agent: "reader",
      terms: [{ agents: ["reader"] }, { agents: ["reader", mailer] }],
    });
  });

  it("reports mark the offending ways in Mermaid and DOT and escape names", () => {
    const mermaid = toMermaid(workflow, violations);
    expect(mermaid).toContain('a2["&lt;mailer &amp; &quot;co&quot;>"]:::offending');
    expect(mermaid).toContain("a0 ==> a1");
    expect(mermaid).toContain("linkStyle 0,1,2 stroke:#c81e1e");
    const dot = toDot(workflow, violations);
    expect(dot).toContain('a2 [label="<mailer & \\"co\\">"');
    expect(dot).toContain('a1 -> a2 [color="#c81e1e", penwidth=3];');
    expect(toDot(workflow)).not.toContain('c81e1e", penwidth=3');
  });

  it("reports say of a capability that the allow list does not name just that", () => {
    const found = analyse(
      parseWorkflow(
        "servers: { s: { tools: [{ name: x }, { name: y }] } }\nagents: { a: { servers: [s], allow: [s.y] } }\n",
      ),
      { validator: ajvValidator() },
    ).violations();
    expect(found.map(tell)).toEqual([
      "`a` can come to hold `s.x`, which its allow list does not name, by its own authority",
    ]);
  });

  it("reports draw nothing that moves a cursor or turns a line round", () => {
    const name = "\u001b]0;title\u0007\u009b31m\u202eerised";
    const odd = parseWorkflow(
      JSON.stringify({
        servers: { s: { tools: [{ name }] } },
        agents: { [name]: { servers: ["s"], allow: [`s.${name}`] }, b: { servers: ["s"] } },
        delegations: [{ from: name, to: "b", tools: [`s.${name}`] }],
      }),
    );
    for (const draw of [toSvg, toDot, toMermaid]) {
      expect(draw(odd)).toContain("title");
      expect(draw(odd)).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
    }
  });

  it("reports carry everything in JSON", () => {
    const report = JSON.parse(toJson(workflow, violations)) as { verdict: string; violations: { agent: string }[] };
    expect(report.verdict).toBe("violations");
    expect(report.violations[0]).toMatchObject({
      agent: mailer,
      grant: { delegations: [0, 2], argument: { value: { path: "" } } },
    });
    expect(JSON.parse(toJson(workflow))).toMatchObject({ verdict: "clean", violations: [] });
  });

  it("reports are SARIF 2.1.0 with the line of the agent and the delegations as a flow", () => {
    const log = JSON.parse(toSarif(workflow, violations, { uri: "workflow.yaml", version: "1.0.0" })) as {
      version: string;
      runs: {
        results: {
          locations: { physicalLocation: { region: { startLine: number } } }[];
          codeFlows: { threadFlows: { locations: unknown[] }[] }[];
        }[];
      }[];
    };
    expect(log.version).toBe("2.1.0");
    const first = log.runs[0]?.results[0];
    expect(first?.locations[0]?.physicalLocation.region.startLine).toBe(11);
    expect(first?.codeFlows[0]?.threadFlows[0]?.locations).toHaveLength(2);
    // The parts of the SARIF 2.1.0 schema (OASIS) that code hosts insist on.
    const required = new Ajv({ strict: false }).compile({
      type: "object",
      required: ["version", "runs"],
      properties: {
        runs: {
          items: {
            required: ["tool", "results"],
            properties: {
              tool: { required: ["driver"], properties: { driver: { required: ["name"] } } },
              results: {
                items: {
                  required: ["message", "ruleId"],
                  properties: {
                    message: { required: ["text"] },
                    ruleIndex: { type: "integer", minimum: 0 },
                    level: { enum: ["none", "note", "warning", "error"] },
                  },
                },
              },
            },
          },
        },
      },
    });
    expect(required(log)).toBe(true);
  });

  it("reports draw fifty agents without boxes on top of each other, well formed", () => {
    const agents = Array.from(
      { length: 50 },
      (_, i) => `  agent-${i}: { servers: [s]${i % 7 === 6 ? ", allow: [s.a]" : ""} }`,
    ).join("\n");
    const edges = Array.from(
      { length: 90 },
      (_, i) => `  - { from: agent-${(i * 7) % 25}, to: agent-${1 + ((i * 11) % 49)} }`,
    ).join("\n");
    const big = parseWorkflow(
      `servers:\n  s: { tools: [{ name: a }, { name: b }] }\nagents:\n${agents}\ndelegations:\n${edges}\n`,
    );
    const found = analyse(big, { validator: ajvValidator() }).violations();
    const svg = toSvg(big, found);
    expect(found.length).toBeGreaterThan(0);
    const boxes = [
      ...svg.matchAll(/<rect class="box[^"]*" x="([\d.]+)" y="([\d.]+)" width="(\d+)" height="(\d+)"/g),
    ].map((m) => m.slice(1).map(Number));
    expect(boxes).toHaveLength(50);
    for (const [i, [x = 0, y = 0, w = 0, h = 0]] of boxes.entries()) {
      for (const [x2 = 0, y2 = 0] of boxes.slice(i + 1))
        expect(Math.abs(x - x2) >= w || Math.abs(y - y2) >= h).toBe(true);
    }
    expect(svg).toContain('class="edge marked"');
    const back = [...svg.matchAll(/ d="M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H([\d.]+)V([\d.]+)H([\d.]+)"/g)].map((m) =>
      m.slice(1).map(Number),
    );
    expect(back.length).toBeGreaterThan(5);
    const [, width = 0, height = 0] = /viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(svg)?.map(Number) ?? [];
    for (const [x1 = 0, y1 = 0, x3 = 0, y3 = 0, x5 = 0, y6 = 0, x7 = 0] of back) {
      const corners = [
        [x1, y1],
        [x3, y1],
        [x3, y3],
        [x5, y3],
        [x5, y6],
        [x7, y6],
      ] as const;
      for (const [i, [ax, ay]] of corners.slice(1).entries()) {
        const [bx, by] = corners[i] as readonly [number, number];
        expect(ax > 0 && ax < width && ay > 0 && ay < height).toBe(true);
        const isClear = ([x = 0, y = 0, w = 0, h = 0]: number[]): boolean =>
          Math.max(ax, bx) <= x || Math.min(ax, bx) >= x + w || Math.max(ay, by) <= y || Math.min(ay, by) >= y + h;
        expect(boxes.every(isClear)).toBe(true);
      }
    }
    expect(svg.match(/<g>/g)?.length).toBe(svg.match(/<\/g>/g)?.length);
    expect(toSvg(workflow, violations)).toContain("&lt;mailer &amp; &quot;co&quot;&gt;");
  });
});
