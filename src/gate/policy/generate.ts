// For tests alone: random policies and requests that exercise every operator, well typed and badly typed alike.
// Reproducible from a seed, so that a failure can be looked at again.

import type { JsonObject, JsonValue } from "../../protocol/index.js";
import { quote } from "./language/scan.js";
import type { PolicyRequest, ToolSummary } from "./types.js";

export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }
  chance(probability: number): boolean {
    return this.next() < probability;
  }
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }
  many<T>(max: number, make: () => T): T[] {
    return Array.from({ length: this.below(max + 1) }, make);
  }
}

export const WORLD_TOOLS: readonly ToolSummary[] = [
  {
    name: "fs.read",
    server: "host",
    tags: ["files"],
    readOnly: true,
    inputSchema: {
      type: "object",
      required: ["path"],
      properties: {
        path: { type: "string" },
        limit: { type: "integer" },
        amount: { type: "number" },
        force: { type: "boolean" },
        labels: { type: "array", items: { type: "string" } },
        counts: { type: "array", items: { type: "integer" } },
        options: {
          type: "object",
          properties: { mode: { type: "string" }, depth: { type: "integer" }, rate: { type: "number" } },
        },
      },
    },
  },
  { name: "fs.write", server: "host", tags: ["files", "danger"], inputSchema: { type: "object" } },
  { name: "net.get", server: "web", inputSchema: { type: "object", properties: { amount: { type: "number" } } } },
];

