// The stream and history of decisions, and why each was made.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { DecisionRow, ExplanationView, OperationResult } from "../../../src/admin/operations.js";
import { type ApiError, call } from "../api/client.js";
import { address, hrefOf, navigate, setQuery } from "../router.js";
import { attempt, can } from "../state.js";
import { Histogram } from "../ui/histogram.js";
import { Icon } from "../ui/icon.js";
import { useEvents, useLoad } from "../ui/load.js";
import {
  Button,
  Card,
  Copy,
  count,
  download,
  Effect,
  Empty,
  Facts,
  Field,
  Header,
  Loading,
  Pill,
  Problem,
  Select,
  Show,
  shortHash,
} from "../ui/parts.js";
import { Cedar, Folded, Json, Text } from "../ui/text.js";
import { duration, Time } from "../ui/time.js";
import { VirtualList } from "../ui/virtual-list.js";

const FILTERS = ["app", "agent", "user", "tool", "effect", "rule", "trace", "from", "to", "all"] as const;
type Filter = Partial<Record<(typeof FILTERS)[number], string>>;
const PAGE = 200;
const MAX_KEPT = 200_000;
const ROW_HEIGHT = 40;
const TYPING_MS = 350;

export function Decisions() {
  const { item, query } = address.value;
  const filter = Object.fromEntries(
    FILTERS.map((name) => [name, query.get(name) ?? undefined]).filter(([, value]) => value),
  );
  const [selected] = item;
  const openItem = (id: string | undefined): void =>
    navigate(hrefOf("decisions", id === undefined ? [] : [id], Object.fromEntries(query)), {
      replace: selected !== undefined,
    });
  return (
    <div class={`decisions${selected === undefined ? "" : " has-item"}`}>
      <div class="decisions-list">
        <Header title="Decisions" />
        <Filters filter={filter} />
        <Summary filter={filter} />
        <Stream key={JSON.stringify(filter)} filter={filter} selected={selected} onOpen={openItem} />
      </div>
      {selected !== undefined && <Decision key={selected} id={selected} onClose={() => openItem(undefined)} />}
    </div>
  );
}

const EFFECTS = [
  ["", "Any effect"],
  ["permit", "Permitted"],
  ["deny", "Denied"],
  ["challenge", "Approval needed"],
] as const;

