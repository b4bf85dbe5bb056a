// The inbox of approval requests: oldest first, with everything that an approver needs to decide.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ApprovalDetail, ApprovalRow } from "../../../src/admin/operations.js";
import { call } from "../api/client.js";
import { address, hrefOf, navigate } from "../router.js";
import { attempt, can, clockOffsetMs, notify, session, waiting } from "../state.js";
import { Difference } from "../ui/difference.js";
import { Icon } from "../ui/icon.js";
import { useEvents, useKeys, useLoad } from "../ui/load.js";
import {
  Button,
  Card,
  count,
  Dialog,
  Effect,
  Empty,
  Facts,
  Field,
  Form,
  Header,
  Loading,
  Pill,
  Problem,
  Select,
} from "../ui/parts.js";
import { Cedar, Folded, Json, Lines, laidOut, marked, Text } from "../ui/text.js";
import { Ago, Left, Time, timeOfDay } from "../ui/time.js";
import { Grants } from "./grants.js";

const SHOW_ALL = "all";
/** What the phone shows: the list, or one request. */
const WIDE = matchMedia("(min-width: 60rem)");

export function Approvals() {
  const state = address.value.query.get("state") ?? "pending";
  const selected = address.value.item[0];
  const list = useLoad(
    "listApprovals",
    state === SHOW_ALL ? {} : { state: "pending" },
    ({ type }) => type === "approvals",
  );
  const [marks, setMarks] = useState<ReadonlySet<string>>(new Set());
  const [areManyOpen, setManyOpen] = useState(false);
  /** Requests whose arguments were on this screen, by the intent that was shown: only these can be approved together. */
  const seen = useRef(new Map<string, ApprovalDetail>());
  const rows = list.data?.approvals ?? [];
  const open = (id: string | undefined, replace = false): void =>
    navigate(hrefOf("approvals", id === undefined ? [] : [id], { state: state === "pending" ? undefined : state }), {
      replace,
    });

  useEffect(() => {
    if (state === "pending" && list.data) waiting.value = list.data.approvals.length;
  }, [list.data]);
  // On a wide screen there is always one to look at; a request that leaves the list stays until another is chosen.
  useEffect(() => {
    if (selected === undefined && WIDE.matches && rows[0]) open(rows[0].id, true);
  }, [selected, rows[0]?.id]);

  const step = (by: number): void => {
    const at = rows.findIndex(({ id }) => id === selected);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
    if (!next) return;
    open(next.id, true);
    document.getElementById(`request-${next.id}`)?.scrollIntoView({ block: "nearest" });
  };
  const mark = (id: string): void =>
    setMarks((before) => new Set(before.has(id) ? [...before].filter((other) => other !== id) : [...before, id]));
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => {
      if (selected !== undefined && seen.current.has(selected)) mark(selected);
    },
  });
  const marked = rows.flatMap(({ id, state: now, answerable }) => {
    const shown = seen.current.get(id);
    return marks.has(id) && now === "pending" && answerable && shown ? [shown] : [];
  });
  const nextOf = (id: string): ApprovalRow | undefined => {
    const at = rows.findIndex((row) => row.id === id);
    const waits = (row: ApprovalRow): boolean => row.id !== id && row.state === "pending";
    return rows.slice(at + 1).find(waits) ?? rows.find(waits);
  };

  return (
    <div class={`split approvals${selected === undefined ? "" : " has-item"}`}>
      <section class="split-list" aria-label="Approval requests">
        <Header title="Approvals">
          <div class="segments" role="group" aria-label="Which requests">
            <Button kind="quiet" pressed={state === "pending"} onClick={() => navigate(hrefOf("approvals"))}>
              Waiting
            </Button>
            <Button
              kind="quiet"
              pressed={state === SHOW_ALL}
              onClick={() => navigate(hrefOf("approvals", [], { state: SHOW_ALL }))}
            >
              All
            </Button>
          </div>
        </Header>
        {marked.length > 0 && (
          <div class="bulk">
            <Button kind="primary" icon="check" onClick={() => setManyOpen(true)}>
              Approve these {marked.length}
            </Button>
            <Button kind="quiet" onClick={() => setMarks(new Set<string>())}>
              Unmark
            </Button>
          </div>
        )}
        {list.error && <Problem error={list.error} retry={list.reload} />}
        {!list.data && !list.error && <Loading />}
        {list.data && rows.length === 0 && (
          <Empty title="Nothing waits">
            <p>
              Calls that need an approval appear here at once. You can leave this page open in a tab: its title counts
              them.
            </p>
          </Empty>
        )}
        <ul class="inbox">
          {rows.map((row) => (
            <li key={row.id} id={`request-${row.id}`} class={row.id === selected ? "current" : undefined}>
              {row.state === "pending" && row.answerable && can("approveThese") && (
                <input
                  type="checkbox"
                  checked={marks.has(row.id)}
                  disabled={!seen.current.has(row.id)}
                  aria-label={`Mark ${row.tool}`}
                  title={seen.current.has(row.id) ? "Mark" : "Open it first: only what was seen can be approved"}
                  onChange={() => mark(row.id)}
                />
              )}
              <a
                href={hrefOf("approvals", [row.id], { state: state === "pending" ? undefined : state })}
                aria-current={row.id === selected ? "true" : undefined}
              >
                <span class="inbox-top">
                  <strong class="mono">
                    <Text>{row.tool}</Text>
                  </strong>
                  <span class="soft">
                    {row.state === "pending" ? <Left until={row.expires_at} /> : <State row={row} />}
                  </span>
                </span>
                <span class="inbox-preview mono">
                  <Text>{row.arguments_preview}</Text>
                </span>
                <span class="soft">
                  <Text>{row.agent}</Text> of <Text>{row.app}</Text> · <Ago at={row.created_at} />
                </span>
              </a>
            </li>
          ))}
        </ul>
        <Grants />
      </section>
      <section class="split-item" aria-label="Approval request">
        {selected === undefined ? (
          rows.length > 0 && <Empty title="Choose a request" />
        ) : (
          <Request
            key={selected}
            id={selected}
            next={nextOf(selected)}
            onSeen={(detail) => seen.current.set(detail.id, detail)}
            onBack={() => open(undefined)}
            onNext={(id) => open(id)}
          />
        )}
      </section>
      {areManyOpen && (
        <ApproveThese
          these={marked}
          onClose={() => setManyOpen(false)}
          onDone={() => {
            setManyOpen(false);
            setMarks(new Set<string>());
            list.reload();
          }}
        />
      )}
    </div>
  );
}