const STRINGS = ["", "a", "/srv/docs/a.txt", "/etc/passwd", "*", "a*b", "é😀", 'q"\\', "line\nbreak", "/srv/", "ab"];
const LONGS = ["0", "1", "-1", "2", "7", "100", "9007199254740993", "9223372036854775807", "-9223372036854775808"];
const DECIMALS = ["0.0", "1.5", "-1.5", "10.25", "0.0001", "922337203685477.5807", "-0.5", "1.50"];
const BAD_DECIMALS = ["1", "1.", ".5", "1.23456", "abc", "922337203685477.5808", "1.5 "];
const IPS = [
  "127.0.0.1",
  "10.0.0.0/8",
  "10.1.2.3",
  "::1",
  "ff00::/8",
  "ff02::1",
  "224.0.0.1",
  "1:2::8",
  "::/0",
  "10.1.2.3/24",
];
const BAD_IPS = ["256.1.1.1", "01.1.1.1", "::ffff:1.2.3.4", "1:2", "10.0.0.0/33", "10.0.0.0/08", "", "1::2::3"];
const DATES = [
  "2024-01-01",
  "2024-02-29T23:59:59Z",
  "1969-12-31T00:00:00.001Z",
  "2024-01-01T00:00:00+0130",
  "0001-01-01",
];
const BAD_DATES = ["2023-02-29", "2024-1-1", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00+2400"];
const DURATIONS = ["1h", "-1d2h3m4s5ms", "0ms", "90s", "9223372036854775807ms", "1000000d"];
const BAD_DURATIONS = ["", "-", "1h1d", "1", "9223372036854775808ms", "1.5h"];
const ARGUMENTS = ["path", "limit", "amount", "force", "labels", "counts", "options", "missing", "we ird"];
const ENTITIES = [
  'Agent::"a/x"',
  'Agent::"b/y"',
  'App::"a"',
  'App::"b"',
  'Tool::"fs.read"',
  'Tool::"fs.write"',
  'Server::"host"',
  'Tag::"files"',
  'Tag::"danger"',
  'Action::"fs.read"',
  'Action::"net.get"',
  'Action::"tools/call"',
  'Resource::"file:///a"',
  'Method::"logging/setLevel"',
  'Some::Other::"x"',
];

/** Expressions of a wanted type, with a slip into another type now and then. */
export class PolicyWriter {
  readonly #random: Random;
  constructor(random: Random) {
    this.#random = random;
  }

  policy(): string {
    const random = this.#random;
    const effect = random.chance(0.6) ? "permit" : "forbid";
    const clauses = random.many(2, () => {
      const kind = random.chance(0.7) ? "when" : "unless";
      return ` ${kind} { ${this.bool(3)} }`;
    });
    const comment = random.chance(0.1) ? '// a comment; with }{ "marks\n' : "";
    return `${comment}${effect} (${this.#principal()}, ${this.#action()}, ${this.#resource()})${clauses.join("")};`;
  }

  #principal(): string {
    if (this.#random.chance(0.6)) return "principal";
    return this.#random.pick([
      'principal == Agent::"a/x"',
      'principal in App::"a"',
      "principal is Agent",
      'principal is Agent in App::"b"',
      "principal is App",
    ]);
  }
  #action(): string {
    if (this.#random.chance(0.6)) return "action";
    return this.#random.pick([
      'action == Action::"fs.read"',
      'action in Action::"tools/call"',
      'action in [Action::"fs.write", Action::"net.get"]',
      'action in [Action::"resources/read", Action::"tools/call"]',
    ]);
  }
  #resource(): string {
    if (this.#random.chance(0.6)) return "resource";
    return this.#random.pick([
      'resource == Tool::"fs.read"',
      'resource in Server::"host"',
      'resource in Tag::"danger"',
      "resource is Tool",
      'resource is Tool in Server::"web"',
      "resource is Prompt",
    ]);
  }

  bool(depth: number): string {
    const random = this.#random;
    if (random.chance(0.03)) return this.any(depth - 1);
    if (depth <= 0) return random.pick(["true", "false", "context.approved", "context.arguments.force", this.#has()]);
    const d = depth - 1;
    const makers: (() => string)[] = [
      () => `(${this.bool(d)} && ${this.bool(d)})`,
      () => `(${this.bool(d)} || ${this.bool(d)})`,
      () => `!(${this.bool(d)})`,
      () => `(if ${this.bool(d)} then ${this.bool(d)} else ${this.bool(d)})`,
      () => this.#has(),
      () => `${this.string(d)} like ${this.#pattern()}`,
      () => `${this.long(d)} ${random.pick(["<", "<=", ">", ">=", "==", "!="])} ${this.long(d)}`,
      () => `${this.any(d)} ${random.pick(["==", "!="])} ${this.any(d)}`,
      () => `${this.string(d)} == ${this.string(d)}`,
      () => `${this.set(d)}.contains(${this.any(d)})`,
      () => `${this.set(d)}.${random.pick(["containsAll", "containsAny"])}(${this.set(d)})`,
      () => `${this.set(d)} == ${this.set(d)}`,
      () => `${this.set(d)}.isEmpty()`,
      () => `${this.entity(d)} in ${random.chance(0.6) ? this.entity(d) : this.#entitySet(d)}`,
      () => `${this.entity(d)} is ${random.pick(["Agent", "Tool", "App", "Some::Other"])}`,
      () => `${this.entity(d)} is ${random.pick(["Agent", "Tool"])} in ${this.entity(d)}`,
      () => `${this.entity(d)} has ${random.pick(["app", "scope", "server", "tags", "nothing"])}`,
      () => `${this.entity(d)}.hasTag(${this.string(d)})`,
      () =>
        `${this.decimal(d)}.${random.pick(["lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"])}(${this.decimal(d)})`,
      () => `${this.ip()}.${random.pick(["isIpv4", "isIpv6", "isLoopback", "isMulticast"])}()`,
      () => `${this.ip()}.isInRange(${this.ip()})`,
      () => `${this.#datetime(d)} ${random.pick(["<", "<=", ">", ">=", "=="])} ${this.#datetime(d)}`,
      () => `${this.#duration(d)} ${random.pick(["<", "<=", ">", ">=", "=="])} ${this.#duration(d)}`,
      () => `${this.record(d)} == ${this.record(d)}`,
    ];
    return random.pick(makers)();
  }

  #has(): string {
    return this.#random.pick([
      "context.arguments has path",
      "context.arguments has limit",
      "context.arguments has options",
      "context.arguments has options.mode",
      'context.arguments has "we ird"',
      "context.arguments.options has depth",
      "context has arguments",
      "context has approved",
      "context has nothing",
      "context.arguments.path has x",
    ]);
  }

  #pattern(): string {
    return this.#random.pick([
      '"*"',
      '"/srv/*"',
      '"/srv/*/*.txt"',
      '"a\\*b"',
      '"*a*"',
      '""',
      '"é*"',
      '"*😀"',
      '"**a"',
      '"\\u{2a}b"',
    ]);
  }

  string(depth: number): string {
    const random = this.#random;
    if (random.chance(0.04)) return this.any(depth - 1);
    return random.pick([
      () => quote(random.pick(STRINGS)),
      () => "context.arguments.path",
      () => "context.arguments.options.mode",
      () => 'context.arguments["we ird"]',
      () => "context.transport",
      () => "principal.app",
      () => "principal.agent",
      () => "resource.server",
      () =>
        depth > 0
          ? `(if ${this.bool(depth - 1)} then ${this.string(depth - 1)} else ${this.string(depth - 1)})`
          : '"z"',
    ])();
  }

  long(depth: number): string {
    const random = this.#random;
    if (random.chance(0.04)) return this.any(depth - 1);
    if (depth <= 0)
      return random.pick([random.pick(LONGS), "context.arguments.limit", "context.arguments.options.depth"]);
    const d = depth - 1;
    return random.pick([
      () => random.pick(LONGS),
      () => "context.arguments.limit",
      () => `(${this.long(d)} ${random.pick(["+", "-", "*"])} ${this.long(d)})`,
      () => `-(${this.long(d)})`,
      () => `-${this.long(d)}`,
      () => `${this.#duration(d)}.${random.pick(["toDays", "toHours", "toMinutes", "toSeconds", "toMilliseconds"])}()`,
      () => `${this.record(d)}.${random.pick(["a", "b", "c"])}`,
    ])();
  }

  decimal(depth: number): string {
    const random = this.#random;
    if (random.chance(0.04)) return this.any(depth - 1);
    return random.pick([
      () => `decimal("${random.pick(DECIMALS)}")`,
      () => `decimal("${random.pick(DECIMALS)}")`,
      () => "context.arguments.amount",
      () => "context.arguments.options.rate",
      () => `decimal("${random.pick(BAD_DECIMALS)}")`,
    ])();
  }

  ip(): string {
    const random = this.#random;
    return `ip("${random.pick(random.chance(0.85) ? IPS : BAD_IPS)}")`;
  }

  #datetime(depth: number): string {
    const random = this.#random;
    const plain = `datetime("${random.pick(random.chance(0.9) ? DATES : BAD_DATES)}")`;
    if (depth <= 0) return plain;
    return random.pick([
      () => plain,
      () => `${this.#datetime(depth - 1)}.offset(${this.#duration(depth - 1)})`,
      () => `${this.#datetime(depth - 1)}.toDate()`,
    ])();
  }

  #duration(depth: number): string {
    const random = this.#random;
    const plain = `duration("${random.pick(random.chance(0.9) ? DURATIONS : BAD_DURATIONS)}")`;
    if (depth <= 0) return plain;
    return random.pick([
      () => plain,
      () => `${this.#datetime(depth - 1)}.durationSince(${this.#datetime(depth - 1)})`,
      () => `${this.#datetime(depth - 1)}.toTime()`,
    ])();
  }

  set(depth: number): string {
    const random = this.#random;
    if (random.chance(0.04)) return this.any(depth - 1);
    return random.pick([
      () => "context.arguments.labels",
      () => "context.arguments.counts",
      () => "principal.scope",
      () => "resource.tags",
      () => `[${random.many(3, () => quote(random.pick(STRINGS))).join(", ")}]`,
      () => `[${random.many(3, () => this.long(0)).join(", ")}]`,
      () => `[${random.many(10, () => random.pick(["1", "2", "7", '"a"', '"ab"'])).join(", ")}]`,
      () => `[${random.many(3, () => this.any(depth - 1)).join(", ")}]`,
    ])();
  }

  #entitySet(depth: number): string {
    return `[${this.#random.many(3, () => this.entity(depth - 1)).join(", ")}]`;
  }

  entity(depth: number): string {
    const random = this.#random;
    if (random.chance(0.04)) return this.any(depth - 1);
    return random.pick(["principal", "resource", "action", random.pick(ENTITIES), random.pick(ENTITIES)]);
  }

  record(depth: number): string {
    const random = this.#random;
    if (depth <= 0) return random.pick(["{}", "{a: 1}", "context.arguments.options", "context", "context.arguments"]);
    const names = random.pick([["a"], ["a", "b"], ["b", '"c d"'], []]);
    return `{${names.map((name) => `${name}: ${this.any(depth - 1)}`).join(", ")}}`;
  }

  any(depth: number): string {
    const d = depth - 1;
    return this.#random.pick([
      () => `(${this.bool(d)})`,
      () => this.string(d),
      () => `(${this.long(d)})`,
      () => this.set(d),
      () => this.entity(d),
      () => this.decimal(d),
      () => this.ip(),
      () => this.#datetime(d),
      () => this.#duration(d),
      () => this.record(d),
      () => "principal.nothing",
      () => `${this.entity(d)}.getTag("t")`,
    ])();
  }
}

