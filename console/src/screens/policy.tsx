// The policy of an application: edit it with the real checker, try calls, compare before activation, roll back.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ExplanationView, OperationResult } from "../../../src/admin/operations.js";
import { call } from "../api/client.js";
import { CodeEditor, Merge } from "../editor/index.js";
import { address, hrefOf, navigate } from "../router.js";
import { attempt, can, notify } from "../state.js";
import { useLoad } from "../ui/load.js";
import {
  Button,
  Card,
  count,
  Dialog,
  Effect,
  Empty,
  Field,
  Form,
  Header,
  Pill,
  Select,
  Show,
  shortHash,
} from "../ui/parts.js";
import { Text } from "../ui/text.js";
import { Ago, Time } from "../ui/time.js";
import { Explanation } from "./decisions.js";

type Policies = OperationResult<"getPolicies">;
type Checked = OperationResult<"checkPolicies">;
type Compared = OperationResult<"comparePolicies">;
interface Source {
  readonly file: string;
  readonly text: string;
}
const CHECK_MS = 400;

export function Policy() {
  const apps = useLoad("listApplications", {});
  const [chosen] = address.value.item;
  return (
    <Show of={apps}>
      {({ applications }) => {
        const app = chosen ?? applications[0]?.app;
        if (app === undefined) return <Empty title="There is no application yet" />;
        return (
          <>
            <Header title="Policy">
              {applications.length > 1 && (
                <Select
                  label="Application"
                  value={app}
                  options={applications.map((each) => [each.app, each.app] as const)}
                  onChange={(name) => navigate(hrefOf("policy", [name]))}
                />
              )}
            </Header>
            <PoliciesOf key={app} app={app} />
          </>
        );
      }}
    </Show>
  );
}

function PoliciesOf({ app }: { app: string }) {
  const loaded = useLoad("getPolicies", { app }, (event) => event.type === "changed" && event.topic === "policy");
  return <Show of={loaded}>{(data) => <Workbench app={app} policies={data} onActivated={loaded.reload} />}</Show>;
}

function writable(policies: Policies): Source[] {
  return policies.files.filter((file) => file.writable).map(({ file, text }) => ({ file, text }));
}

const same = (a: readonly Source[], b: readonly Source[]): boolean => JSON.stringify(a) === JSON.stringify(b);