const TONES = { pending: "wait", approved: "good", redeemed: "good", denied: "bad", expired: "neutral" } as const;
const STATES = {
  pending: "Waiting",
  approved: "Approved",
  redeemed: "Approved and used",
  denied: "Denied",
  expired: "Expired",
} as const;

function State({ row }: { row: Pick<ApprovalRow, "state"> }) {
  return <Pill tone={TONES[row.state]}>{STATES[row.state]}</Pill>;
}

interface RequestProps {
  id: string;
  next: ApprovalRow | undefined;
  onSeen: (detail: ApprovalDetail) => void;
  onBack: () => void;
  onNext: (id: string) => void;
}

function Request({ id, next, onSeen, onBack, onNext }: RequestProps) {
  const loaded = useLoad("getApproval", { id });
  const [outcome, setOutcome] = useState("");
  const heading = useRef<HTMLHeadingElement>(null);
  const { data, error, reload } = loaded;
  useEvents((event) => {
    if (event.type === "approvals" && event.changed.includes(id)) reload();
  });
  useEffect(() => {
    if (!data) return;
    clockOffsetMs.value = Date.parse(data.now) - Date.now();
    onSeen(data);
  }, [data]);
  useEffect(() => {
    // The focus follows the request on a phone, where it takes the place of the list.
    if (data && !WIDE.matches) heading.current?.focus();
  }, [data?.id]);
  const back = (
    <button type="button" class="back" onClick={onBack}>
      <Icon name="back" /> All requests
    </button>
  );
  if (error)
    return (
      <div class="request">
        {back}
        <Problem error={error} retry={reload} />
      </div>
    );
  if (!data) return <Loading />;
  const done = (text: string): void => {
    setOutcome(text);
    notify("good", text);
    reload();
  };
  return (
    <article class="request" aria-labelledby="request-title">
      {back}
      <div class="request-head">
        <div class="request-state">
          <State row={data} />
          {data.state === "pending" && (
            <span class="time-left">
              <Icon name="clock" />
              <Left until={data.expires_at} />
            </span>
          )}
        </div>
        <h2 id="request-title" ref={heading} tabIndex={-1} class="mono">
          <Text>{data.tool}</Text>
        </h2>
        <p class="reason">
          <Text>{data.reason}</Text>
        </p>
      </div>
      <Facts
        items={[
          [
            "Agent",
            <>
              <Text>{data.agent}</Text> of <Text>{data.app}</Text>
              {data.holder !== undefined && (
                <>
                  {", with a delegation held by "}
                  <Text>{data.holder}</Text>
                </>
              )}
            </>,
          ],
          data.user !== undefined && ["User", <Text>{data.user}</Text>],
          data.client !== undefined && [
            "Client",
            <>
              <Text>{data.client}</Text> <span class="soft">(what it calls itself)</span>
            </>,
          ],
          data.server !== undefined && ["Server", <Text>{data.server}</Text>],
          ["Asked", <Ago at={data.created_at} />],
        ]}
      />
      <Card title="Arguments, in full" actions={<span class="soft">{count(data.arguments.length, "character")}</span>}>
        <Json text={data.arguments} label="Arguments" />
        {data.forwarded !== "{}" && (
          <>
            <h3>Sent beside the arguments</h3>
            <Json text={data.forwarded} label="Sent beside the arguments" />
          </>
        )}
        <LastApproved detail={data} />
      </Card>
      {data.rules.map((rule) => (
        <Card
          key={rule.id}
          title={
            <>
              Rule <Text>{rule.id}</Text>
            </>
          }
          actions={
            rule.file !== undefined && (
              <span class="soft mono">
                <Text>{rule.file}</Text>
                {rule.line !== undefined && `:${rule.line}`}
              </span>
            )
          }
        >
          {rule.text === undefined ? (
            <p class="soft">Its text is not available.</p>
          ) : (
            <Cedar text={rule.text} label={`Text of ${rule.id}`} />
          )}
        </Card>
      ))}
      <AboutTool detail={data} />
      <Recent detail={data} />
      <Outcome detail={data} outcome={outcome} next={next} onNext={onNext} onBack={onBack} />
      {data.state === "pending" && <Actions detail={data} onDone={done} />}
    </article>
  );
}