/** The values of a moment ago are the addresses' filters; typing changes them after a pause. */
function Filters({ filter }: { filter: Filter }) {
  const [draft, setDraft] = useState<Filter>(filter);
  const [isMoreOpen, setMore] = useState(["user", "trace", "from", "to", "app"].some((name) => name in filter));
  const given = JSON.stringify(filter);
  useEffect(() => setDraft(filter), [given]);
  useEffect(() => {
    if (JSON.stringify(draft) === given) return;
    const timer = setTimeout(() => {
      setQuery(Object.fromEntries(FILTERS.map((name) => [name, draft[name]?.trim() || undefined])));
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [JSON.stringify(draft)]);
  const field = (name: keyof Filter, label: string, placeholder = "") => (
    <Field
      label={label}
      value={draft[name] ?? ""}
      placeholder={placeholder}
      onInput={(value) => setDraft((before) => ({ ...before, [name]: value || undefined }))}
    />
  );
  return (
    <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      {field("tool", "Tool", "notes.*")}
      {field("agent", "Agent")}
      {field("rule", "Rule")}
      <Select
        label="Effect"
        value={draft.effect ?? ""}
        options={EFFECTS}
        onChange={(value) => setDraft((before) => ({ ...before, effect: value || undefined }))}
      />
      {isMoreOpen && (
        <>
          {field("app", "Application")}
          {field("user", "User")}
          {field("trace", "Trace or call")}
          {field("from", "From", "2026-01-31T08:00:00Z")}
          {field("to", "To")}
          <label class="check">
            <input
              type="checkbox"
              checked={draft.all === "1"}
              onChange={() => setDraft((before) => ({ ...before, all: before.all === "1" ? undefined : "1" }))}
            />
            <span>Lists and other calls that no rule decides</span>
          </label>
        </>
      )}
      <div class="filter-actions">
        {!isMoreOpen && (
          <Button kind="quiet" onClick={() => setMore(true)}>
            More filters
          </Button>
        )}
        {Object.keys(filter).length > 0 && (
          <Button kind="quiet" onClick={() => navigate(hrefOf("decisions"))}>
            Clear
          </Button>
        )}
      </div>
    </form>
  );
}

type Filtered = Parameters<typeof call<"listDecisions">>[1];

function Summary({ filter }: { filter: Filter }) {
  const loaded = useLoad("getHistogram", filter as Filtered);
  return (
    <details class="summary card" open>
      <summary>Over time</summary>
      <Show of={loaded}>
        {(data) => (
          <>
            <Histogram data={data} />
            {data.latency.calls > 0 && (
              <p class="soft latency">
                {count(data.latency.calls, "call")} with a known time
                {(["p50_ms", "p95_ms", "p99_ms"] as const).map((name) => {
                  const value = data.latency[name];
                  return value === undefined ? null : (
                    <span key={name}>
                      {" · "}
                      {name.slice(1, 3)} %: <strong>{duration(value)}</strong>
                    </span>
                  );
                })}
              </p>
            )}
          </>
        )}
      </Show>
    </details>
  );
}

interface StreamProps {
  filter: Filter;
  selected: string | undefined;
  onOpen: (id: string) => void;
}

/** Newest first; older pages are read as they come into view, and new decisions are put in front. */
function Stream({ filter, selected, onOpen }: StreamProps) {
  const [items, setItems] = useState<readonly DecisionRow[]>([]);
  const [error, setError] = useState<ApiError>();
  const [isLive, setLive] = useState(true);
  const [isDone, setDone] = useState(false);
  const next = useRef<string | undefined>(undefined);
  const isReading = useRef(false);
  const [cursor, setCursor] = useState(-1);

  const read = async (): Promise<void> => {
    if (isReading.current) return;
    isReading.current = true;
    try {
      const page = await call("listDecisions", {
        ...(filter as Filtered),
        limit: PAGE,
        ...(next.current === undefined ? {} : { cursor: next.current }),
      });
      next.current = page.next;
      setError(undefined);
      setDone(page.next === undefined);
      setItems((before) => [...before, ...page.items].slice(0, MAX_KEPT));
      isReading.current = false;
      // A page may be empty while there are more.
      if (page.items.length === 0 && page.next !== undefined) await read();
    } catch (failure) {
      setError(failure as ApiError);
    } finally {
      isReading.current = false;
    }
  };
  const restart = (): void => {
    next.current = undefined;
    setItems([]);
    void read();
  };
  useEffect(() => void read(), []);
  useEvents((event) => {
    if (event.type === "reset") restart();
    if (event.type !== "decisions" || !isLive) return;
    const fitting = event.items.filter((decision) => fits(decision, filter));
    if (fitting.length === 0) return;
    setItems((before) => {
      const known = new Map(fitting.map((decision) => [decision.id, decision]));
      const updated = before.map((decision) => {
        const newer = known.get(decision.id);
        known.delete(decision.id);
        return newer ?? decision;
      });
      const added = [...known.values()].reverse();
      if (added.length > 0) setCursor((at) => (at < 0 ? at : at + added.length));
      return [...added, ...updated].slice(0, MAX_KEPT);
    });
  });
  const index = useMemo(
    () => (selected === undefined ? -1 : items.findIndex(({ id }) => id === selected)),
    [items, selected],
  );
  useEffect(() => {
    if (index >= 0) setCursor(index);
  }, [index]);

  if (error && items.length === 0) return <Problem error={error} retry={restart} />;
  return (
    <Card
      title={
        <>
          {count(items.length, "decision")}
          {!isDone && <span class="soft"> and older ones</span>}
        </>
      }
      actions={
        <Button kind="quiet" pressed={isLive} onClick={() => setLive(!isLive)}>
          {isLive ? "Live" : "Paused"}
        </Button>
      }
      flush
    >
      {items.length === 0 && isDone ? (
        <Empty title="No decision fits">
          <p>Every call is decided and recorded, so a call that fits these filters appears here at once.</p>
        </Empty>
      ) : (
        <VirtualList
          label="Decisions"
          total={items.length}
          rowHeight={ROW_HEIGHT}
          selected={cursor}
          onSelect={setCursor}
          onOpen={(at) => items[at] && onOpen(items[at].id)}
          onView={(_first, last) => {
            if (last >= items.length - PAGE / 2 && !isDone && !error) void read();
          }}
          row={(at) => <Row decision={items[at] as DecisionRow} />}
        />
      )}
    </Card>
  );
}

function Row({ decision }: { decision: DecisionRow }) {
  const { at, effect, mode, tool, agent, app, rules, reason, latency_ms: latency, outcome } = decision;
  return (
    <div class="decision-row">
      <Time at={at} />
      <Effect effect={effect} mode={mode} />
      <strong class="mono clip">
        <Text>{tool}</Text>
      </strong>
      <span class="clip">
        <Text>{agent}</Text> <span class="soft">of</span> <Text>{app}</Text>
      </span>
      <span class="soft clip">
        <Text>{effect === "permit" && rules[0] !== undefined ? rules[0] : reason}</Text>
      </span>
      <span class="soft number">
        {outcome !== undefined && outcome !== "ok" ? (
          <Text>{outcome}</Text>
        ) : latency === undefined ? (
          ""
        ) : (
          duration(latency)
        )}
      </span>
    </div>
  );
}

/** The same test as the server's, for decisions that arrive. */
function fits(decision: DecisionRow, filter: Filter): boolean {
  const isTool =
    filter.tool === undefined ||
    (filter.tool.endsWith("*") ? decision.tool.startsWith(filter.tool.slice(0, -1)) : decision.tool === filter.tool);
  return (
    isTool &&
    (["app", "agent", "user", "effect"] as const).every(
      (name) => filter[name] === undefined || decision[name] === filter[name],
    ) &&
    (filter.rule === undefined || decision.rules.includes(filter.rule)) &&
    (filter.trace === undefined || decision.trace === filter.trace || decision.call === filter.trace) &&
    (filter.from === undefined || decision.at >= filter.from) &&
    (filter.to === undefined || decision.at < filter.to) &&
    (filter.all === "1" || decision.method === "tools/call" || decision.rules.length > 0)
  );
}

// ---- one decision -----------------------------------------------------------------------------------------------------

type Explained = OperationResult<"explainDecision">;

function Decision({ id, onClose }: { id: string; onClose: () => void }) {
  const loaded = useLoad("explainDecision", { id });
  const heading = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const closed = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) onClose();
    };
    addEventListener("keydown", closed);
    return () => removeEventListener("keydown", closed);
  });
  return (
    <aside class="item-pane" aria-label="Decision" ref={heading}>
      <div class="item-head">
        <h2>Decision</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {loaded.isLoading && !loaded.data ? <Loading /> : <Show of={loaded}>{(data) => <Detail data={data} />}</Show>}
    </aside>
  );
}

