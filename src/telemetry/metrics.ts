// Numbers in plain memory. A name that a caller can choose never makes memory or the scrape grow without end: every
// family has a cap, and what comes after it is counted as `other`.

import type { CallEnd, CallInfo } from "./types.js";

const OTHER = "other";
/** Label values longer than this are cut. */
const MAX_LABEL_CHARS = 128;

export interface Point {
  /** OpenTelemetry attribute names with their values. */
  readonly labels: readonly (readonly [name: string, value: string])[];
  readonly value: number;
  readonly histogram?: HistogramValue;
}

export interface HistogramValue {
  /** One more than the bounds: the last counts what is above all of them. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** How a gauge of several worker processes becomes one; `each` keeps them apart under the label `portcullis.worker`. */
export type Across = "sum" | "max" | "min" | "each";

/** One metric with all its series, in OpenTelemetry's naming. */
export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** UCUM: `s`, `By`, or "" for a plain count. */
  readonly unit: "s" | "By" | "";
  /** For gauges; `sum` unless given. Counters and histograms are always added. */
  readonly across?: Across;
  readonly points: readonly Point[];
}

interface Cell {
  value: number;
}

/** A counter or gauge with at most one label. */
export class Series {
  readonly #cells = new Map<string, Cell>();
  readonly #max: number;
  readonly #about: Omit<Family, "points">;
  readonly #label: string | undefined;

  constructor(about: Omit<Family, "points">, label?: string, max = 64) {
    this.#about = about;
    this.#label = label;
    this.#max = max;
    if (label === undefined) this.#cells.set("", { value: 0 });
  }
  add(by: number, label = ""): void {
    this.#cell(label).value += by;
  }
  inc(label = ""): void {
    this.#cell(label).value++;
  }
  set(value: number, label = ""): void {
    this.#cell(label).value = value;
  }
  family(): Family {
    const points = [...this.#cells].map(([label, cell]) => ({
      labels: this.#label === undefined ? [] : [[this.#label, label] as const],
      value: cell.value,
    }));
    return { ...this.#about, points };
  }
  #cell(label: string): Cell {
    return this.#cells.get(label) ?? openCell(this.#cells, label, this.#max);
  }
}

function openCell(cells: Map<string, Cell>, label: string, max: number): Cell {
  const name = cells.size < max ? label.slice(0, MAX_LABEL_CHARS) : OTHER;
  let cell = cells.get(name);
  if (!cell) cells.set(name, (cell = { value: 0 }));
  return cell;
}

/** Seconds. The convention's bounds begin at 0.01; a gateway wants to see below that as well. */
export const FINE_BOUNDS = [0.001, 0.002, 0.005] as const;
export const CONVENTION_BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;
export const BOUNDS: readonly number[] = [...FINE_BOUNDS, ...CONVENTION_BOUNDS];

export class Histogram implements HistogramValue {
  readonly counts: number[] = Array.from({ length: BOUNDS.length + 1 }, () => 0);
  sum = 0;
  count = 0;
  record(seconds: number): void {
    let i = 0;
    while (i < BOUNDS.length && seconds > (BOUNDS[i] as number)) i++;
    this.counts[i] = (this.counts[i] as number) + 1;
    this.sum += seconds;
    this.count++;
  }
}

interface ToolSeries {
  readonly name: string;
  readonly ok: Histogram;
  readonly failed: Map<string, Histogram>;
}

interface MethodSeries {
  readonly name: string;
  readonly permit: Map<string, Cell>;
  readonly deny: Map<string, Cell>;
  readonly challenge: Map<string, Cell>;
  readonly tools: Map<string, ToolSeries>;
  bytes: number;
}

/** What the ledger says of itself when it is asked. */
export interface LedgerFigures {
  readonly size: number;
  readonly pending: number;
  readonly openCalls: number;
  readonly healthy: boolean;
}

/** Failures that can only follow the lookup of a real tool; others may carry a name that the caller made up. */
const AFTER_LOOKUP = new Set(["PolicyDeny", "GuardrailBlocked", "RateLimited", "ValidationError", "AuditFailure"]);

const MAX_METHODS = 64;
const MAX_OUTCOMES = 16;
const MAX_ERROR_TYPES = 40;
const MAX_RULES = 200;
/** Histograms in all, whatever the mix of tools and errors. */
const MAX_HISTOGRAMS = 1_000;

