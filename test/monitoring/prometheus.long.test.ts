// Alert rules, dashboard and runbook: checked against docs/metrics.md, by promtool, and with a real Prometheus that scrapes a
// real gateway while its ledger, its store and its bounds fail.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { missingPrograms } from "../setup/programs.js";
import { documentedMetrics, ROOT } from "./metrics-page.js";
import { familyOf, namesIn } from "./promql.js";
import { type MonitoredGateway, monitoredGateway } from "./world.js";

const RULES = join(ROOT, "deploy/prometheus/portcullis.rules.yml");
const UNIT_TESTS = join(ROOT, "test/monitoring/alerts.yml");
const DASHBOARD = join(ROOT, "deploy/grafana/portcullis.json");
const RUNBOOK = join(ROOT, "docs/runbook");

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}

const alerts = (parse(readFileSync(RULES, "utf8")) as { groups: { rules: Alert[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

const panels = (JSON.parse(readFileSync(DASHBOARD, "utf8")) as { panels: Panel[] }).panels;
const queries = panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr: filled(expr) })));

/** As Grafana fills in the variables when everything is chosen. */
function filled(expr: string): string {
  return expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "1m");
}

/** Labels that Prometheus adds, or that belong to a histogram. */
const OWN_LABELS = new Set(["instance", "job", "le"]);
const documented = new Map(documentedMetrics().map((metric) => [metric.name, metric]));

function unknownNames(expression: string): string[] {
  const { metrics, labels } = namesIn(expression);
  const known = (metric: string): readonly string[] | undefined =>
    metric === "up" ? [] : (documented.get(metric) ?? documented.get(familyOf(metric)))?.labels;
  return [
    ...[...metrics].filter((metric) => known(metric) === undefined),
    ...labels
      .filter(
        ({ metrics: of, label }) => !OWN_LABELS.has(label) && !of.some((metric) => known(metric)?.includes(label)),
      )
      .map(({ metrics: of, label }) => `${of.join(", ")}: ${label}`),
  ];
}

describe("queries of the alert rules and the dashboard", () => {
  it.each(alerts.map(({ alert, expr }) => [alert, expr]))(
    "the alert %s refers to documented metrics and labels",
    (_name, expr) => {
      expect(unknownNames(expr)).toEqual([]);
    },
  );

  it("queries of the dashboard refer to documented metrics and labels", () => {
    expect(queries.length).toBeGreaterThan(40);
    expect(queries.flatMap(({ title, expr }) => unknownNames(expr).map((name) => `${title}: ${name}`))).toEqual([]);
  });

  it("queries with a name that does not exist are found", () => {
    expect(unknownNames('sum by (colour) (rate(portcullis_call_total{portcullis_ap="x"}[5m])) > 0')).toEqual([
      "portcullis_call_total",
      "portcullis_call_total: portcullis_ap",
      "portcullis_call_total: colour",
    ]);
  });
});

