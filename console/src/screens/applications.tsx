// Applications with their members, limits, keys and secrets.

import { useState } from "preact/hooks";
import type { OperationResult } from "../../../src/admin/operations.js";
import { call } from "../api/client.js";
import { address, hrefOf } from "../router.js";
import { attempt, can, notify } from "../state.js";
import { Icon } from "../ui/icon.js";
import { useLoad } from "../ui/load.js";
import { Button, Card, Copy, count, Dialog, Empty, Field, Form, Header, Pill, Show } from "../ui/parts.js";
import { Json, Text } from "../ui/text.js";
import { Ago, Time } from "../ui/time.js";

type Detail = OperationResult<"getApplication">;
type Key = Detail["keys"][number];
const TOPICS = new Set(["application", "key", "secret"]);

export function Applications() {
  const [app] = address.value.item;
  return app === undefined ? <All /> : <One key={app} app={app} />;
}

function All() {
  const loaded = useLoad("listApplications", {}, (event) => event.type === "changed" && TOPICS.has(event.topic));
  return (
    <>
      <Header title="Applications" />
      <Show of={loaded}>
        {({ applications }) =>
          applications.length === 0 ? (
            <Empty title="No application">
              <p>
                Create one with <code>portcullis app apply</code>.
              </p>
            </Empty>
          ) : (
            <Card flush>
              <div class="table">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Application</th>
                      <th scope="col">State</th>
                      <th scope="col" class="number">
                        Servers
                      </th>
                      <th scope="col" class="number">
                        Keys
                      </th>
                      <th scope="col">Changed</th>
                    </tr>
                  </thead>
                  <tbody>
                    {applications.map((row) => (
                      <tr key={row.app}>
                        <th scope="row">
                          <a href={hrefOf("applications", [row.app])}>
                            <Text>{row.app}</Text>
                          </a>
                          {row.description !== undefined && (
                            <div class="soft">
                              <Text>{row.description}</Text>
                            </div>
                          )}
                        </th>
                        <td>
                          {row.refused === undefined ? (
                            <Pill tone="good">served</Pill>
                          ) : (
                            <>
                              <Pill tone="bad">not as declared</Pill>
                              <div class="soft">
                                <Text>{row.refused}</Text>
                              </div>
                            </>
                          )}
                        </td>
                        <td class="number">{row.servers}</td>
                        <td class="number">{row.keys}</td>
                        <td>{row.updated_at === undefined ? "–" : <Ago at={row.updated_at} />}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </Card>
          )
        }
      </Show>
    </>
  );
}

function One({ app }: { app: string }) {
  const loaded = useLoad("getApplication", { app }, (event) => event.type === "changed" && TOPICS.has(event.topic));
  return (
    <>
      <a class="crumb" href={hrefOf("applications")}>
        <Icon name="back" /> Applications
      </a>
      <Header title={app} />
      <Show of={loaded}>
        {(data) => (
          <>
            {data.refused !== undefined && (
              <p class="problem" role="alert">
                <Text>{data.refused}</Text>
              </p>
            )}
            <div class="cards">
              <Members data={data} />
              <Limits data={data} />
            </div>
            <Keys data={data} onChanged={loaded.reload} />
            <Secrets data={data} onChanged={loaded.reload} />
            <Card title="Document">
              <Json text={JSON.stringify(data.document)} label="Document" />
            </Card>
          </>
        )}
      </Show>
    </>
  );
}

function Members({ data: { members, app } }: { data: Detail }) {
  return (
    <Card title="Members" flush>
      {members.length === 0 ? (
        <Empty title="No agent has called yet" />
      ) : (
        <ul class="rows">
          {members.map(({ agent, keys, last_call: last }) => (
            <li key={agent}>
              <div>
                <a href={hrefOf("decisions", [], { app, agent })}>
                  <Text>{agent}</Text>
                </a>
                <div class="soft">{count(keys, "key")}</div>
              </div>
              <span class="soft">{last === undefined ? "no call" : <Ago at={last} />}</span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Limits({ data: { limits } }: { data: Detail }) {
  return (
    <Card title="Limits">
      {limits.length === 0 ? (
        <p class="soft">No limit is set.</p>
      ) : (
        <ul class="bars">
          {limits.map(({ per, name, max, used }) => (
            <li key={`${per} ${name}`}>
              <span>
                {name} <span class="soft">per {per}</span>
              </span>
              <span class="soft">
                {used === undefined ? "" : `${used.toLocaleString("en")} of `}
                {max.toLocaleString("en")}
              </span>
              {used !== undefined && (
                <meter min={0} max={max} high={max * 0.8} value={used} aria-label={`use of ${name}`} />
              )}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function stateOf(key: Key): "in force" | "revoked" | "expired" {
  if (key.revoked_at !== undefined) return "revoked";
  return key.expires_at !== undefined && Date.parse(key.expires_at) < Date.now() ? "expired" : "in force";
}

function Keys({ data: { app, keys }, onChanged }: { data: Detail; onChanged: () => void }) {
  const [isCreating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Key>();
  const revoke = (): Promise<boolean> =>
    attempt(async () => {
      await call("revokeKey", { id: (revoking as Key).id });
      notify("good", "Revoked. Its next request is refused, and sessions with it end.");
      setRevoking(undefined);
      onChanged();
    });
  return (
    <Card
      title="Keys"
      flush
      actions={
        can("createKey") && (
          <Button icon="plus" onClick={() => setCreating(true)}>
            Create a key
          </Button>
        )
      }
    >
      {keys.length === 0 ? (
        <Empty title="No key" />
      ) : (
        <div class="table">
          <table>
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">Agent</th>
                <th scope="col">State</th>
                <th scope="col">Last use</th>
                <th scope="col">May</th>
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {keys.map((key) => (
                <tr key={key.id}>
                  <th scope="row">
                    <Text>{key.name}</Text>
                    <div class="soft mono">
                      <Text>{key.prefix}</Text>…
                    </div>
                  </th>
                  <td>
                    <Text>{key.agent}</Text>
                  </td>
                  <td>
                    <Pill tone={stateOf(key) === "in force" ? "good" : "neutral"}>{stateOf(key)}</Pill>
                    {key.expires_at !== undefined && stateOf(key) === "in force" && (
                      <div class="soft">
                        until <Time at={key.expires_at} />
                      </div>
                    )}
                  </td>
                  <td>{key.last_used_at === undefined ? "never" : <Ago at={key.last_used_at} />}</td>
                  <td class="mono small">
                    <Text>{key.permissions.join(", ")}</Text>
                  </td>
                  <td>
                    {can("revokeKey") && stateOf(key) === "in force" && (
                      <Button kind="danger" label={`Revoke ${key.name}`} onClick={() => setRevoking(key)}>
                        Revoke…
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isCreating && <CreateKey app={app} onClose={() => setCreating(false)} onCreated={onChanged} />}
      {revoking && (
        <Dialog title="Revoke a key" onClose={() => setRevoking(undefined)}>
          <p>
            <strong>
              <Text>{revoking.name}</Text>
            </strong>{" "}
            (<span class="mono">{revoking.prefix}…</span>) stops working at once and cannot be restored.
          </p>
          <div class="dialog-actions">
            <Button onClick={() => setRevoking(undefined)}>Cancel</Button>
            <Button kind="danger" onClick={revoke}>
              Revoke
            </Button>
          </div>
        </Dialog>
      )}
    </Card>
  );
}

const RIGHTS = ["call(*)", "list", "approve(operators)", "admin.read", "admin.write"];

function CreateKey({ app, onClose, onCreated }: { app: string; onClose: () => void; onCreated: () => void }) {
  const [name, setName] = useState("");
  const [agent, setAgent] = useState("");
  const [rights, setRights] = useState("call(*)");
  const [days, setDays] = useState("");
  const [token, setToken] = useState<string>();
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      const until = days === "" ? {} : { expires_at: new Date(Date.now() + Number(days) * 86_400_000).toISOString() };
      const made = await call("createKey", {
        app,
        name,
        ...(agent === "" ? {} : { agent }),
        permissions: rights.split(/[\s,]+(?![^(]*\))/).filter((right) => right !== ""),
        ...until,
      });
      setToken(made.token);
      onCreated();
    });
  if (token !== undefined) {
    return (
      <Dialog title="The new key" onClose={onClose}>
        <p>This is the only time that it is shown: only its hash is stored.</p>
        <p class="code secret">
          <span id="new-key">{token}</span>
          <Copy text={token} label="key" />
        </p>
        <div class="dialog-actions">
          <Button kind="primary" onClick={onClose}>
            I have stored it
          </Button>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Create a key" onClose={onClose}>
      <Form onSubmit={submit}>
        <Field label="Name" value={name} onInput={setName} required maxLength={256} />
        <Field
          label="Agent"
          value={agent}
          onInput={setAgent}
          placeholder={name}
          hint="The name unless given."
          maxLength={256}
        />
        <Field
          label="What it may do"
          value={rights}
          onInput={setRights}
          required
          mono
          list={RIGHTS}
          hint="Separated by commas, such as call(notes.*), approve(operators)."
        />
        <Field label="Days until it expires" value={days} onInput={setDays} type="number" placeholder="never" />
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit">
            Create
          </Button>
        </div>
      </Form>
    </Dialog>
  );
}

function Secrets({ data: { app, secrets }, onChanged }: { data: Detail; onChanged: () => void }) {
  const [isSetting, setSetting] = useState<string>();
  const [removing, setRemoving] = useState<string>();
  const remove = (): Promise<boolean> =>
    attempt(async () => {
      await call("removeSecret", { app, name: removing as string });
      notify("good", "Removed.");
      setRemoving(undefined);
      onChanged();
    });
  return (
    <Card
      title="Secrets"
      flush
      actions={
        can("putSecret") && (
          <Button icon="plus" onClick={() => setSetting("")}>
            Set a secret
          </Button>
        )
      }
    >
      {secrets.length === 0 ? (
        <Empty title="No secret">
          <p>Servers get secrets by name. A value can be set here and never be read.</p>
        </Empty>
      ) : (
        <ul class="rows">
          {secrets.map(({ name, updated_at: at }) => (
            <li key={name}>
              <div>
                <strong class="mono">
                  <Text>{name}</Text>
                </strong>
                <div class="soft">
                  set <Ago at={at} />
                </div>
              </div>
              {can("putSecret") && (
                <div class="action-row">
                  <Button label={`Replace ${name}`} onClick={() => setSetting(name)}>
                    Replace…
                  </Button>
                  <Button kind="danger" label={`Remove ${name}`} onClick={() => setRemoving(name)}>
                    Remove…
                  </Button>
                </div>
              )}
            </li>
          ))}
        </ul>
      )}
      {isSetting !== undefined && (
        <SetSecret app={app} name={isSetting} onClose={() => setSetting(undefined)} onDone={onChanged} />
      )}
      {removing !== undefined && (
        <Dialog title={`Remove ${removing}`} onClose={() => setRemoving(undefined)}>
          <p>Servers that use it cannot be started without it.</p>
          <div class="dialog-actions">
            <Button onClick={() => setRemoving(undefined)}>Cancel</Button>
            <Button kind="danger" onClick={remove}>
              Remove
            </Button>
          </div>
        </Dialog>
      )}
    </Card>
  );
}

function SetSecret({
  app,
  name: given,
  onClose,
  onDone,
}: {
  app: string;
  name: string;
  onClose: () => void;
  onDone: () => void;
}) {
  const [name, setName] = useState(given);
  const [value, setValue] = useState("");
  const submit = (): Promise<boolean> =>
    attempt(async () => {
      await call("putSecret", { app, name, value });
      notify("good", `${name} is set. Servers that use it are started again with it.`);
      onDone();
      onClose();
    });
  return (
    <Dialog title={given === "" ? "Set a secret" : `Replace ${given}`} onClose={onClose}>
      <Form onSubmit={submit}>
        {given === "" && (
          <Field
            label="Name"
            value={name}
            onInput={setName}
            required
            mono
            maxLength={128}
            hint="Letters, digits and _."
          />
        )}
        <Field label="Value" value={value} onInput={setValue} required type="password" />
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit">
            Set
          </Button>
        </div>
      </Form>
    </Dialog>
  );
}