export function randomRequest(random: Random): PolicyRequest {
  const action = random.pick(["fs.read", "fs.read", "fs.write", "net.get", "resources/read", "logging/setLevel"]);
  const app = random.pick(["a", "b"]);
  return {
    app,
    agent: random.pick(["x", "y"]),
    scope: random.many(2, () => random.pick(["a", "ab", "admin"])),
    action,
    resource: resourceFor(action, random),
    arguments: randomArguments(random),
    transport: random.pick(["stdio", "http", "a"]),
  };
}

function resourceFor(action: string, random: Random): PolicyRequest["resource"] {
  if (action === "resources/read") return { type: "Resource", id: "file:///a", server: random.pick(["host", "web"]) };
  if (action === "logging/setLevel") return { type: "Method", id: action };
  return {
    type: "Tool",
    id: action,
    server: random.pick(["host", "web"]),
    tags: random.many(2, () => random.pick(["files", "danger"])),
    readOnly: random.chance(0.5),
  };
}

/** Arguments that all have a Cedar form, mostly of the types the tools declare. */
export function randomArguments(random: Random): JsonObject {
  const values: Readonly<Record<string, () => JsonValue>> = {
    path: () => random.pick(STRINGS),
    limit: () => random.pick([0, 1, 7, 100, -1, 900_000_000_000_000]),
    amount: () => random.pick([0, 1, 1.5, -1.5, 10.25, 0.0001]),
    force: () => random.chance(0.5),
    labels: () => random.many(3, () => random.pick(STRINGS)),
    counts: () => random.many(12, () => random.below(8)),
    options: () => randomOptions(random),
    "we ird": () => random.pick(STRINGS),
  };
  const result: JsonObject = {};
  for (const name of ARGUMENTS) {
    const make = values[name];
    if (!make || random.chance(0.3)) continue;
    const other = random.pick(Object.values(values));
    result[name] = random.chance(0.06) ? other() : make();
  }
  return result;
}

function randomOptions(random: Random): JsonObject {
  const options: JsonObject = {};
  if (random.chance(0.7)) options.mode = random.pick(STRINGS);
  if (random.chance(0.7)) options.depth = random.below(4);
  if (random.chance(0.5)) options.rate = random.pick([1, 1.5, 0.25]);
  return options;
}