function Detail({ data }: { data: Explained }) {
  const { decision, explanation, unexplained } = data;
  return (
    <div class="stack">
      <div>
        <Effect effect={decision.effect} mode={decision.mode} />
        <h3 class="item-title mono">
          <Text>{decision.tool}</Text>
        </h3>
        <p>
          <Text>{decision.reason}</Text>
        </p>
      </div>
      <Facts
        items={[
          ["Time", <Time at={decision.at} />],
          [
            "Agent",
            <a href={hrefOf("decisions", [], { agent: decision.agent })}>
              <Text>{`${decision.app}/${decision.agent}`}</Text>
            </a>,
          ],
          decision.user !== undefined && ["User", <Text>{decision.user}</Text>],
          ["Server", <Text>{decision.server}</Text>],
          ["Method", <Text>{decision.method}</Text>],
          decision.outcome !== undefined && ["Outcome", <Text>{decision.outcome}</Text>],
          decision.latency_ms !== undefined && ["Time of the tool", duration(decision.latency_ms)],
          decision.bytes !== undefined && ["Size of the result", `${decision.bytes.toLocaleString("en")} bytes`],
          [
            "Trace",
            <span class="mono">
              <a href={hrefOf("decisions", [], { trace: decision.trace })}>
                <Text>{shortHash(decision.trace)}</Text>
              </a>
              <Copy text={decision.trace} label="trace" />
            </span>,
          ],
          ["Policy", <span class="mono">{shortHash(decision.policy)}</span>],
        ]}
      />
      <Card title="Arguments">
        {decision.arguments === undefined ? (
          <p class="soft">
            {can("proveDecision")
              ? "They were not kept: the ledger has their content id only."
              : "Your role does not see arguments, or they were not kept."}
          </p>
        ) : (
          <Json text={decision.arguments} label="Arguments" />
        )}
        <p class="soft mono small">
          <Text>{decision.arguments_id}</Text>
        </p>
      </Card>
      <Card title="Why" actions={!data.same_policy && <Pill tone="wait">explained by the policy of today</Pill>}>
        {explanation ? (
          <Explanation of={explanation} />
        ) : (
          <p class="soft">
            <Text>{unexplained ?? "It cannot be explained."}</Text>
          </p>
        )}
      </Card>
      <Place data={data} />
    </div>
  );
}

