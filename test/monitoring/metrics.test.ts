// docs/metrics.md and the code agree: every metric is documented, and every documented metric exists.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readinessFamilies } from "../../src/admin/reports.js";
import { WorkerReports } from "../../src/runtime/workers.js";
import type { Family } from "../../src/telemetry/index.js";
import { describedBy, documentedMetrics, nameOf, rowOf } from "./metrics-page.js";
import { type MonitoredGateway, monitoredGateway } from "./world.js";

let gateway: MonitoredGateway;
let families: Family[];

beforeAll(async () => {
  gateway = await monitoredGateway();
  await gateway.exercise();
  const report = gateway.runtime.admin?.report("metrics");
  const workers = new WorkerReports(1);
  const parent = await workers.collect("metrics");
  workers.close();
  families = [...(report?.families ?? []), ...readinessFamilies(report?.components ?? {}), ...parent.families];
});
afterAll(() => gateway.close());

describe("docs/metrics.md", () => {
  it("docs/metrics.md documents every metric with its type, its meaning and the rule for workers [U13]", () => {
    const documented = new Map(documentedMetrics().map((metric) => [metric.name, metric]));
    const missing = families
      .map(describedBy)
      .filter((metric) => {
        const { type, workers, meaning } = documented.get(metric.name) ?? {};
        return type !== metric.type || workers !== metric.workers || meaning !== metric.meaning;
      })
      .map(rowOf);
    expect(missing).toEqual([]);
  });

  it("docs/metrics.md documents every label that a series has", () => {
    const documented = new Map(documentedMetrics().map((metric) => [metric.name, metric.labels]));
    const missing = families.map(describedBy).flatMap(({ name, labels }) => {
      return labels.filter((label) => !documented.get(name)?.includes(label)).map((label) => `${name}: ${label}`);
    });
    expect(missing).toEqual([]);
  });

  it("docs/metrics.md documents no metric that does not exist", () => {
    const names = new Set(families.map(nameOf));
    expect(documentedMetrics().filter(({ name }) => !names.has(name))).toEqual([]);
  });
});

describe("the metrics of a gateway in use", () => {
  const text = async (token?: "metrics.token"): Promise<string> => (await gateway.admin("/metrics", token)).text();

  it("the metrics of a gateway in use count calls, limits, refusals, approvals, servers, the store and the ledger", async () => {
    const scrape = await text("metrics.token");
    for (const series of [
      'portcullis_application_calls_total{portcullis_app="shop",portcullis_effect="permit",portcullis_outcome="ok"}',
      'portcullis_application_calls_total{portcullis_app="shop",portcullis_effect="deny",portcullis_outcome="refused"}',
      'portcullis_limits_exceeded_total{portcullis_app="limited",portcullis_limit="limit.agent"}',
      'portcullis_calls_shed_total{portcullis_bound="agent"} 4',
      "portcullis_approvals_opened_total 1",
      'portcullis_approvals_answered_total{portcullis_answer="approved"} 1',
      'portcullis_server_available{portcullis_app="shop",portcullis_server="up"} 1',
      'mcp_client_operation_duration_seconds_count{portcullis_app="shop",portcullis_server="up",mcp_method_name="tools/call"}',
      'db_client_operation_duration_seconds_count{db_system_name="sqlite",db_collection_name="keys",db_operation_name="read"}',
      "portcullis_ledger_append_duration_seconds_count",
      'portcullis_component_ready{portcullis_component="store"} 1',
      "portcullis_ready 1",
      "portcullis_replicas 1",
    ]) {
      expect(scrape).toContain(`\n${series}`);
    }
  });

  it("the metrics of a gateway in use name no application, tool, server, rule or component without a credential [U13]", async () => {
    const scrape = await text();
    expect(scrape).toContain("\nportcullis_ready 1");
    expect(scrape).not.toMatch(/shop|limited|"up"|no-writing|tools\/call|portcullis_component=/);
  });
});
