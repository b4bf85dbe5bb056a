// The workflow as a graph: who can come to hold what, each violation with its path and witness, and which delegations were used.

import { useMemo, useState } from "preact/hooks";
import type { OperationResult } from "../../../src/admin/operations.js";
import { BOX, course, placedDrawing } from "../../../src/lattice/report/layout.js";
import { visible } from "../../../src/lib/visible.js";
import { call } from "../api/client.js";
import { CodeEditor } from "../editor/index.js";
import { attempt, can } from "../state.js";
import { useLoad } from "../ui/load.js";
import { Button, Card, count, Empty, Header, Pill, Show } from "../ui/parts.js";
import { Text } from "../ui/text.js";

/** What `portcullis lattice graph --format json` writes. */
interface Graph {
  readonly agents: readonly {
    readonly name: string;
    readonly root: boolean;
    readonly offending: boolean;
    readonly capabilities?: number;
  }[];
  readonly delegations: readonly {
    readonly from: string;
    readonly to: string;
    readonly marked: boolean;
    readonly narrowed?: string;
  }[];
  readonly violations: readonly GraphViolation[];
  readonly leftOut?: number;
}

interface GraphGrant {
  readonly capability: string;
  readonly agents: readonly string[];
  readonly delegations: readonly number[];
  readonly argument?: { readonly value: unknown };
  readonly isProved: boolean;
}

interface GraphViolation {
  readonly kind: string;
  readonly agent: string;
  readonly message: string;
  readonly grant?: GraphGrant;
  readonly terms?: readonly { readonly delegations: readonly number[]; readonly grant: GraphGrant }[];
}

type Uses = OperationResult<"listDelegations">["delegations"];

export function Lattice() {
  const loaded = useLoad("getWorkflow", {});
  const uses = useLoad("listDelegations", {}, ({ type }) => type === "decisions");
  return (
    <>
      <Header title="Lattice" />
      <Show of={loaded}>
        {(data) => (
          <Workflow
            served={data.served}
            text={data.text ?? EXAMPLE}
            graph={data.graph as unknown as Graph | undefined}
            uses={uses.data?.delegations ?? []}
          />
        )}
      </Show>
    </>
  );
}

const EXAMPLE = `servers:
  notes: { tools: [{ name: read }, { name: delete }] }
  shell: { tools: [{ name: run }] }
agents:
  editor: { servers: [notes, shell] }
  intern: { servers: [notes, shell] }
delegations:
  - { from: editor, to: intern }
rules:
  - { name: no shell beside the notes, never: [notes.delete, shell.run], except: [editor] }
`;

interface WorkflowProps {
  served: boolean;
  text: string;
  graph: Graph | undefined;
  uses: Uses;
}

function Workflow({ served, text, graph, uses }: WorkflowProps) {
  const [draft, setDraft] = useState(text);
  const [checked, setChecked] = useState<Graph>();
  const [problem, setProblem] = useState("");
  const [selected, setSelected] = useState<number>();
  const shown = checked ?? graph;
  const check = (): Promise<boolean> =>
    attempt(async () => {
      const found = await call("checkWorkflow", { text: draft });
      setProblem(found.problem ?? "");
      setSelected(undefined);
      if (found.graph) setChecked(found.graph as unknown as Graph);
    });
  return (
    <>
      {!served && (
        <p class="note-block">
          No workflow is in force. Start the gateway with <code>--workflow FILE</code> to enforce one; here you can
          check one without serving it.
        </p>
      )}
      {shown ? (
        <Card
          flush
          title={
            <>
              {count(shown.agents.length, "agent")}, {count(shown.delegations.length, "delegation")}{" "}
              {checked && <Pill tone="wait">edited, not in force</Pill>}
            </>
          }
          actions={
            <Pill tone={shown.violations.length === 0 ? "good" : "bad"}>
              {shown.violations.length === 0 ? "no violation" : count(shown.violations.length, "violation")}
            </Pill>
          }
        >
          <div class="lattice">
            <GraphView graph={shown} selected={selected} uses={checked ? [] : uses} />
            <Violations graph={shown} selected={selected} onSelect={setSelected} />
          </div>
        </Card>
      ) : (
        <Empty title="Nothing to draw yet" />
      )}
      {can("checkWorkflow") && (
        <Card
          flush
          title="Workflow"
          actions={
            <>
              {checked && served && (
                <Button
                  kind="quiet"
                  onClick={() => {
                    setChecked(undefined);
                    setDraft(text);
                    setProblem("");
                  }}
                >
                  Back to what is in force
                </Button>
              )}
              <Button kind="primary" onClick={check}>
                Check
              </Button>
            </>
          }
        >
          {problem !== "" && (
            <p class="problem" role="alert">
              <Text>{problem}</Text>
            </p>
          )}
          <CodeEditor text={draft} label="Workflow, as YAML" onChange={setDraft} />
        </Card>
      )}
    </>
  );
}

/** Every delegation that the violation runs over. */
function pathOf({ grant, terms = [] }: GraphViolation): Set<number> {
  const grants = [...(grant ? [grant] : []), ...terms.map((term) => term.grant)];
  return new Set([
    ...grants.flatMap(({ delegations }) => delegations),
    ...terms.flatMap(({ delegations }) => delegations),
  ]);
}