describe("the runbook", () => {
  const SECTIONS = ["## What it means", "## What users see", "## How to check", "## How to fix"];

  it("the runbook has a page for each alert, and each page has an alert", () => {
    const pages = readdirSync(RUNBOOK).filter((name) => name !== "README.md");
    expect(pages.sort()).toEqual(alerts.map(({ alert }) => `${alert}.md`).sort());
    for (const { alert, annotations } of alerts) expect(annotations.runbook_url).toBe(`docs/runbook/${alert}.md`);
  });

  it.each(alerts.map(({ alert }) => alert))(
    "the runbook says for %s what it means, what users see, how to check and how to fix",
    (alert) => {
      const text = readFileSync(join(RUNBOOK, `${alert}.md`), "utf8");
      expect(text.startsWith(`# ${alert}\n`)).toBe(true);
      expect(text.match(/^## .+$/gm)).toEqual(SECTIONS);
    },
  );

  it("the runbook names only documented metrics", () => {
    const texts = readdirSync(RUNBOOK).map((name) => readFileSync(join(RUNBOOK, name), "utf8"));
    const named = texts.flatMap(
      (text) => text.match(/\b(?:portcullis|mcp|db|nodejs|process|v8js)_[a-z_]{4,}\b/g) ?? [],
    );
    const labels = new Set([...documented.values()].flatMap((metric) => metric.labels));
    const unknown = named.filter(
      (name) => !documented.has(familyOf(name)) && !documented.has(name) && !labels.has(name),
    );
    expect(unknown).toEqual([]);
  });

  it("the runbook lists every alert on its first page", () => {
    const text = readFileSync(join(RUNBOOK, "README.md"), "utf8");
    for (const { alert, labels } of alerts) expect(text).toContain(`| [${alert}](${alert}.md) | ${labels.severity} |`);
  });
});

describe("promtool", () => {
  const run = (...args: string[]) => spawnSync("promtool", args, { encoding: "utf8", timeout: 240_000 });

  it("promtool accepts the alert rules, and their unit tests pass", ({ skip }) => {
    const reason = missingPrograms("promtool");
    if (reason) return skip(reason);
    const checked = run("check", "rules", RULES);
    expect(checked.status, checked.stderr).toBe(0);
    const tested = run("test", "rules", UNIT_TESTS);
    expect(tested.status, tested.stdout + tested.stderr).toBe(0);
  });

  it("each alert has a unit test in promtool, which fails when the alert cannot fire", ({ skip }) => {
    const reason = missingPrograms("promtool");
    if (reason) return skip(reason);
    const folder = mkdtempSync(join(tmpdir(), "portcullis-rules-"));
    try {
      const never = readFileSync(RULES, "utf8").replaceAll(
        /^( +)expr: (?:\|\n(?: {10,}.+\n)+|.+\n)/gm,
        "$1expr: vector(0) > 1\n",
      );
      writeFileSync(join(folder, "portcullis.rules.yml"), never);
      const tests = readFileSync(UNIT_TESTS, "utf8").replace(/^rule_files: .+$/m, "rule_files: [portcullis.rules.yml]");
      writeFileSync(join(folder, "portcullis.test.yml"), tests);
      const { status, stderr, stdout } = run("test", "rules", join(folder, "portcullis.test.yml"));
      expect(status).not.toBe(0);
      for (const { alert } of alerts) expect(stderr + stdout).toContain(`alertname: ${alert}`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

const reason = missingPrograms("prometheus");
if (reason) console.log(`a real Prometheus: ${reason}`);

describe.skipIf(reason !== undefined)("a real Prometheus that scrapes a real gateway", () => {
  const folder = mkdtempSync(join(tmpdir(), "portcullis-prometheus-"));
  let postgres: PostgresCluster;
  let gateway: MonitoredGateway;
  let prometheus: ChildProcess;
  let url: string;
  let output = "";

  beforeAll(async () => {
    postgres = await startPostgres();
    gateway = await monitoredGateway({ storage: await postgres.database() });
    await gateway.exercise();
    // Without the waits: an alert fires at the first evaluation that finds its reason.
    writeFileSync(join(folder, "rules.yml"), readFileSync(RULES, "utf8").replaceAll(/^ +for: .+\n/gm, ""));
    const target = new URL(gateway.runtime.admin?.url as string).host;
    writeFileSync(
      join(folder, "prometheus.yml"),
      JSON.stringify({
        global: { scrape_interval: "1s", evaluation_interval: "1s" },
        rule_files: [join(folder, "rules.yml")],
        scrape_configs: [
          {
            job_name: "portcullis",
            authorization: { type: "Bearer", credentials_file: join(gateway.dir, "metrics.token") },
            static_configs: [{ targets: [target] }],
          },
        ],
      }),
    );
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    prometheus = spawn(
      "prometheus",
      [
        `--config.file=${join(folder, "prometheus.yml")}`,
        `--storage.tsdb.path=${join(folder, "data")}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: ["ignore", "ignore", "pipe"] },
    );
    prometheus.stderr?.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4_000)));
    await until(async () => (await query('up{job="portcullis"}'))[0]?.value[1] === "1", "a first scrape");
  });

  afterAll(async () => {
    if (prometheus?.exitCode === null) {
      const ended = new Promise((resolve) => prometheus.once("exit", resolve));
      prometheus.kill("SIGKILL");
      await ended;
    }
    await gateway?.close();
    await postgres?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  interface Sample {
    readonly metric: Readonly<Record<string, string>>;
    readonly value: readonly [number, string];
  }

  const ask = async (path: string): Promise<Record<string, unknown>> => {
    const answer = await fetch(new URL(path, url)).catch(() => undefined);
    const body = (await answer?.json().catch(() => undefined)) as
      | { status: string; data: unknown; error?: string }
      | undefined;
    if (body && body.status !== "success") throw new Error(`${path}: ${body.error}`);
    return (body?.data ?? {}) as Record<string, unknown>;
  };
  const query = async (expression: string): Promise<Sample[]> =>
    ((await ask(`/api/v1/query?query=${encodeURIComponent(expression)}`)).result ?? []) as Sample[];
  const firing = async (): Promise<string[]> => {
    const found = ((await ask("/api/v1/alerts")).alerts ?? []) as { state: string; labels: { alertname: string } }[];
    return found.filter(({ state }) => state === "firing").map(({ labels }) => labels.alertname);
  };

  async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
    const deadline = performance.now() + 90_000;
    while (!(await holds())) {
      if (performance.now() > deadline) throw new Error(`not within 90 s: ${what}\n${output}`);
      await sleep(200);
    }
  }

  const call = async (): Promise<unknown> => {
    const client = await gateway.client(await gateway.key("shop", "caller"));
    const answer = await client.callTool("read", {}).catch(() => undefined);
    await client.close();
    return answer;
  };

  /** Panels that stay empty while nothing is wrong, or without workers. */
  const MAY_BE_EMPTY = /portcullis_workers|== 0$|mcp_client_operation_duration_seconds_count/;

  it("a real Prometheus accepts every alert rule and evaluates it without an error", async () => {
    await until(async () => {
      const { groups } = (await ask("/api/v1/rules")) as { groups?: { rules: { lastEvaluation: string }[] }[] };
      const rules = (groups ?? []).flatMap((group) => group.rules);
      return rules.length === alerts.length && rules.every(({ lastEvaluation }) => !lastEvaluation.startsWith("0001"));
    }, "every rule evaluated");
    const { groups } = (await ask("/api/v1/rules")) as { groups: { rules: { name: string; lastError?: string }[] }[] };
    expect(groups.flatMap(({ rules }) => rules.filter(({ lastError }) => lastError).map(({ name }) => name))).toEqual(
      [],
    );
  });

  it("a real Prometheus answers every query of the dashboard, with data wherever there were calls", async () => {
    await gateway.exercise();
    await until(async () => (await query("sum(rate(portcullis_calls_total[1m])) > 0")).length > 0, "a rate of calls");
    const empty: string[] = [];
    for (const { title, expr } of queries) {
      if ((await query(expr)).length === 0 && !MAY_BE_EMPTY.test(expr)) empty.push(`${title}: ${expr}`);
    }
    expect(empty).toEqual([]);
  });

  it("a real Prometheus fires an alert when calls are shed", async () => {
    await until(async () => {
      await gateway.exercise();
      return (await firing()).includes("PortcullisCallsShed");
    }, "PortcullisCallsShed");
  });

  it("a real Prometheus fires alerts when the ledger cannot be written, and ends them when it can", async () => {
    const ledger = gateway.runtime.ledger.dir;
    renameSync(ledger, `${ledger}-away`);
    try {
      await until(async () => {
        await call();
        const found = await firing();
        return found.includes("PortcullisLedgerNotWritable") && found.includes("PortcullisNotReady");
      }, "PortcullisLedgerNotWritable");
    } finally {
      rmSync(ledger, { recursive: true, force: true });
      renameSync(`${ledger}-away`, ledger);
    }
    await until(async () => {
      await call();
      return !(await firing()).includes("PortcullisLedgerNotWritable");
    }, "no alert");
  });

  it("a real Prometheus fires alerts when the store does not answer, and ends them when it does [U13]", async () => {
    postgres.pause();
    try {
      await until(async () => {
        const found = await firing();
        return found.includes("PortcullisStoreUnavailable") && found.includes("PortcullisFeedLagging");
      }, "PortcullisStoreUnavailable");
    } finally {
      postgres.resume();
    }
    await until(async () => {
      const found = await firing();
      return !found.includes("PortcullisStoreUnavailable") && !found.includes("PortcullisFeedLagging");
    }, "no alert");
  });
});

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as AddressInfo;
      probe.close(() => resolve(port));
    });
  });
}