function counter(name: string, help: string, label?: string, max?: number): Series {
  return new Series({ name, help, type: "counter", unit: "" }, label, max);
}

export class Metrics {
  readonly denials = counter("portcullis.denials", "Calls denied, by deciding rule", "portcullis.rule", MAX_RULES);
  readonly challenges = counter(
    "portcullis.challenges",
    "Calls that wait for a person, by rule",
    "portcullis.rule",
    MAX_RULES,
  );
  readonly unauthenticated = counter("portcullis.unauthenticated", "Requests refused for want of a valid credential");
  readonly connections = new Series(
    { name: "portcullis.connections", help: "Open connections, by transport", type: "gauge", unit: "" },
    "portcullis.transport",
  );
  readonly ledgerFailures = counter(
    "portcullis.ledger.failures",
    "Calls and answers that stopped because they could not be recorded",
  );
  readonly droppedFields = counter(
    "portcullis.forward.dropped",
    "Fields of requests that were not forwarded, because the server's `forward` setting does not list them",
  );
  readonly policyReloads = counter("portcullis.policy.reloads", "Policies swapped in");
  readonly policyRefusals = counter("portcullis.policy.refusals", "New policies that were refused; the old one stayed");
  readonly telemetryDropped = counter("portcullis.telemetry.dropped", "Items given up, by signal", "portcullis.signal");

  #inFlight = 0;
  #histograms = 0;
  readonly #methods = new Map<string, MethodSeries>();
  readonly #maxTools: number;
  readonly #tools = new Set<string>();
  readonly #sources: (() => Family[])[] = [];
  #ledger: () => Family[] = () => [];

  constructor(maxTools = 100) {
    this.#maxTools = maxTools;
  }

  /** The ledger's own figures, asked for at every scrape; appends are counted from now on. */
  watchLedger(figures: () => LedgerFigures): void {
    const { size } = figures();
    this.#ledger = () => ledgerFamilies(figures(), size);
  }

  /** More families, asked for at every scrape. */
  addSource(source: () => Family[]): void {
    this.#sources.push(source);
  }

  callStarted(): void {
    this.#inFlight++;
  }

  callEnded(info: CallInfo, end: CallEnd): void {
    this.#inFlight--;
    const real = end.effect !== "deny" || end.errorType === undefined || AFTER_LOOKUP.has(end.errorType);
    const method = this.#methods.get(info.method) ?? this.#openMethod(info.method, real);
    const outcomes = method[end.effect];
    (outcomes.get(end.outcome) ?? openCell(outcomes, end.outcome, MAX_OUTCOMES)).value++;
    method.bytes += end.bytes;
    if (end.effect === "deny") this.denials.inc(end.rule ?? "none");
    else if (end.effect === "challenge") this.challenges.inc(end.rule ?? "none");
    const tool = method.tools.get(info.tool) ?? this.#openTool(method, info.tool, real);
    const failure = failureOf(end);
    if (failure === "AuditFailure") this.ledgerFailures.inc();
    const histogram = failure === undefined ? tool.ok : this.#failures(tool, failure);
    const seconds = end.latencyMs / 1000;
    histogram.record(seconds > 0 ? seconds : 0);
  }