function LastApproved({ detail: { last_approved: last, arguments: now } }: { detail: ApprovalDetail }) {
  if (!last) return <p class="soft note">No call of this agent was approved under this rule before.</p>;
  return (
    <details class="fold-section" open={last.arguments !== undefined && last.arguments !== now}>
      <summary>
        {last.arguments === now ? "The same arguments as" : "Difference to"} the last approved call,{" "}
        <Time at={last.at} /> by <Text>{last.by}</Text>
      </summary>
      {last.arguments === undefined ? (
        <p class="soft">Its arguments were not kept.</p>
      ) : (
        last.arguments !== now && (
          <Difference
            before={laidOut(last.arguments)}
            after={laidOut(now)}
            label="Difference to the last approved call"
          />
        )
      )}
    </details>
  );
}

const HINTS: Readonly<Record<string, readonly [whenTrue: string, whenFalse: string]>> = {
  readOnlyHint: ["only reads", "changes something"],
  destructiveHint: ["may destroy", "does not destroy"],
  idempotentHint: ["repeating changes nothing more", "repeating repeats the effect"],
  openWorldHint: ["reaches beyond this system", "stays within this system"],
};

function AboutTool({ detail: { description, hints = {} } }: { detail: ApprovalDetail }) {
  const given = Object.entries(hints);
  if (description === undefined && given.length === 0) return null;
  return (
    <Card title="The tool" actions={<span class="soft">written by its server</span>}>
      {description !== undefined && (
        <div class="prose">
          <Lines text={description} />
        </div>
      )}
      {given.length > 0 && (
        <p class="pills">
          {given.map(([name, value]) => {
            const words = HINTS[name];
            const text =
              words && typeof value === "boolean" ? words[value ? 0 : 1] : `${name}: ${JSON.stringify(value)}`;
            return (
              <Pill key={name} tone={name === "destructiveHint" && value === true ? "bad" : "neutral"}>
                <Text>{text}</Text>
              </Pill>
            );
          })}
        </p>
      )}
    </Card>
  );
}