function Workbench({ app, policies, onActivated }: { app: string; policies: Policies; onActivated: () => void }) {
  const inForce = useMemo(() => writable(policies), [policies]);
  const [draft, setDraft] = useState<readonly Source[]>(inForce);
  const base = useRef(policies.hash);
  const [selected, setSelected] = useState(inForce[0]?.file ?? policies.files[0]?.file ?? "");
  const [goTo, setGoTo] = useState<{ line: number; column: number }>();
  const [isComparing, setComparing] = useState(false);
  const isChanged = !same(draft, inForce);
  const checked = useChecked(app, draft);

  useEffect(() => {
    // Another policy was activated: an untouched draft follows, a changed one is compared with the new one.
    if (!isChanged || base.current === policies.hash) setDraft(inForce);
    base.current = policies.hash;
  }, [policies.hash]);

  const shown = draft.find(({ file }) => file === selected);
  const fixed = policies.files.find(({ file, writable: isOpen }) => file === selected && !isOpen);
  const change = (text: string): void =>
    setDraft((before) => before.map((file) => (file.file === selected ? { ...file, text } : file)));
  const findings = (checked ? [...marks(checked, "problems"), ...marks(checked, "warnings")] : []).filter(
    ({ file }) => file === selected,
  );
  const load = (files: readonly Source[], what: string): void => {
    setDraft(files);
    setSelected(files[0]?.file ?? selected);
    notify("good", `${what} is in the editor. Nothing is in force before you activate it.`);
  };
  return (
    <>
      {policies.refusal !== undefined && (
        <p class="problem" role="alert">
          <Text>{policies.refusal}</Text>
        </p>
      )}
      <div class="policy">
        <div class="policy-main">
          <Card
            flush
            title={
              <>
                <Text>{app}</Text> <span class="soft mono">{shortHash(policies.hash)}</span>
              </>
            }
            actions={
              <>
                {isChanged && <Pill tone="wait">Draft, not in force</Pill>}
                {isChanged && (
                  <Button kind="quiet" onClick={() => setDraft(inForce)}>
                    Discard
                  </Button>
                )}
                {can("putDraft") && isChanged && <SaveDraft app={app} base={policies.hash} files={draft} />}
                {can("comparePolicies") && (
                  <Button
                    kind="primary"
                    disabled={!isChanged || checked?.ok === false}
                    onClick={() => setComparing(true)}
                  >
                    Compare and activate…
                  </Button>
                )}
              </>
            }
          >
            <div class="tabs">
              <div class="tab-list" role="tablist" aria-label="Policy files">
                {[...draft, ...policies.files.filter((file) => !file.writable)].map(({ file }) => {
                  const problems = checked?.problems.filter((problem) => problem.file === file).length ?? 0;
                  return (
                    <button
                      key={file}
                      type="button"
                      role="tab"
                      aria-selected={file === selected}
                      class="tab mono"
                      onClick={() => setSelected(file)}
                    >
                      <Text>{file.split("/").at(-1) ?? file}</Text>
                      {problems > 0 && <span class="count">{problems}</span>}
                    </button>
                  );
                })}
              </div>
              {can("activatePolicies") && (
                <NewFile
                  taken={draft}
                  onAdd={(file) => {
                    setDraft([...draft, { file, text: "" }]);
                    setSelected(file);
                  }}
                />
              )}
            </div>
            {fixed && (
              <p class="soft tab-note">
                <Text>{fixed.file}</Text>:{" "}
                {fixed.scope === "all" ? "in force for all applications" : `comes with the ${fixed.scope}`}, not changed
                here.
              </p>
            )}
            {(shown ?? fixed) ? (
              <CodeEditor
                key={selected}
                text={(shown ?? fixed)?.text ?? ""}
                label={`Policy ${selected}`}
                isReadOnly={fixed !== undefined || !can("activatePolicies")}
                tools={policies.tools}
                findings={findings}
                goTo={goTo}
                onChange={change}
              />
            ) : (
              <Empty title="No policy file">Without a policy every call is denied.</Empty>
            )}
          </Card>
          <Findings
            checked={checked}
            warnings={policies.warnings}
            onGoTo={(file, line, column) => {
              setSelected(file);
              setGoTo({ line, column });
            }}
          />
        </div>
        <div class="policy-side">
          {can("tryCall") && <TryCall app={app} tools={policies.tools} draft={isChanged ? draft : undefined} />}
          {can("suggestPolicy") && <Suggest app={app} draft={draft} onLoad={load} />}
          <Drafts app={app} onLoad={load} />
          <Versions app={app} inForce={policies.hash} onLoad={load} />
        </div>
      </div>
      {isComparing && (
        <Compare
          app={app}
          base={policies.hash}
          before={inForce}
          after={draft}
          onClose={() => setComparing(false)}
          onDone={() => {
            setComparing(false);
            onActivated();
          }}
        />
      )}
    </>
  );
}

function marks(checked: Checked, of: "problems" | "warnings") {
  return checked[of].map(({ file, line, column, message, help }) => ({
    file,
    line,
    column,
    message: help === "" ? message : `${message} (${help})`,
    isWarning: of === "warnings",
  }));
}

