// The records of a ledger, its chain and checkpoint, and what proves that nothing was changed.

import { useEffect, useRef, useState } from "preact/hooks";
import type { OperationResult, RecordRow, VerificationView } from "../../../src/admin/operations.js";
import { call } from "../api/client.js";
import { address, hrefOf, navigate, setQuery } from "../router.js";
import { attempt, can } from "../state.js";
import { Icon } from "../ui/icon.js";
import { useEvents, useLoad } from "../ui/load.js";
import {
  Button,
  Card,
  Copy,
  count,
  Empty,
  Facts,
  Field,
  Form,
  Header,
  Pill,
  Problem,
  Select,
  Show,
} from "../ui/parts.js";
import { Json, Lines, Text } from "../ui/text.js";
import { Ago, Time } from "../ui/time.js";
import { VirtualList } from "../ui/virtual-list.js";

type LedgerRow = OperationResult<"listLedgers">["ledgers"][number];

export function Ledger() {
  const loaded = useLoad("listLedgers", {}, ({ type }) => type === "verification");
  const [name] = address.value.item;
  return (
    <>
      <Header title="Ledger" />
      <Show of={loaded}>
        {({ ledgers }) => {
          const own = ledgers.find(({ own: isOwn }) => isOwn) ?? ledgers[0];
          const chosen = name === undefined ? own : ledgers.find(({ ledger }) => ledger === name);
          if (!chosen) return <Empty title="There is no such ledger" />;
          return (
            <>
              {ledgers.length > 1 && (
                <div class="ledger-choice">
                  <Select
                    label="Ledger"
                    value={chosen.ledger}
                    options={ledgers.map(({ ledger }) => [ledger, ledger] as const)}
                    onChange={(ledger) => navigate(hrefOf("ledger", [ledger]))}
                  />
                </div>
              )}
              <Status of={chosen} key={`status ${chosen.ledger}`} />
              <Records of={chosen} key={chosen.ledger} />
            </>
          );
        }}
      </Show>
    </>
  );
}

function Status({ of: row }: { of: LedgerRow }) {
  const covered = row.signed >= row.size;
  return (
    <Card
      title={<Text>{row.ledger}</Text>}
      actions={
        <Pill tone={row.healthy ? "good" : "bad"}>
          {row.healthy ? (row.own ? "written here" : "readable") : "not writable"}
        </Pill>
      }
    >
      {row.problem !== undefined && (
        <p class="problem">
          <Text>{row.problem}</Text>
        </p>
      )}
      <Facts
        items={[
          ["Records", row.size.toLocaleString("en")],
          row.first > 0 && ["Oldest kept", `#${row.first.toLocaleString("en")}`],
          [
            "Under a signed checkpoint",
            covered
              ? "all"
              : `${row.signed.toLocaleString("en")}, ${(row.size - row.signed).toLocaleString("en")} to come`,
          ],
          row.checkpoint_at !== undefined && ["Signed", <Ago at={row.checkpoint_at} />],
          row.origin !== undefined && ["Origin", <Text>{row.origin}</Text>],
        ]}
      />
      {row.checkpoint !== undefined && (
        <details class="fold-section">
          <summary>Checkpoint</summary>
          <div class="code">
            <Lines text={row.checkpoint.trimEnd()} />
          </div>
          <Copy text={row.checkpoint} label="checkpoint" />
        </details>
      )}
      {can("verifyLedger") && <Verify ledger={row.ledger} />}
    </Card>
  );
}

const POLL_MS = 1_000;

function Verify({ ledger }: { ledger: string }) {
  const [state, setState] = useState<VerificationView>();
  useEvents((event) => {
    if (event.type === "verification" && event.verification.ledger === ledger) setState(event.verification);
  });
  const isRunning = state?.state === "running";
  // Where events do not arrive, the progress is asked for.
  useEffect(() => {
    if (!state || !isRunning) return;
    const timer = setTimeout(
      () => void attempt(async () => setState(await call("getVerification", { id: state.id }))),
      POLL_MS,
    );
    return () => clearTimeout(timer);
  }, [state]);
  return (
    <div class="verify" aria-live="polite">
      <Button
        kind="primary"
        disabled={isRunning}
        onClick={() => attempt(async () => setState(await call("verifyLedger", { ledger })))}
      >
        {isRunning ? "Verifying …" : "Verify every record"}
      </Button>
      {state && isRunning && <progress max={1} value={state.progress} aria-label="Progress of the verification" />}
      {state && !isRunning && (
        <div>
          <p>
            <Pill tone={state.ok ? "good" : "bad"}>{state.ok ? "Nothing is wrong" : "Problems found"}</Pill>{" "}
            {state.records !== undefined && `${count(state.records, "record")} read`}
            {state.covered !== undefined && `, ${state.covered.toLocaleString("en")} under a signed checkpoint`}
          </p>
          {state.problems.map((problem) => (
            <p key={problem} class="problem">
              <Text>{problem}</Text>
            </p>
          ))}
          {state.notes.map((note) => (
            <p key={note} class="soft">
              <Text>{note}</Text>
            </p>
          ))}
        </div>
      )}
    </div>
  );
}

const PAGE = 200;
const MAX_PAGES = 60;
const ROW_HEIGHT = 36;
const KINDS = ["", "decision", "outcome", "challenge", "approval", "policy", "admin", "key", "start"] as const;