function Recent({ detail: { recent, agent } }: { detail: ApprovalDetail }) {
  if (recent.length === 0) return null;
  return (
    <Card
      title={
        <>
          What <Text>{agent}</Text> did in the last minutes
        </>
      }
      flush
    >
      <ul class="recent">
        {recent.map((each) => (
          <li key={each.id}>
            <Time at={each.at} />
            <Effect effect={each.effect} mode={each.mode} />
            {can("explainDecision") ? (
              <a class="mono" href={hrefOf("decisions", [each.id])}>
                <Text>{each.tool}</Text>
              </a>
            ) : (
              <span class="mono">
                <Text>{each.tool}</Text>
              </span>
            )}
            {each.outcome !== undefined && <span class="soft">{marked(each.outcome)}</span>}
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** Says what happens next; the focus comes here after an answer. */
function Outcome({
  detail,
  outcome,
  next,
  onNext,
  onBack,
}: {
  detail: ApprovalDetail;
  outcome: string;
  next: ApprovalRow | undefined;
  onNext: (id: string) => void;
  onBack: () => void;
}) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (outcome !== "" && detail.state !== "pending") ref.current?.querySelector("button")?.focus();
  }, [outcome, detail.state]);
  if (detail.state === "pending") return null;
  const by = detail.decided_by;
  return (
    <div ref={ref} class={`outcome ${TONES[detail.state]}`}>
      <p>
        {outcome || (
          <>
            {STATES[detail.state]}
            {by !== undefined && (
              <>
                {" by "}
                <Text>{by}</Text>
              </>
            )}
            .
          </>
        )}
      </p>
      {detail.deny_reason !== undefined && detail.deny_reason !== "" && (
        <p>
          Reason: <Folded text={detail.deny_reason} />
        </p>
      )}
      {next ? (
        <Button kind="primary" onClick={() => onNext(next.id)}>
          Next request
        </Button>
      ) : (
        <Button onClick={onBack}>Nothing else waits</Button>
      )}
    </div>
  );
}

function Actions({ detail, onDone }: { detail: ApprovalDetail; onDone: (text: string) => void }) {
  const [isDenying, setDenying] = useState(false);
  const [isGranting, setGranting] = useState(false);
  const [why, setWhy] = useState("");
  const { id, agent, intent_id } = detail;
  const focusApprove = (): void => document.getElementById("approve-once")?.focus();
  useKeys({
    a: focusApprove,
    d: () => setDenying(true),
  });
  if (!can("approve")) return <p class="soft note">Your role may look at requests and not answer them.</p>;
  if (!detail.answerable)
    return (
      <p class="note">
        For members of <Text>{detail.approvers.join(", ")}</Text>; you are signed in for{" "}
        <Text>{session.value?.groups.join(", ") || "no group"}</Text>.
      </p>
    );
  const approve = (): Promise<boolean> =>
    attempt(async () => {
      await call("approve", { id, intent_id });
      onDone(`Approved. ${agent} runs exactly this call, once, before ${timeOfDay(detail.expires_at)}.`);
    });
  const deny = (): Promise<boolean> =>
    attempt(async () => {
      await call("deny", { id, ...(why.trim() === "" ? {} : { reason: why.trim() }) });
      setDenying(false);
      onDone(`Denied. The call does not run${why.trim() === "" ? "" : `, and ${agent} reads the reason`}.`);
    });
  return (
    <div class="actions" role="group" aria-label="Answer">
      {isDenying ? (
        <Form onSubmit={deny}>
          <Field
            label="Reason, which the agent reads"
            value={why}
            onInput={setWhy}
            autofocus
            maxLength={2_000}
            placeholder="optional"
          />
          <DenyFocus />
          <div class="action-row">
            <Button onClick={() => setDenying(false)}>Cancel</Button>
            <Button kind="danger" type="submit" icon="deny">
              Deny this call
            </Button>
          </div>
        </Form>
      ) : (
        <div class="action-row">
          <Button kind="danger" icon="deny" shortcut="d" onClick={() => setDenying(true)}>
            Deny…
          </Button>
          {can("grantApproval") && (
            <Button icon="clock" onClick={() => setGranting(true)}>
              Grant…
            </Button>
          )}
          <Button kind="primary" icon="check" shortcut="a" id="approve-once" onClick={approve}>
            Approve once
          </Button>
        </div>
      )}
      {isGranting && (
        <GrantDialog
          detail={detail}
          onClose={() => setGranting(false)}
          onDone={(text) => {
            setGranting(false);
            onDone(text);
          }}
        />
      )}
    </div>
  );
}

/** Puts the focus into the reason before the next key is read: no letter of the reason is lost. */
function DenyFocus() {
  const ref = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => ref.current?.closest("form")?.querySelector("input")?.focus(), []);
  return <span ref={ref} hidden />;
}

const MINUTES = [
  ["15", "15 minutes"],
  ["60", "1 hour"],
  ["480", "8 hours"],
] as const;

function GrantDialog({
  detail,
  onClose,
  onDone,
}: {
  detail: ApprovalDetail;
  onClose: () => void;
  onDone: (text: string) => void;
}) {
  const { bound } = { bound: detail.grant };
  const names = [...Object.keys(bound.fixed), ...bound.free];
  const [minutes, setMinutes] = useState("15");
  const [fixed, setFixed] = useState<readonly string[]>(Object.keys(bound.fixed));
  const [why, setWhy] = useState("");
  const given = topLevel(detail.arguments);
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      const made = await call("grantApproval", {
        id: detail.id,
        intent_id: detail.intent_id,
        minutes: Number(minutes),
        fixed,
        ...(why.trim() === "" ? {} : { reason: why.trim() }),
      });
      onDone(
        `Granted until ${timeOfDay(made.bound.until)}. This call runs, and further ones within the bound without asking.`,
      );
    });
  return (
    <Dialog title="Grant further calls" onClose={onClose}>
      <Form onSubmit={submit}>
        <p>
          <Text>{bound.agent}</Text> of <Text>{bound.app}</Text> may call{" "}
          <strong class="mono">
            <Text>{bound.tool}</Text>
          </strong>{" "}
          without asking, as long as the definition of the tool and the rule{bound.rules.length === 1 ? " " : "s "}
          <Text>{bound.rules.join(", ")}</Text> stay as they are.
        </p>
        <Select label="For how long" value={minutes} options={MINUTES} onChange={setMinutes} />
        {names.length > 0 && (
          <fieldset>
            <legend>Arguments that must be the same</legend>
            {names.map((name) => (
              <label key={name} class="check">
                <input
                  type="checkbox"
                  checked={fixed.includes(name)}
                  onChange={() =>
                    setFixed(fixed.includes(name) ? fixed.filter((other) => other !== name) : [...fixed, name])
                  }
                />
                <span class="mono">
                  <Text>{name}</Text>
                  {given.has(name) && (
                    <span class="soft">
                      {" = "}
                      <Folded text={given.get(name) as string} at={80} />
                    </span>
                  )}
                </span>
              </label>
            ))}
            {fixed.length < names.length && <p class="hint">The others may be anything that policy lets through.</p>}
          </fieldset>
        )}
        <Field label="Reason, for the record" value={why} onInput={setWhy} maxLength={2_000} placeholder="optional" />
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" icon="clock">
            Grant for {MINUTES.find(([value]) => value === minutes)?.[1]}
          </Button>
        </div>
        <p class="hint">It can be revoked at any time, and the ledger records it.</p>
      </Form>
    </Dialog>
  );
}

