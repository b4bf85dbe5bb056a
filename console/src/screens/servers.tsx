// The servers behind the gateway: how they are, what they offer, and definitions that wait for review.

import { useState } from "preact/hooks";
import type { OperationResult, ServerRow } from "../../../src/admin/operations.js";
import { call } from "../api/client.js";
import { address, hrefOf, navigate } from "../router.js";
import { attempt, can, notify } from "../state.js";
import { Difference } from "../ui/difference.js";
import { Icon } from "../ui/icon.js";
import { useLoad } from "../ui/load.js";
import {
  Button,
  Card,
  count,
  Dialog,
  Empty,
  Facts,
  Field,
  Form,
  Header,
  Pill,
  Select,
  Show,
  shortHash,
} from "../ui/parts.js";
import { Json, Lines, Text } from "../ui/text.js";
import { Ago } from "../ui/time.js";

type ServerView = OperationResult<"getServer">;
type Pending = ServerView["pending"][number];

const TOPICS = new Set(["server", "pin", "application"]);

export function Servers() {
  const [app, server] = address.value.item;
  if (app !== undefined && server !== undefined)
    return <OneServer key={`${app} ${server}`} app={app} server={server} />;
  return <AllServers />;
}

function AllServers() {
  const loaded = useLoad("listServers", {}, (event) => event.type === "changed" && TOPICS.has(event.topic));
  const [isAdding, setAdding] = useState(false);
  return (
    <>
      <Header title="Servers">
        {can("putServer") && (
          <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>
            Add a server
          </Button>
        )}
      </Header>
      <Show of={loaded}>
        {({ servers }) =>
          servers.length === 0 ? (
            <Empty title="No server">
              <p>Tools of a module are served in the process of the gateway. Add a server to put others behind it.</p>
            </Empty>
          ) : (
            <Card flush>
              <div class="table">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Server</th>
                      <th scope="col">State</th>
                      <th scope="col">Transport</th>
                      <th scope="col" class="number">
                        Tools
                      </th>
                      <th scope="col" class="number">
                        Calls
                      </th>
                      <th scope="col" class="number">
                        Failures
                      </th>
                      <th scope="col" class="number">
                        Restarts
                      </th>
                      <th scope="col">Sandbox</th>
                    </tr>
                  </thead>
                  <tbody>
                    {servers.map((row) => (
                      <tr key={`${row.replica} ${row.app} ${row.server}`}>
                        <th scope="row">
                          <a href={hrefOf("servers", [row.app, row.server])}>
                            <Text>{row.server}</Text>
                          </a>
                          <div class="soft">
                            <Text>{row.app}</Text>
                          </div>
                        </th>
                        <td>
                          <Health of={row} />
                          {row.pending_pins > 0 && (
                            <Pill tone="wait">{count(row.pending_pins, "definition")} to review</Pill>
                          )}
                        </td>
                        <td>
                          <Text>{row.transport}</Text>
                        </td>
                        <td class="number">{row.tools}</td>
                        <td class="number">{row.calls.toLocaleString("en")}</td>
                        <td class="number">{row.failures.toLocaleString("en")}</td>
                        <td class="number">{row.restarts.toLocaleString("en")}</td>
                        <td class="soft">
                          <Text>{row.containment ?? "–"}</Text>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </Card>
          )
        }
      </Show>
      {isAdding && <AddServer onClose={() => setAdding(false)} onDone={loaded.reload} />}
    </>
  );
}

function Health({ of: { state, circuit } }: { of: ServerRow }) {
  if (circuit !== "closed") return <Pill tone="bad">circuit {circuit}</Pill>;
  const tone = state === "ready" ? "good" : state === "failed" ? "bad" : "neutral";
  return <Pill tone={tone}>{state}</Pill>;
}

function OneServer({ app, server }: { app: string; server: string }) {
  const loaded = useLoad("getServer", { app, server }, (event) => event.type === "changed" && TOPICS.has(event.topic));
  const [isRemoving, setRemoving] = useState(false);
  const remove = (): Promise<boolean> =>
    attempt(async () => {
      await call("removeServer", { app, server });
      notify("good", `Removed ${server}. Its tools are not offered any more.`);
      navigate(hrefOf("servers"));
    });
  return (
    <>
      <a class="crumb" href={hrefOf("servers")}>
        <Icon name="back" /> Servers
      </a>
      <Header title={server}>
        {can("removeServer") && (
          <Button kind="danger" onClick={() => setRemoving(true)}>
            Remove…
          </Button>
        )}
      </Header>
      <Show of={loaded}>
        {(data) => (
          <>
            {data.pending.map((each) => (
              <Review
                key={`${each.kind} ${each.name} ${each.hash}`}
                app={app}
                server={server}
                pending={each}
                onDone={loaded.reload}
              />
            ))}
            {data.processes.map((each) => (
              <Process key={each.replica} row={each} />
            ))}
            <Tools tools={data.tools} />
            {data.left_out.length > 0 && (
              <Card title="Offered, and not shown to callers">
                <ul class="plain-list tight">
                  {data.left_out.map(({ name, reason }) => (
                    <li key={name}>
                      <strong class="mono">
                        <Text>{name}</Text>
                      </strong>{" "}
                      <span class="soft">
                        <Text>{reason}</Text>
                      </span>
                    </li>
                  ))}
                </ul>
              </Card>
            )}
            <Card title="Entry">
              <Json text={JSON.stringify(data.entry)} label="Entry" />
            </Card>
          </>
        )}
      </Show>
      {isRemoving && (
        <Dialog title={`Remove ${server}`} onClose={() => setRemoving(false)}>
          <p>
            Callers of this application lose its tools at once. Its accepted definitions are kept for when it comes
            back.
          </p>
          <div class="dialog-actions">
            <Button onClick={() => setRemoving(false)}>Cancel</Button>
            <Button kind="danger" onClick={remove}>
              Remove
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function Process({ row }: { row: ServerRow }) {
  return (
    <Card title={row.pid === undefined ? "State" : `Process ${row.pid}`} actions={<Health of={row} />}>
      <Facts
        items={[
          ["Transport", <Text>{row.transport}</Text>],
          row.revision !== undefined && ["MCP revision", <Text>{row.revision}</Text>],
          ["Calls", `${row.calls.toLocaleString("en")}, ${row.failures.toLocaleString("en")} failed`],
          ["Under way", `${row.in_flight}, ${row.queued} waiting`],
          ["Restarts", String(row.restarts)],
          row.containment !== undefined && ["Containment", <Text>{row.containment}</Text>],
          ["Reported by", <Text>{row.replica}</Text>],
        ]}
      />
      {row.last_error && (
        <p class="problem">
          <span>
            <Ago at={row.last_error.at} />: <Text>{row.last_error.message}</Text>
            {row.last_error.cause !== undefined && (
              <>
                ; <Text>{row.last_error.cause}</Text>
              </>
            )}
          </span>
        </p>
      )}
      {row.sandbox && (
        <details class="fold-section">
          <summary>Sandbox</summary>
          <Json text={JSON.stringify(row.sandbox)} label="Sandbox" />
        </details>
      )}
      {row.stderr !== undefined && row.stderr !== "" && (
        <details class="fold-section" open={row.state === "failed"}>
          <summary>End of stderr</summary>
          <div class="code" role="group" aria-label="End of stderr" tabIndex={0}>
            <Lines text={row.stderr} />
          </div>
        </details>
      )}
    </Card>
  );
}

function Tools({ tools }: { tools: ServerView["tools"] }) {
  return (
    <Card title={count(tools.length, "tool")} flush>
      <ul class="rows">
        {tools.map((tool) => (
          <li key={tool.name}>
            <details class="tool">
              <summary>
                <strong class="mono">
                  <Text>{tool.name}</Text>
                </strong>{" "}
                {tool.read_only && <Pill tone="info">read only</Pill>}{" "}
                {tool.needs_guardrail && <Pill tone="neutral">guardrail</Pill>}{" "}
                {tool.pin !== undefined && (
                  <span class="soft mono" title={tool.pin}>
                    pin {shortHash(tool.pin)}
                  </span>
                )}
              </summary>
              {tool.description !== undefined && (
                <div class="prose">
                  <Lines text={tool.description} />
                </div>
              )}
              <Json text={JSON.stringify(tool.input_schema)} label={`Schema of ${tool.name}`} />
            </details>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** A definition that a server offers and callers do not get before it is accepted, exactly as it is shown. */
function Review({
  app,
  server,
  pending,
  onDone,
}: {
  app: string;
  server: string;
  pending: Pending;
  onDone: () => void;
}) {
  const { kind, name, hash, is_new: isNew, before, after, changes } = pending;
  const accept = (): Promise<boolean> =>
    attempt(async () => {
      await call("acceptPin", { app, server, kind, name, hash });
      notify("good", `Accepted ${name}. Callers get exactly this definition.`);
      onDone();
    });
  return (
    <Card
      title={
        <>
          {isNew ? "New" : "Changed"} {kind} <Text>{name}</Text>
        </>
      }
      actions={<Pill tone="wait">waits for review</Pill>}
    >
      {changes.length > 0 && (
        <p class="soft">
          Changed: <Text>{changes.map(({ path }) => path.join(".") || "everything").join(", ")}</Text>
        </p>
      )}
      <Difference before={before ?? ""} after={after} label={`Difference of ${name}`} />
      <div class="action-row wrap">
        <span class="soft mono" title={hash}>
          {shortHash(hash)}
        </span>
        {can("acceptPin") && (
          <Button kind="primary" icon="check" onClick={accept}>
            Accept exactly this
          </Button>
        )}
      </div>
    </Card>
  );
}

/** One entry of a client's `mcpServers`, whatever is around it. */
export function entriesOf(text: string): [name: string, entry: Record<string, unknown>][] {
  const parsed = JSON.parse(text) as Record<string, unknown>;
  const found = (parsed.mcpServers ?? parsed.servers ?? parsed) as Record<string, unknown>;
  if (typeof found !== "object" || found === null) throw new Error("expected an object with `mcpServers`");
  if ("command" in found || "url" in found) return [["", found]];
  const isEntry = (entry: unknown): entry is Record<string, unknown> => typeof entry === "object" && entry !== null;
  return Object.entries(found).filter((pair): pair is [string, Record<string, unknown>] => isEntry(pair[1]));
}

function AddServer({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const apps = useLoad("listApplications", {});
  const [app, setApp] = useState("");
  const [name, setName] = useState("");
  const [way, setWay] = useState("command");
  const [command, setCommand] = useState("");
  const [url, setUrl] = useState("");
  const [pasted, setPasted] = useState("");
  const names = apps.data?.applications.map((each) => each.app) ?? [];
  const chosen = app || names[0] || "";
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      for (const [server, entry] of chosenEntries()) {
        await call("putServer", { app: chosen, server, entry: entry as Record<string, never> });
      }
      notify("good", "Added. Its tools wait for review before callers get them, where pins are on.");
      onDone();
      onClose();
    });
  const chosenEntries = (): [string, Record<string, unknown>][] => {
    if (way === "paste") {
      const entries = entriesOf(pasted).map(
        ([server, entry]) => [server || name, entry] as [string, Record<string, unknown>],
      );
      if (entries.some(([server]) => server === "")) throw new Error("give the server a name");
      return entries;
    }
    if (way === "url") return [[name, { url }]];
    const [program = "", ...args] = command.trim().split(/\s+/);
    return [[name, { command: program, ...(args.length > 0 ? { args } : {}) }]];
  };
  return (
    <Dialog title="Add a server" onClose={onClose}>
      <Form onSubmit={submit}>
        {names.length > 1 && (
          <Select
            label="Application"
            value={chosen}
            options={names.map((each) => [each, each] as const)}
            onChange={setApp}
          />
        )}
        <Select
          label="How"
          value={way}
          options={[
            ["command", "A command, over stdio"],
            ["url", "An address, over HTTP"],
            ["paste", "Paste a client's JSON"],
          ]}
          onChange={setWay}
        />
        {way !== "paste" && <Field label="Name" value={name} onInput={setName} required mono maxLength={63} />}
        {way === "command" && (
          <Field
            label="Command"
            value={command}
            onInput={setCommand}
            required
            mono
            placeholder="npx -y @modelcontextprotocol/server-memory"
          />
        )}
        {way === "url" && (
          <Field label="Address" value={url} onInput={setUrl} required mono placeholder="https://mcp.example.com/mcp" />
        )}
        {way === "paste" && (
          <>
            <Field
              label="JSON"
              value={pasted}
              onInput={setPasted}
              rows={9}
              required
              mono
              placeholder={'{ "mcpServers": { "memory": { "command": "npx", "args": ["-y", "…"] } } }'}
            />
            <Field label="Name, for an entry without one" value={name} onInput={setName} mono maxLength={63} />
          </>
        )}
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit">
            Add
          </Button>
        </div>
      </Form>
    </Dialog>
  );
}
