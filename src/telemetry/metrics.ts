// Numbers in plain memory. A name that a caller can choose never makes memory or the scrape grow without end: every
// family has a cap, and what comes after it is counted as `other`.

import {
  type Family,
  gauge,
  Histogram,
  LabelledCounter,
  LabelledHistogram,
  MAX_LABEL_CHARS,
  OTHER,
  openCell,
  type Point,
  Series,
  type SeriesCell,
} from "./series.js";
import type { CallEnd, CallInfo } from "./types.js";

interface ToolSeries {
  readonly name: string;
  readonly ok: Histogram;
  readonly failed: Map<string, Histogram>;
}

interface MethodSeries {
  readonly name: string;
  readonly permit: Map<string, SeriesCell>;
  readonly deny: Map<string, SeriesCell>;
  readonly challenge: Map<string, SeriesCell>;
  readonly tools: Map<string, ToolSeries>;
  bytes: number;
}

/** `LedgerFigures` are read from the ledger at every scrape. */
export interface LedgerFigures {
  readonly size: number;
  readonly pending: number;
  readonly openCalls: number;
  readonly healthy: boolean;
  /** How long the oldest record that is not durable has waited. */
  readonly flushLagMs: number;
}

/** Failures that can only follow the lookup of a real tool; others may carry a name that the caller made up. */
const AFTER_LOOKUP = new Set(["PolicyDeny", "GuardrailBlocked", "RateLimited", "ValidationError", "AuditFailure"]);

const MAX_METHODS = 64;
const MAX_OUTCOMES = 16;
const MAX_ERROR_TYPES = 40;
const MAX_RULES = 200;
/** Histograms in all, whatever the mix of tools and errors. */
const MAX_HISTOGRAMS = 1_000;
/** Series of applications: a few for each of the first hundreds. */
const MAX_APP_SERIES = 1_000;
const MAX_UPSTREAM_SERIES = 300;
const MAX_STORE_SERIES = 200;

function counter(name: string, help: string, label?: string, max?: number): Series {
  return new Series({ name, help, type: "counter", unit: "" }, label, max);
}

export class Metrics {
  readonly denials = counter("portcullis.denials", "Calls denied, by deciding rule", "portcullis.rule", MAX_RULES);
  readonly challenges = counter(
    "portcullis.challenges",
    "Calls that need an approval, by rule",
    "portcullis.rule",
    MAX_RULES,
  );
  readonly unauthenticated = counter(
    "portcullis.unauthenticated",
    "Requests refused because a valid credential is missing",
  );
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
  readonly telemetryDropped = counter(
    "portcullis.telemetry.dropped",
    "Spans and metrics that could not be exported, by signal",
    "portcullis.signal",
  );
  readonly approvalsOpened = counter(
    "portcullis.approvals.opened",
    "Approval requests opened by calls of this process",
  );
  readonly approvalsAnswered = counter(
    "portcullis.approvals.answered",
    "Approval requests answered on this admin port, by answer",
    "portcullis.answer",
  );
  readonly shed = counter(
    "portcullis.calls.shed",
    "Calls refused before anything was decided for them, by the bound that was reached",
    "portcullis.bound",
  );
  readonly applicationCalls = new LabelledCounter(
    { name: "portcullis.application.calls", help: "Calls of each application, by what was decided and how they ended" },
    ["portcullis.app", "portcullis.effect", "portcullis.outcome"],
    MAX_APP_SERIES,
  );
  readonly limitsExceeded = new LabelledCounter(
    { name: "portcullis.limits.exceeded", help: "Calls denied by a rate or concurrency limit, by application" },
    ["portcullis.app", "portcullis.limit"],
    MAX_APP_SERIES,
  );
  readonly storeOperations = new LabelledHistogram(
    { name: "db.client.operation.duration", help: "Time of one operation of the store, waits and retries included" },
    ["db.system.name", "db.collection.name", "db.operation.name", "error.type"],
    MAX_STORE_SERIES,
  );
  readonly ledgerAppends = new LabelledHistogram(
    { name: "portcullis.ledger.append.duration", help: "Time until a record that a call waits for is durable" },
    [],
    1,
  );
  readonly upstreamCalls = new LabelledHistogram(
    { name: "mcp.client.operation.duration", help: "Time of one request to a downstream server, its queue included" },
    ["portcullis.app", "portcullis.server", "mcp.method.name", "error.type"],
    MAX_UPSTREAM_SERIES,
  );

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
    this.applicationCalls.inc(info.app, end.effect, end.outcome);
    if (end.errorType === "RateLimited") this.limitsExceeded.inc(info.app, end.rule ?? "none");
    if (end.effect === "deny") this.denials.inc(end.rule ?? "none");
    else if (end.effect === "challenge") this.challenges.inc(end.rule ?? "none");
    const tool = method.tools.get(info.tool) ?? this.#openTool(method, info.tool, real);
    const failure = metricFailureOf(end);
    if (failure === "AuditFailure") this.ledgerFailures.inc();
    const histogram = failure === undefined ? tool.ok : this.#failures(tool, failure);
    const seconds = end.latencyMs / 1000;
    histogram.record(seconds > 0 ? seconds : 0);
  }

  families(): Family[] {
    const methods = [...this.#methods.values()];
    // Sources first: some of them set series.
    const sources = this.#sources.flatMap((source) => source());
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
        help: "Bytes of responses",
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
      ...this.#series().map((series) => series.family()),
      ...this.#ledger(),
      ...sources,
    ];
  }

  /** INVARIANT: every public property is a series. */
  #series(): (Series | LabelledCounter | LabelledHistogram)[] {
    return Object.values(this);
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
export function metricFailureOf(end: CallEnd): string | undefined {
  return end.errorType ?? (end.outcome === "tool_error" ? "ToolExecution" : undefined);
}

/** A resource's URI is an argument and without bound, so only tools and prompts are named. */
export function hasTarget(method: string): boolean {
  return !method.startsWith("resources/") && !method.startsWith("completion/") && !method.startsWith("notifications/");
}

function ledgerFamilies(now: LedgerFigures, sizeAtStart: number): Family[] {
  const appended = now.size - sizeAtStart;
  return [
    { ...gauge("portcullis.ledger.appends", "Records made durable since the start", "", appended), type: "counter" },
    gauge("portcullis.ledger.records", "Durable records", "", now.size),
    gauge("portcullis.ledger.pending", "Records that wait for the disk", "", now.pending),
    gauge("portcullis.ledger.open_calls", "Permitted calls without an outcome yet", "", now.openCalls),
    gauge("portcullis.ledger.healthy", "1 while records can be written, otherwise 0", "", now.healthy ? 1 : 0, "min"),
    gauge(
      "portcullis.ledger.flush.lag",
      "How long the oldest record that is not durable has waited",
      "s",
      now.flushLagMs / 1_000,
      "max",
    ),
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