function topLevel(text: string): Map<string, string> {
  try {
    const parsed = JSON.parse(text) as Record<string, unknown>;
    return new Map(Object.entries(parsed).map(([name, value]) => [name, JSON.stringify(value)]));
  } catch {
    return new Map();
  }
}

function ApproveThese({
  these,
  onClose,
  onDone,
}: {
  these: readonly ApprovalDetail[];
  onClose: () => void;
  onDone: () => void;
}) {
  const [problems, setProblems] = useState<readonly string[]>([]);
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      const { results } = await call("approveThese", {
        these: these.map(({ id, intent_id }) => ({ id, intent_id })),
      });
      const failed = results.filter(({ ok }) => !ok);
      const good = results.length - failed.length;
      if (failed.length === 0) {
        notify("good", `Approved ${count(good, "call")}. Each runs once.`);
        onDone();
      } else setProblems(failed.map(({ id, problem = "not approved" }) => `${id}: ${problem}`));
    });
  return (
    <Dialog title={`Approve ${count(these.length, "call")}, each once`} onClose={onClose}>
      <ul class="plain-list">
        {these.map(({ id, tool, agent, arguments: text }) => (
          <li key={id}>
            <strong class="mono">
              <Text>{tool}</Text>
            </strong>{" "}
            <span class="soft">
              <Text>{agent}</Text>
            </span>
            <div class="mono">
              <Folded text={text} at={300} />
            </div>
          </li>
        ))}
      </ul>
      {problems.map((problem) => (
        <p key={problem} class="problem" role="alert">
          <Text>{problem}</Text>
        </p>
      ))}
      <div class="dialog-actions">
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" icon="check" onClick={submit}>
          Approve these {these.length}
        </Button>
      </div>
    </Dialog>
  );
}
