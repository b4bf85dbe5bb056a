// What waits, what is red and what happens: the page to leave open.

import { useRef } from "preact/hooks";
import type { OperationResult } from "../../../src/admin/operations.js";
import { hrefOf } from "../router.js";
import { session } from "../state.js";
import { Histogram } from "../ui/histogram.js";
import { Icon } from "../ui/icon.js";
import { useEvents, useLoad } from "../ui/load.js";
import { Card, count, Empty, Header, Pill, Show } from "../ui/parts.js";
import { Text } from "../ui/text.js";
import { duration } from "../ui/time.js";
import { FirstSteps } from "./first-steps.js";

/** Decisions may come many times a second; the overview follows at most this often. */
const REFRESH_MS = 5_000;

export function Overview() {
  const loaded = useLoad("getOverview", {}, ({ type }) => type === "approvals");
  const planned = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEvents(({ type }) => {
    if (type !== "decisions" || planned.current !== undefined) return;
    planned.current = setTimeout(() => {
      planned.current = undefined;
      loaded.reload();
    }, REFRESH_MS);
  });
  return (
    <>
      <Header title="Overview" />
      <Show of={loaded}>
        {(data) => (
          <>
            {session.value?.kind === "demonstration" && <FirstSteps />}
            <div class="tiles">
              <Waiting data={data} />
              <Calls data={data} />
              <Latency data={data} />
              <Problems data={data} />
            </div>
            <Card title="Calls over time">
              <Histogram data={data.histogram} />
            </Card>
            <div class="cards below">
              <DeniedRules data={data} />
              <UnusedPermits data={data} />
              <Replicas data={data} />
            </div>
          </>
        )}
      </Show>
    </>
  );
}

type Data = OperationResult<"getOverview">;

function Waiting({ data: { waiting, oldest_waiting_ms: oldest } }: { data: Data }) {
  return (
    <a class={`tile${waiting > 0 ? " wait" : ""}`} href={hrefOf("approvals")}>
      <span class="tile-label">Waiting for approval</span>
      <span class="tile-number">{waiting}</span>
      <span class="soft">{waiting > 0 ? `the oldest for ${duration(oldest)}` : "nothing waits"}</span>
    </a>
  );
}

function Calls({ data: { histogram } }: { data: Data }) {
  const sum = (effect: "permit" | "deny" | "challenge"): number =>
    histogram.buckets.reduce((total, bucket) => total + bucket[effect], 0);
  const denied = sum("deny");
  return (
    <a class="tile" href={hrefOf("decisions", [], { effect: denied > 0 ? "deny" : undefined })}>
      <span class="tile-label">Calls</span>
      <span class="tile-number">{(sum("permit") + denied + sum("challenge")).toLocaleString("en")}</span>
      <span class="soft">{denied.toLocaleString("en")} denied</span>
    </a>
  );
}

function Latency({ data }: { data: Data }) {
  const { p50_ms: p50, p95_ms: p95, p99_ms: p99 } = data.histogram.latency;
  return (
    <a class="tile" href={hrefOf("decisions")}>
      <span class="tile-label">Time of a call</span>
      <span class="tile-number">{p50 === undefined ? "–" : duration(p50)}</span>
      <span class="soft">
        {p95 === undefined
          ? "no call yet"
          : `95 %: ${duration(p95)}${p99 === undefined ? "" : ` · 99 %: ${duration(p99)}`}`}
      </span>
    </a>
  );
}

function Problems({ data: { problems } }: { data: Data }) {
  return (
    <div class={`tile${problems.length > 0 ? " bad" : ""}`}>
      <span class="tile-label">Problems</span>
      {problems.length === 0 ? (
        <>
          <span class="tile-number good">
            <Icon name="check" /> None
          </span>
          <span class="soft">everything reports well</span>
        </>
      ) : (
        <ul class="problems">
          {problems.map(({ what, message, screen }) => (
            <li key={`${what} ${message}`}>
              <a href={hrefOf(screen)}>
                <Text>{what}</Text>
              </a>
              : <Text>{message}</Text>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function DeniedRules({ data: { denied_rules: rules } }: { data: Data }) {
  const most = Math.max(1, ...rules.map((rule) => rule.count));
  return (
    <Card title="Rules that deny most">
      {rules.length === 0 ? (
        <p class="soft">No call was denied by a rule.</p>
      ) : (
        <ul class="bars">
          {rules.map((rule) => (
            <li key={rule.id}>
              <a href={hrefOf("decisions", [], { rule: rule.id })}>
                <Text>{rule.id}</Text>
              </a>
              <span class="soft">{rule.count.toLocaleString("en")}</span>
              <meter min={0} max={most} value={rule.count} aria-label={`denials by ${rule.id}`} />
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function UnusedPermits({ data: { unused_permits: rules } }: { data: Data }) {
  return (
    <Card title="Permits that no call used">
      {rules.length === 0 ? (
        <p class="soft">Every permit was used by a recorded call.</p>
      ) : (
        <ul class="plain-list">
          {rules.map(({ id, file, line }) => (
            <li key={`${file} ${id}`}>
              <Text>{id}</Text>
              {file !== undefined && (
                <div class="soft mono">
                  <Text>{file}</Text>
                  {line !== undefined && `:${line}`}
                </div>
              )}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

const LATE_MS = 10_000;

function Replicas({ data: { replicas } }: { data: Data }) {
  return (
    <Card title="Replicas" actions={<span class="soft">{count(replicas.length, "replica")}</span>} flush>
      {replicas.length === 0 ? (
        <Empty title="One process">No other replica shares this store.</Empty>
      ) : (
        <ul class="rows">
          {replicas.map(({ id, version, lag_ms: lag }) => (
            <li key={id}>
              <div>
                <span class="mono">
                  <Text>{id}</Text>
                </span>
                {version !== undefined && (
                  <div class="soft">
                    <Text>{version}</Text>
                  </div>
                )}
              </div>
              <Pill tone={lag > LATE_MS ? "bad" : "good"}>{lag > LATE_MS ? `${duration(lag)} behind` : "in step"}</Pill>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