function agentsOf({ agent, grant, terms = [] }: GraphViolation): Set<string> {
  return new Set([agent, ...(grant?.agents ?? []), ...terms.flatMap((term) => term.grant.agents)]);
}

const MAX_NAME = 21;
const MAX_LABEL = 18;

function short(text: string, most: number): string {
  const shown = visible(text);
  return shown.length <= most ? shown : `${shown.slice(0, most - 1)}…`;
}

function GraphView({ graph, selected, uses }: { graph: Graph; selected: number | undefined; uses: Uses }) {
  const picture = useMemo(() => {
    const index = new Map(graph.agents.map(({ name }, i) => [name, i]));
    return {
      nodes: graph.agents.map(({ root }) => ({ isRoot: root })),
      edges: graph.delegations.map(({ from, to }) => ({ from: index.get(from) ?? 0, to: index.get(to) ?? 0 })),
    };
  }, [graph]);
  const place = useMemo(() => placedDrawing(picture), [picture]);
  const violation = selected === undefined ? undefined : graph.violations[selected];
  const path = violation ? pathOf(violation) : new Set<number>();
  const onPath = violation ? agentsOf(violation) : new Set<string>();
  const used = new Map(uses.map(({ from, to, calls }) => [`${from}\n${to}`, calls]));
  const [width, height] = [place.width, place.drawn + BOX.margin];
  return (
    <div class="lattice-graph" tabIndex={0} role="region" aria-label="Graph">
      <svg
        viewBox={`0 0 ${width} ${height}`}
        width={width}
        height={height}
        role="img"
        aria-label={`${count(graph.agents.length, "agent")} and ${count(graph.delegations.length, "delegation")}`}
        class={violation ? "has-path" : undefined}
      >
        <defs>
          {["plain", "path", "used"].map((kind) => (
            <marker
              key={kind}
              id={`arrow-${kind}`}
              viewBox="0 0 10 10"
              refX="9"
              refY="5"
              markerWidth="8"
              markerHeight="8"
              markerUnits="userSpaceOnUse"
              orient="auto-start-reverse"
            >
              <path d="M0 0L10 5L0 10z" class={`arrow ${kind}`} />
            </marker>
          ))}
        </defs>
        {picture.edges.map((edge, i) => {
          const delegation = graph.delegations[i] as Graph["delegations"][number];
          const calls = used.get(`${delegation.from}\n${delegation.to}`);
          const isMarked = violation ? path.has(i) : delegation.marked;
          const kind = isMarked ? "path" : calls === undefined ? "plain" : "used";
          const { path: d, middle } = course(edge, place);
          const caption = [delegation.narrowed ?? "", calls === undefined ? "" : count(calls, "call")]
            .filter(Boolean)
            .join(" · ");
          return (
            <g key={i} class={`edge ${kind}`}>
              <path d={d} marker-end={`url(#arrow-${kind})`} />
              {caption !== "" && (
                <text x={middle[0]} y={middle[1] - 4} text-anchor="middle">
                  <title>{visible(caption)}</title>
                  {short(caption, MAX_LABEL)}
                </text>
              )}
            </g>
          );
        })}
        {graph.agents.map((agent, i) => {
          const [x, y] = [place.x(i), place.y(i)];
          const state = violation ? (onPath.has(agent.name) ? "offending" : "") : agent.offending ? "offending" : "";
          return (
            <g key={agent.name} class={`node ${state}${agent.root ? " root" : ""}`}>
              <title>
                {visible(agent.name)}
                {agent.capabilities === undefined ? "" : `: ${agent.capabilities} capabilities`}
                {agent.root ? ", own authority" : ""}
              </title>
              <rect x={x} y={y} width={BOX.width} height={BOX.height} rx={agent.root ? 17 : 6} />
              <text x={x + BOX.width / 2} y={y + BOX.height / 2 + 4} text-anchor="middle">
                {short(agent.name, MAX_NAME)}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

interface ViolationsProps {
  graph: Graph;
  selected: number | undefined;
  onSelect: (index: number | undefined) => void;
}

function Violations({ graph: { violations, leftOut = 0 }, selected, onSelect }: ViolationsProps) {
  if (violations.length === 0) {
    return <p class="lattice-none soft">No agent can come to hold what it must not, by any chain of delegations.</p>;
  }
  return (
    <ol class="violations">
      {violations.map((violation, i) => {
        const witness =
          violation.grant?.argument ?? violation.terms?.find((term) => term.grant.argument)?.grant.argument;
        return (
          <li key={i}>
            <button
              type="button"
              aria-pressed={i === selected}
              onClick={() => onSelect(i === selected ? undefined : i)}
            >
              <span class="violation-number">{i + 1}</span>
              <span>
                <Text>{violation.message}</Text>
                {i === selected && witness && (
                  <span class="witness mono">
                    for example with <Text>{JSON.stringify(witness.value)}</Text>
                  </span>
                )}
              </span>
            </button>
          </li>
        );
      })}
      {leftOut > 0 && <li class="soft">{count(leftOut, "further violation")} not listed</li>}
    </ol>
  );
}