/** Rules that mattered first, condition by condition with the values that they read. */
export function Explanation({ of }: { of: ExplanationView }) {
  const matched = of.rules.filter(({ matched: applies }) => applies);
  const others = of.rules.filter(({ matched: applies }) => !applies);
  return (
    <div class="stack">
      <p>
        <Effect effect={of.effect} /> <Text>{of.reason}</Text>
      </p>
      {of.refused_by && (
        <p>Denied by the {of.refused_by === "schema" ? "schema of the tool" : "guardrail"}, before any rule.</p>
      )}
      {[...of.problems, ...of.errors].map((problem) => (
        <p key={problem} class="problem">
          <Text>{problem}</Text>
        </p>
      ))}
      {matched.map((rule) => (
        <ExplainedRule key={`${rule.file} ${rule.id}`} rule={rule} />
      ))}
      {others.length > 0 && (
        <details class="fold-section">
          <summary>{count(others.length, "rule")} that did not apply</summary>
          <div class="stack">
            {others.map((rule) => (
              <ExplainedRule key={`${rule.file} ${rule.id}`} rule={rule} />
            ))}
          </div>
        </details>
      )}
    </div>
  );
}

function ExplainedRule({ rule }: { rule: ExplanationView["rules"][number] }) {
  return (
    <div class={`explained${rule.matched ? " applied" : ""}`}>
      <div class="explained-head">
        <Pill tone={!rule.matched ? "neutral" : rule.effect === "forbid" ? "bad" : "good"}>
          {rule.matched ? "applies" : "does not apply"}
        </Pill>
        <strong>
          <Text>{rule.id}</Text>
        </strong>
        <span class="soft mono">
          <Text>{rule.file}</Text>:{rule.line}
        </span>
      </div>
      <p class="soft">
        Settled by <code>{rule.deciding.part}</code>, line {rule.deciding.line}
      </p>
      <Cedar text={rule.deciding.text} label={`Deciding part of ${rule.id}`} />
      {rule.values.length > 0 && (
        <dl class="values">
          {rule.values.map(({ expression, value, problem }) => (
            <div key={expression}>
              <dt class="mono">
                <Text>{expression}</Text>
              </dt>
              <dd class="mono">
                {value === undefined ? (
                  <span class="soft">
                    <Text>{problem ?? "no value"}</Text>
                  </span>
                ) : (
                  <Folded text={value} />
                )}
              </dd>
            </div>
          ))}
        </dl>
      )}
      {rule.error !== undefined && (
        <p class="problem">
          <Text>{rule.error}</Text>
        </p>
      )}
      {rule.text !== undefined && (
        <details class="fold-section">
          <summary>Whole rule</summary>
          <Cedar text={rule.text} label={`Text of ${rule.id}`} />
        </details>
      )}
    </div>
  );
}

function Place({ data }: { data: Explained }) {
  const { decision, records, covered, test } = data;
  const save = (what: "proof" | "evidence"): Promise<boolean> =>
    attempt(async () => {
      const name = `${what}-${decision.ledger}-${decision.seq}.json`;
      if (what === "evidence") return download(name, pretty(await call("getEvidence", { id: decision.id })));
      const { proofs } = await call("proveDecision", { id: decision.id });
      download(name, pretty(proofs.length === 1 ? proofs[0] : proofs));
    });
  return (
    <Card title="In the ledger">
      <p>
        <Pill tone={covered ? "good" : "wait"}>
          {covered ? "under a signed checkpoint" : "not yet under a checkpoint"}
        </Pill>
      </p>
      <ul class="plain-list tight">
        {records.map((record) => (
          <li key={record.id}>
            <a class="mono" href={hrefOf("ledger", [decision.ledger], { at: String(record.seq) })}>
              #{record.seq}
            </a>{" "}
            <Text>{record.summary}</Text>
          </li>
        ))}
      </ul>
      <div class="action-row wrap">
        {can("proveDecision") && (
          <Button icon="download" onClick={() => save("proof")}>
            Proof
          </Button>
        )}
        {can("getEvidence") && (
          <Button icon="download" onClick={() => save("evidence")}>
            Evidence bundle
          </Button>
        )}
        {test !== undefined && (
          <Button icon="download" onClick={() => download("case.yaml", test, "application/yaml")}>
            Policy test
          </Button>
        )}
        {can("tryCall") && decision.arguments !== undefined && (
          <a class="button plain" href={hrefOf("policy", [decision.app], { try: decision.id })}>
            <span>What would the draft decide?</span>
          </a>
        )}
      </div>
    </Card>
  );
}

function pretty(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