/** What the checker says to the text of a moment ago. */
function useChecked(app: string, files: readonly Source[]): Checked | undefined {
  const [checked, setChecked] = useState<Checked>();
  useEffect(() => {
    if (!can("checkPolicies")) return;
    const ended = new AbortController();
    const timer = setTimeout(() => {
      call("checkPolicies", { app, files }, ended.signal).then(setChecked, () => {});
    }, CHECK_MS);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [app, files]);
  return checked;
}

interface FindingsProps {
  checked: Checked | undefined;
  warnings: Policies["warnings"];
  onGoTo: (file: string, line: number, column: number) => void;
}

function Findings({ checked, warnings, onGoTo }: FindingsProps) {
  const problems = checked?.problems ?? [];
  const worth = checked?.warnings ?? warnings;
  return (
    <Card
      title="Check"
      actions={
        checked && (
          <Pill tone={checked.ok ? "good" : "bad"}>
            {checked.ok ? "can be activated" : count(problems.length, "problem")}
          </Pill>
        )
      }
    >
      <div aria-live="polite">
        {problems.length + worth.length === 0 ? (
          <p class="soft">Nothing is wrong.</p>
        ) : (
          <ul class="plain-list tight">
            {[...problems.map((each) => [each, "bad"] as const), ...worth.map((each) => [each, "wait"] as const)].map(
              ([{ file, line, column, message, help }, tone], i) => (
                <li key={i}>
                  <button type="button" class="link mono" onClick={() => onGoTo(file, Math.max(1, line), column)}>
                    <Text>{file.split("/").at(-1) ?? file}</Text>
                    {line > 0 && `:${line}:${column}`}
                  </button>{" "}
                  <span class={`finding ${tone}`}>
                    <Text>{message}</Text>
                  </span>
                  {help !== "" && (
                    <div class="soft">
                      <Text>{help}</Text>
                    </div>
                  )}
                </li>
              ),
            )}
          </ul>
        )}
      </div>
    </Card>
  );
}

function NewFile({ taken, onAdd }: { taken: readonly Source[]; onAdd: (file: string) => void }) {
  const [isOpen, open] = useState(false);
  const [name, setName] = useState("");
  const file = name.endsWith(".cedar") ? name : `${name}.cedar`;
  return (
    <>
      <button type="button" class="tab" onClick={() => open(true)}>
        + New file
      </button>
      {isOpen && (
        <Dialog title="New policy file" onClose={() => open(false)}>
          <Form
            onSubmit={() => {
              if (taken.some((each) => each.file === file)) return notify("bad", `${file} exists already`);
              onAdd(file);
              open(false);
              setName("");
            }}
          >
            <Field label="Name" value={name} onInput={setName} required mono placeholder="mail.cedar" maxLength={100} />
            <div class="dialog-actions">
              <Button kind="primary" type="submit">
                Add
              </Button>
            </div>
          </Form>
        </Dialog>
      )}
    </>
  );
}

function SaveDraft({ app, base, files }: { app: string; base: string; files: readonly Source[] }) {
  const [isOpen, open] = useState(false);
  const [name, setName] = useState("");
  const save = (): Promise<boolean> =>
    attempt(async () => {
      await call("putDraft", { name, app, base, files });
      notify("good", `Saved as draft ${name}.`);
      open(false);
    });
  return (
    <>
      <Button onClick={() => open(true)}>Save draft…</Button>
      {isOpen && (
        <Dialog title="Save as a draft" onClose={() => open(false)}>
          <Form onSubmit={save}>
            <Field
              label="Name"
              value={name}
              onInput={setName}
              required
              mono
              maxLength={64}
              hint="Letters, digits, - and _. A draft of that name is replaced."
            />
            <div class="dialog-actions">
              <Button kind="primary" type="submit">
                Save
              </Button>
            </div>
          </Form>
        </Dialog>
      )}
    </>
  );
}

interface CompareProps {
  app: string;
  base: string;
  before: readonly Source[];
  after: readonly Source[];
  onClose: () => void;
  onDone: () => void;
}

/** Nothing is activated before its difference and its effect on recorded calls were on the screen. */
function Compare({ app, base, before, after, onClose, onDone }: CompareProps) {
  const loaded = useLoad("comparePolicies", { app, files: after });
  const activate = (): Promise<boolean> =>
    attempt(async () => {
      const { hash } = await call("activatePolicies", { app, files: after, base });
      notify("good", `In force: ${shortHash(hash)}. The next call is decided by it.`);
      onDone();
    });
  const files = [...new Set([...before, ...after].map(({ file }) => file))];
  const textOf = (all: readonly Source[], file: string): string => all.find((each) => each.file === file)?.text ?? "";
  return (
    <Dialog title="Compare and activate" onClose={onClose} wide>
      {files
        .filter((file) => textOf(before, file) !== textOf(after, file))
        .map((file) => (
          <div key={file} class="compared">
            <h3 class="mono">
              <Text>{file}</Text>
            </h3>
            <Merge before={textOf(before, file)} after={textOf(after, file)} />
          </div>
        ))}
      <Show of={loaded}>{(data) => <Replay data={data} />}</Show>
      <div class="dialog-actions">
        <Button onClick={onClose}>Back to the draft</Button>
        {can("activatePolicies") && (
          <Button kind="primary" disabled={!loaded.data} onClick={activate}>
            Activate
          </Button>
        )}
      </div>
    </Dialog>
  );
}

function Replay({ data: { added, removed, changed, replay } }: { data: Compared }) {
  const rules: readonly (readonly [string, readonly string[]])[] = [
    ["Added", added],
    ["Removed", removed],
    ["Changed", changed],
  ];
  return (
    <>
      <h3>Rules</h3>
      <p>
        {rules.every(([, ids]) => ids.length === 0)
          ? "No rule means something else."
          : rules.map(
              ([word, ids]) =>
                ids.length > 0 && (
                  <span key={word} class="rule-change">
                    {word}: <Text>{ids.join(", ")}</Text>
                  </span>
                ),
            )}
      </p>
      <h3>Recorded calls, decided again</h3>
      <p>
        {count(replay.compared, "call")} compared
        {replay.skipped > 0 && (
          <span class="soft">, {replay.skipped.toLocaleString("en")} without kept arguments or tool left out</span>
        )}
        .
      </p>
      {replay.changes.length === 0 ? (
        <p>
          <Pill tone="good">Every one is decided as before</Pill>
        </p>
      ) : (
        <>
          <ul class="pills">
            {replay.changes.map(({ before, after, count: calls }) => (
              <li key={`${before} ${after}`}>
                <strong>{calls.toLocaleString("en")}</strong> <Effect effect={before} /> → <Effect effect={after} />
              </li>
            ))}
          </ul>
          <div class="table">
            <table>
              <thead>
                <tr>
                  <th scope="col">Time</th>
                  <th scope="col">Tool</th>
                  <th scope="col">Agent</th>
                  <th scope="col">Now</th>
                  <th scope="col">Draft</th>
                  <th scope="col">Rules of the draft</th>
                </tr>
              </thead>
              <tbody>
                {replay.calls.map(({ before, after, rules: by, decision }) => (
                  <tr key={decision.id}>
                    <td>
                      <Time at={decision.at} />
                    </td>
                    <td class="mono">
                      <a href={hrefOf("decisions", [decision.id])} target="_blank" rel="noreferrer">
                        <Text>{decision.tool}</Text>
                      </a>
                    </td>
                    <td>
                      <Text>{decision.agent}</Text>
                    </td>
                    <td>
                      <Effect effect={before} />
                    </td>
                    <td>
                      <Effect effect={after} />
                    </td>
                    <td>
                      <Text>{by.join(", ")}</Text>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </>
  );
}

interface TryCallProps {
  app: string;
  tools: Policies["tools"];
  draft: readonly Source[] | undefined;
}

function TryCall({ app, tools, draft }: TryCallProps) {
  const id = address.value.query.get("try");
  const from = useLoad("explainDecision", id === null ? undefined : { id });
  const [agent, setAgent] = useState("agent");
  const [tool, setTool] = useState(tools[0]?.name ?? "");
  const [args, setArgs] = useState("{}");
  const [result, setResult] = useState<ExplanationView>();
  useEffect(() => {
    const decision = from.data?.decision;
    if (!decision) return;
    setAgent(decision.agent);
    setTool(decision.tool);
    if (decision.arguments !== undefined) setArgs(decision.arguments);
  }, [from.data]);
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      let parsed: unknown;
      try {
        parsed = JSON.parse(args);
      } catch (error) {
        throw new Error(`the arguments are not valid JSON: ${(error as Error).message}`, { cause: error });
      }
      const files = draft === undefined ? {} : { files: draft };
      setResult(await call("tryCall", { app, agent, tool, arguments: parsed as Record<string, never>, ...files }));
    });
  return (
    <Card title="Try a call" actions={<span class="soft">{draft ? "with the draft" : "with what is in force"}</span>}>
      <Form onSubmit={submit}>
        <Field label="Tool" value={tool} onInput={setTool} required mono list={tools.map(({ name }) => name)} />
        <Field label="Agent" value={agent} onInput={setAgent} required />
        <Field label="Arguments, as JSON" value={args} onInput={setArgs} rows={4} mono />
        <div>
          <Button type="submit">Decide</Button>
        </div>
      </Form>
      <div class="try-result" aria-live="polite">
        {result && <Explanation of={result} />}
      </div>
    </Card>
  );
}

interface LoadProps {
  app: string;
  onLoad: (files: readonly Source[], what: string) => void;
}

function Suggest({ app, draft, onLoad }: LoadProps & { draft: readonly Source[] }) {
  const suggest = (onlyDenied: boolean): Promise<boolean> =>
    attempt(async () => {
      const { text, calls } = await call("suggestPolicy", { app, ...(onlyDenied ? { only_denied: "1" } : {}) });
      if (calls === 0) return notify("good", "There is no recorded call to suggest a policy from.");
      const file = "suggested.cedar";
      onLoad(
        [{ file, text }, ...draft.filter((each) => each.file !== file)],
        `A suggestion from ${count(calls, "call")}`,
      );
    });
  return (
    <Card title="Suggestion">
      <p class="soft">The narrowest rules that permit what was recorded, for you to edit.</p>
      <div class="action-row wrap start">
        <Button onClick={() => suggest(false)}>From all calls</Button>
        <Button onClick={() => suggest(true)}>From calls not permitted</Button>
      </div>
    </Card>
  );
}

function Drafts({ app, onLoad }: LoadProps) {
  const loaded = useLoad("listDrafts", { app }, (event) => event.type === "changed" && event.topic === "draft");
  const drafts = loaded.data?.drafts ?? [];
  if (drafts.length === 0) return null;
  const remove = (name: string): Promise<boolean> =>
    attempt(async () => {
      await call("removeDraft", { name });
      loaded.reload();
    });
  return (
    <Card title="Drafts" flush>
      <ul class="rows">
        {drafts.map(({ name, by, at, files }) => (
          <li key={name}>
            <div>
              <strong class="mono">
                <Text>{name}</Text>
              </strong>
              <div class="soft">
                <Text>{by}</Text>, <Ago at={at} />
              </div>
            </div>
            <div class="action-row">
              <Button onClick={() => onLoad(files, `Draft ${name}`)}>Open</Button>
              {can("removeDraft") && (
                <Button kind="quiet" onClick={() => remove(name)}>
                  Remove
                </Button>
              )}
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Versions({ app, inForce, onLoad }: LoadProps & { inForce: string }) {
  const loaded = useLoad(
    "listPolicyVersions",
    { app, limit: 20 },
    (event) => event.type === "changed" && event.topic === "policy",
  );
  const open = (hash: string): Promise<boolean> =>
    attempt(async () => {
      const { files } = await call("getPolicyVersion", { hash, app });
      onLoad(files, `Version ${shortHash(hash)}`);
    });
  return (
    <Card title="Versions" flush>
      <Show of={loaded}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No version recorded yet" />
          ) : (
            <ul class="rows">
              {items.map(({ hash, at, by, has_text: hasText, record }) => (
                <li key={record}>
                  <div>
                    <span class="mono">{shortHash(hash)}</span> {hash === inForce && <Pill tone="good">in force</Pill>}
                    <div class="soft">
                      <Time at={at} />
                      {by !== undefined && (
                        <>
                          {" by "}
                          <Text>{by}</Text>
                        </>
                      )}
                    </div>
                  </div>
                  {hasText && hash !== inForce && <Button onClick={() => open(hash)}>Roll back…</Button>}
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </Card>
  );
}