  families(): Family[] {
    const methods = [...this.#methods.values()];
    return [
      {
        name: "portcullis.calls",
        help: "Calls, by what was decided and how they ended",
        type: "counter",
        unit: "",
        points: methods.flatMap(callPoints),
      },
      {
        name: "mcp.server.operation.duration",
        help: "Time from a request's arrival to its answer",
        type: "histogram",
        unit: "s",
        points: methods.flatMap(durationPoints),
      },
      {
        name: "portcullis.response.size",
        help: "Bytes answered",
        type: "counter",
        unit: "By",
        points: methods.map(({ name, bytes }) => ({ labels: [["mcp.method.name", name]], value: bytes })),
      },
      {
        name: "portcullis.calls.in_flight",
        help: "Calls under way",
        type: "gauge",
        unit: "",
        points: [{ labels: [], value: this.#inFlight }],
      },
      ...[
        this.denials,
        this.challenges,
        this.unauthenticated,
        this.connections,
        this.ledgerFailures,
        this.droppedFields,
        this.policyReloads,
        this.policyRefusals,
        this.telemetryDropped,
      ].map((series) => series.family()),
      ...this.#ledger(),
      ...this.#sources.flatMap((source) => source()),
    ];
  }

  #openMethod(asked: string, real: boolean): MethodSeries {
    const name = real && this.#methods.size < MAX_METHODS ? asked.slice(0, MAX_LABEL_CHARS) : OTHER;
    let method = this.#methods.get(name);
    if (!method) {
      method = { name, permit: new Map(), deny: new Map(), challenge: new Map(), tools: new Map(), bytes: 0 };
      this.#methods.set(name, method);
    }
    return method;
  }

  #openTool(method: MethodSeries, asked: string, real: boolean): ToolSeries {
    const name = asked === "" || !hasTarget(method.name) ? "" : this.#toolName(asked, real);
    let tool = method.tools.get(name);
    if (!tool) {
      this.#histograms++;
      tool = { name, ok: new Histogram(), failed: new Map() };
      method.tools.set(name, tool);
    }
    return tool;
  }

  #toolName(asked: string, real: boolean): string {
    if (this.#tools.has(asked)) return asked;
    if (!real || this.#tools.size >= this.#maxTools || this.#histograms >= MAX_HISTOGRAMS) return OTHER;
    if (asked.length > MAX_LABEL_CHARS) return OTHER;
    this.#tools.add(asked);
    return asked;
  }

  #failures(tool: ToolSeries, errorType: string): Histogram {
    let histogram = tool.failed.get(errorType);
    if (histogram) return histogram;
    const full = tool.failed.size >= MAX_ERROR_TYPES || this.#histograms >= MAX_HISTOGRAMS;
    const name = full ? "_OTHER" : errorType.slice(0, MAX_LABEL_CHARS);
    histogram = tool.failed.get(name);
    if (!histogram) {
      this.#histograms++;
      histogram = new Histogram();
      tool.failed.set(name, histogram);
    }
    return histogram;
  }
}

/** A tool that answered with `isError` has failed, though the protocol has not. */
export function failureOf(end: CallEnd): string | undefined {
  return end.errorType ?? (end.outcome === "tool_error" ? "ToolExecution" : undefined);
}

/** A resource's URI is an argument and without bound, so only tools and prompts are named. */
export function hasTarget(method: string): boolean {
  return !method.startsWith("resources/") && !method.startsWith("completion/") && !method.startsWith("notifications/");
}

function ledgerFamilies(now: LedgerFigures, sizeAtStart: number): Family[] {
  const one = (name: string, help: string, type: "counter" | "gauge", value: number): Family => {
    return { name, help, type, unit: "", points: [{ labels: [], value }] };
  };
  return [
    one("portcullis.ledger.appends", "Records made durable since the start", "counter", now.size - sizeAtStart),
    one("portcullis.ledger.pending", "Records that wait for the disk", "gauge", now.pending),
    one("portcullis.ledger.open_calls", "Permitted calls without an outcome yet", "gauge", now.openCalls),
    {
      ...one("portcullis.ledger.healthy", "1 while records can be written, otherwise 0", "gauge", now.healthy ? 1 : 0),
      across: "min",
    },
  ];
}

function callPoints(method: MethodSeries): Point[] {
  return (["permit", "deny", "challenge"] as const).flatMap((effect) =>
    [...method[effect]].map(([outcome, cell]) => ({
      labels: [
        ["mcp.method.name", method.name],
        ["portcullis.effect", effect],
        ["portcullis.outcome", outcome],
      ] as const,
      value: cell.value,
    })),
  );
}

function durationPoints(method: MethodSeries): Point[] {
  return [...method.tools.values()].flatMap((tool) => {
    const labels: [string, string][] = [["mcp.method.name", method.name]];
    if (tool.name !== "")
      labels.push([method.name === "prompts/get" ? "gen_ai.prompt.name" : "gen_ai.tool.name", tool.name]);
    if (method.name === "tools/call") labels.push(["gen_ai.operation.name", "execute_tool"]);
    const points: Point[] = [];
    if (tool.ok.count > 0) points.push({ labels, value: tool.ok.count, histogram: tool.ok });
    for (const [errorType, histogram] of tool.failed) {
      points.push({ labels: [...labels, ["error.type", errorType]], value: histogram.count, histogram });
    }
    return points;
  });
}