/** Newest first. Every record has its place, so that any part of a long ledger is one request away. */
function Records({ of: { ledger, size, first } }: { of: LedgerRow }) {
  const { query } = address.value;
  const kind = query.get("kind") ?? "";
  const at = query.get("at");
  return (
    <div class="records">
      <Card
        title="Records"
        actions={
          <>
            <GoTo size={size} />
            <Select
              label="Kind"
              value={kind}
              options={KINDS.map((each) => [each, each === "" ? "every kind" : each] as const)}
              onChange={(value) => setQuery({ kind: value || undefined })}
            />
          </>
        }
        flush
      >
        {size === 0 ? (
          <Empty title="No record yet" />
        ) : kind === "" ? (
          <AllRecords ledger={ledger} size={size} first={first} at={at === null ? undefined : Number(at)} />
        ) : (
          <RecordsOfKind key={kind} ledger={ledger} kind={kind} size={size} />
        )}
      </Card>
    </div>
  );
}

function GoTo({ size }: { size: number }) {
  const [text, setText] = useState("");
  return (
    <Form onSubmit={() => setQuery({ at: text.replace("#", "") || undefined, kind: undefined })}>
      <Field
        label="Go to number"
        type="number"
        value={text}
        onInput={setText}
        placeholder={String(Math.max(0, size - 1))}
      />
    </Form>
  );
}

function AllRecords({
  ledger,
  size,
  first,
  at,
}: {
  ledger: string;
  size: number;
  first: number;
  at: number | undefined;
}) {
  const pages = useRef(new Map<number, readonly RecordRow[] | "reading">());
  const [, redraw] = useState(0);
  const [end, setEnd] = useState(size);
  const [cursor, setCursor] = useState(-1);
  const [opened, setOpened] = useState<number>();
  useEffect(() => setEnd(size), [size]);
  useEffect(() => {
    if (at === undefined || Number.isNaN(at) || at < first || at >= end) return;
    setCursor(end - 1 - at);
    setOpened(at);
  }, [at]);
  const recordAt = (seq: number): RecordRow | undefined => {
    const page = pages.current.get(Math.floor(seq / PAGE));
    return Array.isArray(page) ? (page as readonly RecordRow[]).find((record) => record.seq === seq) : undefined;
  };
  const read = (page: number): void => {
    if (pages.current.has(page)) return;
    pages.current.set(page, "reading");
    void attempt(async () => {
      const from = Math.max(first, page * PAGE);
      const { items, size: now } = await call("listRecords", {
        ledger,
        from,
        limit: Math.min(PAGE, (page + 1) * PAGE - from),
      });
      pages.current.set(page, items);
      for (const oldest of [...pages.current.keys()].slice(0, Math.max(0, pages.current.size - MAX_PAGES))) {
        pages.current.delete(oldest);
      }
      if (now > end) setEnd(now);
      redraw((turn) => turn + 1);
    }).then((isDone) => isDone || pages.current.delete(page));
  };
  const total = end - first;
  const seqOf = (index: number): number => end - 1 - index;
  return (
    <>
      <VirtualList
        label="Records"
        total={total}
        rowHeight={ROW_HEIGHT}
        selected={cursor}
        onSelect={setCursor}
        onOpen={(index) => setOpened(seqOf(index))}
        onView={(from, to) => {
          if (total === 0) return;
          for (let page = Math.floor(seqOf(to) / PAGE); page <= Math.floor(seqOf(from) / PAGE); page++) read(page);
        }}
        row={(index) => <RecordLine seq={seqOf(index)} record={recordAt(seqOf(index))} />}
      />
      {opened !== undefined && <OpenedRecord ledger={ledger} seq={opened} onClose={() => setOpened(undefined)} />}
    </>
  );
}

function RecordsOfKind({ ledger, kind, size }: { ledger: string; kind: string; size: number }) {
  const loaded = useLoad("listRecords", { ledger, kind, limit: 1_000 });
  const [opened, setOpened] = useState<number>();
  const [cursor, setCursor] = useState(-1);
  return (
    <Show of={loaded}>
      {({ items }) => {
        const newest = items.toReversed();
        if (newest.length === 0) return <Empty title={`No record of this kind among ${count(size, "record")}`} />;
        return (
          <>
            <VirtualList
              label="Records"
              total={newest.length}
              rowHeight={ROW_HEIGHT}
              selected={cursor}
              onSelect={setCursor}
              onOpen={(index) => setOpened(newest[index]?.seq)}
              row={(index) => <RecordLine seq={newest[index]?.seq ?? 0} record={newest[index]} />}
            />
            {opened !== undefined && <OpenedRecord ledger={ledger} seq={opened} onClose={() => setOpened(undefined)} />}
          </>
        );
      }}
    </Show>
  );
}

function RecordLine({ seq, record }: { seq: number; record: RecordRow | undefined }) {
  return (
    <div class="record-row">
      <span class="mono soft">#{seq}</span>
      {record ? (
        <>
          <Time at={record.at} />
          <Pill
            tone={
              record.kind === "approval" || record.kind === "admin" || record.kind === "policy" ? "info" : "neutral"
            }
          >
            {record.kind}
          </Pill>
          <span class="clip">
            <Text>{record.summary}</Text>
          </span>
        </>
      ) : (
        <span class="soft">…</span>
      )}
    </div>
  );
}

function OpenedRecord({ ledger, seq, onClose }: { ledger: string; seq: number; onClose: () => void }) {
  const loaded = useLoad("listRecords", { ledger, from: seq, limit: 1 });
  return (
    <section class="opened" aria-label={`Record ${seq}`}>
      <div class="item-head">
        <h2>Record #{seq}</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {loaded.error && <Problem error={loaded.error} retry={loaded.reload} />}
      {loaded.data?.items[0] && (
        <>
          <Json text={JSON.stringify(loaded.data.items[0].record)} label={`Record ${seq}`} />
          {loaded.data.items[0].kind === "decision" && can("explainDecision") && (
            <p class="note">
              <a href={hrefOf("decisions", [loaded.data.items[0].id])}>Why it was decided so</a>
            </p>
          )}
        </>
      )}
    </section>
  );
}
