// The user stories that every mode has to pass. A mode says how it is started and what its calls are; a story says what
// its user does and sees. docs/stories.md is the table of both.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { afterAll, expect, it, vi } from "vitest";
import { type ClientEntry, World } from "./story-world.js";

export interface Call {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

export interface Running {
  /** How a client reaches each process that serves. */
  readonly entries: readonly ClientEntry[];
  /** Flags of `call` and `ls` that lead there. */
  readonly reach: readonly string[];
  stop?(): Promise<unknown>;
}

/** `Mode` is one way to serve, with the calls that its stories make. */
export interface Mode {
  readonly app: string;
  /** Where `operator.token` is. */
  readonly stateDir: string;
  /** Flags that choose the application, where there are several. */
  readonly flags: readonly string[];
  readonly permitted: Call & { readonly shows: string };
  readonly denied: Call & { readonly rule: string };
  /** A call that an operator has to approve; `name` makes it another call. */
  approved(name: string): Call;
  /** What the tools have really done so far. */
  effects(client: Client): Promise<string>;
  start(): Promise<Running>;
  /** Beside what serves: enforces no policy and keeps arguments. */
  observe(): Promise<Running>;
  /** Forbids this tool in the policy that is in force, as an operator does; returns what takes it back. */
  forbid(tool: string): Promise<() => Promise<void>>;
  /** The ledgers that hold records of these stories. */
  readonly ledgers: readonly string[];
  /** What `doctor` finds of its real call. */
  readonly realCall: RegExp;
}

/** `Scene` is a mode that runs. It is started once, by the first story that needs it. */
class Scene {
  readonly world: World;
  readonly mode: Mode;
  readonly #clients = new Map<number, Promise<Client>>();
  #running: Promise<Running> | undefined;

  constructor(world: World, mode: Mode) {
    this.world = world;
    this.mode = mode;
  }

  running(): Promise<Running> {
    this.#running ??= this.mode.start();
    return this.#running;
  }

  /** One for each process that serves; the same one each time. */
  async clients(): Promise<Client[]> {
    const { entries } = await this.running();
    return Promise.all(
      entries.map((entry, nth) => {
        const client = this.#clients.get(nth) ?? this.world.client(entry);
        this.#clients.set(nth, client);
        return client;
      }),
    );
  }
}

interface Answer {
  readonly isError?: boolean;
  readonly structuredContent?: Readonly<Record<string, string>>;
  readonly _meta?: { readonly "portcullis/error"?: Readonly<Record<string, string>> };
}

/** The error object of the gateway. Structured content belongs to the tool where it declares an output. */
const errorOf = ({ structuredContent, _meta }: Answer): Readonly<Record<string, string>> | undefined =>
  structuredContent ?? _meta?.["portcullis/error"];

const call = async (client: Client, { tool, arguments: args }: Call): Promise<Answer> =>
  (await client.callTool({ name: tool, arguments: { ...args } })) as Answer;

const NOTHING_PERMITTED = '@id("none") forbid (principal, action, resource);\n';

interface Waiting {
  readonly id: string;
  readonly url: URL;
}

/** Calls, and returns what an approver is given: the request and the address of its page. */
async function requestApproval({ mode }: Scene, client: Client, request: Call): Promise<Waiting> {
  const before = await mode.effects(client);
  const answer = await call(client, request);
  expect(errorOf(answer), JSON.stringify(answer)).toMatchObject({ code: "CHALLENGE" });
  expect(await mode.effects(client)).toBe(before);
  const { challenge = "", approval_url: url = "" } = errorOf(answer) ?? {};
  return { id: challenge, url: new URL(url) };
}

/** The approved call runs once, at whichever process the client is now connected to. */
async function runsOnce({ mode }: Scene, client: Client, request: Call): Promise<void> {
  const before = await mode.effects(client);
  const done = await call(client, request);
  expect(done.isError, JSON.stringify(done)).not.toBe(true);
  const after = await mode.effects(client);
  expect(after).not.toBe(before);
  expect(await call(client, request)).toMatchObject({ isError: true });
  expect(await mode.effects(client)).toBe(after);
}

const post = (url: URL | string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", origin: new URL(url).origin, ...headers },
    body: JSON.stringify(body),
  });

const asOperator = ({ mode }: Scene): Readonly<Record<string, string>> => ({
  authorization: `Bearer ${readFileSync(join(mode.stateDir, "operator.token"), "utf8").trim()}`,
});

export const STORIES: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  "what is started lists its tools [G2]": async (scene) => {
    const { reach } = await scene.running();
    const listed = await scene.world.run("ls", ...reach);
    expect(listed.code, listed.stderr).toBe(0);
    expect(listed.stdout).toContain(scene.mode.permitted.tool);
  },

  "a client of the official SDK connects and lists the tools [G2]": async (scene) => {
    for (const client of await scene.clients()) {
      const names = (await client.listTools()).tools.map(({ name }) => name.replaceAll("_", "."));
      expect(names).toContain(scene.mode.permitted.tool.replaceAll("_", "."));
    }
  },

  "one command connects a client, which then reaches the tools, and another restores its configuration [H12]": async (
    scene,
  ) => {
    const { world, mode } = scene;
    const { entries } = await scene.running();
    const [{ url, headers }] = entries as [ClientEntry];
    const at = url === undefined ? ["--app", mode.app] : ["--url", url];
    const key = headers === undefined ? [] : ["--key-env", "KEY"];
    const file = join(world.home, ".claude.json");
    const before = '{ "theme":  "dark" }\n';
    writeFileSync(file, before);
    const connected = await world.run("connect", "claude-code", ...at, ...key, "--yes");
    expect(connected.code, connected.stderr).toBe(0);
    const client = await world.client(JSON.parse(readFileSync(file, "utf8")).mcpServers.portcullis as ClientEntry);
    expect(JSON.stringify(await call(client, mode.permitted))).toContain(mode.permitted.shows);
    await client.close();
    expect((await world.run("disconnect", "claude-code", "--yes")).code).toBe(0);
    expect(readFileSync(file, "utf8")).toBe(before);
  },

  "a permitted call returns the result of the tool [H2 G2 L10]": async (scene) => {
    for (const client of await scene.clients()) {
      expect(JSON.stringify(await call(client, scene.mode.permitted))).toContain(scene.mode.permitted.shows);
    }
  },

  "a denied call does not reach the tool [U7 H11 L10 M8]": async (scene) => {
    const { denied, effects } = scene.mode;
    for (const client of await scene.clients()) {
      const before = await effects(client);
      expect(errorOf(await call(client, denied))).toMatchObject({ code: "POLICY_DENY", rule: denied.rule });
      expect(await effects(client)).toBe(before);
    }
  },

  "a denial prints the command that explains it [M8 M11]": async (scene) => {
    const { world, mode } = scene;
    const { denied } = mode;
    const { reach } = await scene.running();
    const refused = await world.run("call", denied.tool, JSON.stringify(denied.arguments), ...reach);
    expect(refused.code, refused.stderr).toBe(2);
    const [, line = ""] = /^explain it with: (.*)$/m.exec(refused.stderr) ?? [];
    const explained = await world.shell(line);
    expect(explained.code, `${line}\n${explained.stderr}`).toBe(2);
    expect(explained.stdout).toContain(denied.rule);
  },

  "an approver approves a call on its page [U7 H12]": async (scene) => {
    const clients = await scene.clients();
    const request = scene.mode.approved("page");
    const { id, url } = await requestApproval(scene, clients[0] as Client, request);
    const page = await fetch(url);
    expect(page.status).toBe(200);
    expect(await page.text()).toContain("<html");
    const approve = new URL(`/v1/approvals/${id}/approve`, url);
    expect((await post(approve, {})).status).toBe(401);
    expect((await post(approve, {}, asOperator(scene))).status).toBe(200);
    await runsOnce(scene, clients.at(-1) as Client, request);
  },

  "an approver approves a call by a one-time link [U7]": async (scene) => {
    const clients = await scene.clients();
    const request = scene.mode.approved("link");
    const { id } = await requestApproval(scene, clients.at(-1) as Client, request);
    const { url } = await scene.world.json<{ url: string }>("approvals", "open", id);
    expect(url).toContain(`/approve/${id}#`);
    const code = new URL(url).hash.slice(1);
    const signedIn = await post(new URL("/v1/sign-in", url), { code });
    expect(signedIn.status).toBe(200);
    const { page_key: key } = (await signedIn.json()) as { page_key: string };
    const cookie = (signedIn.headers.get("set-cookie") ?? "").split(";")[0] as string;
    const approve = new URL(`/v1/approvals/${id}/approve`, url);
    expect((await post(approve, {}, { cookie, "portcullis-page-key": key })).status).toBe(200);
    expect((await post(new URL("/v1/sign-in", url), { code })).status).toBe(401);
    await runsOnce(scene, clients[0] as Client, request);
  },

  "a client that opens pages is given the page of a waiting call, which runs when it is approved [U7]": async (
    scene,
  ) => {
    const { world, mode } = scene;
    const [entry] = (await scene.running()).entries;
    const request = mode.approved("elicited");
    const pages: URL[] = [];
    const client = await world.client(entry as ClientEntry, async (url) => {
      pages.push(url);
      expect((await fetch(url)).status).toBe(200);
      const approve = new URL(`/v1${url.pathname.replace("/approve/", "/approvals/")}/approve`, url);
      expect((await post(approve, {}, asOperator(scene))).status).toBe(200);
    });
    const before = await mode.effects(client);
    const done = await call(client, request);
    expect(done.isError ?? false, JSON.stringify(done)).toBe(false);
    expect(pages).toHaveLength(1);
    expect(await mode.effects(client)).not.toBe(before);
    await client.close();
  },

  "observed calls become rules that can be used [G8]": async (scene) => {
    const { world, mode } = scene;
    await scene.running();
    const observing = await mode.observe();
    const challenged = mode.approved("observed");
    try {
      for (const entry of observing.entries) {
        const client = await world.client(entry);
        for (const each of [mode.permitted, challenged]) {
          const answer = await call(client, each);
          expect(answer.isError, JSON.stringify(answer)).not.toBe(true);
        }
        await client.close();
      }
    } finally {
      await observing.stop?.();
    }
    const suggested = await world.run("policy", "suggest", ...mode.flags);
    expect(suggested.code, suggested.stderr).toBe(0);
    const file = join(world.work, "suggested.cedar");
    writeFileSync(file, suggested.stdout);
    const checked = await world.run("policy", "check", "--policy", file, ...mode.flags);
    expect(checked.code, checked.stderr).toBe(0);
    const agent = /Agent::"([^"]+)"/.exec(suggested.stdout)?.[1] ?? "";
    const codeOf = async (each: Call): Promise<number | null> => {
      const rest = ["--policy", file, "--agent", agent, ...mode.flags];
      return (await world.run("policy", "explain", each.tool, JSON.stringify(each.arguments), ...rest)).code;
    };
    expect(await codeOf(mode.permitted)).toBe(0);
    // What needs an approval today still needs one.
    expect(await codeOf(challenged)).toBe(5);
  },

  "recorded calls are replayed against another policy [U9]": async (scene) => {
    const { world, mode } = scene;
    const [client] = await scene.clients();
    await call(client as Client, mode.permitted);
    const file = join(world.work, "none.cedar");
    writeFileSync(file, NOTHING_PERMITTED);
    const replay = await world.json<{ compared: number; changes: object[] }>("audit", "replay", file, ...mode.flags);
    expect(replay.compared).toBeGreaterThan(0);
    expect(replay.changes).toContainEqual(expect.objectContaining({ before: "permit", after: "deny" }));
  },

  "the ledgers are shown, verified and proved by the numbers shown [U9]": async (scene) => {
    const { world, mode } = scene;
    for (const client of await scene.clients()) await call(client, mode.permitted);
    const tail = await world.run("audit", "tail", "-n", "200");
    expect(tail.code, tail.stderr).toBe(0);
    const line = tail.stdout.split("\n").findLast((each) => each.includes(` ${mode.permitted.tool} permit `)) ?? "";
    const [number = ""] = line.split(" ");
    const verified = await world.json<{ ok: boolean; ledgers: { name: string }[] }>("audit", "verify");
    expect(verified.ok).toBe(true);
    expect(verified.ledgers.map(({ name }) => name)).toEqual(expect.arrayContaining([...mode.ledgers]));
    const proof = join(world.work, "proof.json");
    // A record is under a signed checkpoint within a second.
    await vi.waitFor(
      async () => {
        const proved = await world.run("audit", "prove", number, "-o", proof);
        expect(proved.code, proved.stderr).toBe(0);
      },
      { timeout: 30_000, interval: 500 },
    );
    expect(readFileSync(proof, "utf8")).toContain(mode.permitted.tool);
    expect(await world.run("audit", "verify-proof", proof)).toMatchObject({ code: 0 });
  },

  "a changed policy applies while calls are served [H5 H12 M11]": async (scene) => {
    const { mode } = scene;
    const clients = await scene.clients();
    const restore = await mode.forbid(mode.permitted.tool);
    await applied(clients, mode, FORBIDDEN);
    await restore();
    await applied(clients, mode, undefined);
  },

  "an operator halts a tool at every process with one command, and resumes it": async (scene) => {
    const { world, mode } = scene;
    const clients = await scene.clients();
    const target = ["--tool", mode.permitted.tool];
    const halted = await world.run("halt", ...target, "--reason", "a leak");
    expect(halted.code, halted.stderr).toBe(0);
    await applied(clients, mode, "halt");
    expect(JSON.stringify(await call(clients[0] as Client, mode.permitted))).toContain("portcullis resume");
    const findings = await world.json<{ check: string; ok: boolean; detail: string }[]>("doctor", "--port", "0");
    expect(findings).toContainEqual(
      expect.objectContaining({ check: expect.stringContaining("halts at"), ok: false }) as never,
    );
    const resumed = await world.run("resume", ...target);
    expect(resumed.code, resumed.stderr).toBe(0);
    await applied(clients, mode, undefined);
    const recorded = async (): Promise<void> => {
      const { stdout } = await world.run("--json", "audit", "tail", "-n", "500");
      for (const action of ["halt.put", "halt.remove"]) {
        expect(stdout).toMatch(new RegExp(`"actor":\\s*"cli:[^"]+",\\s*"action":\\s*"${action}"`));
      }
    };
    await vi.waitFor(recorded, { timeout: 30_000, interval: 500 });
  },

  "doctor makes a real call and finds nothing wrong [G8 M9]": async (scene) => {
    const { world, mode } = scene;
    await scene.running();
    const findings = await world.json<{ check: string; ok: boolean; detail: string }[]>("doctor", "--port", "0");
    expect(findings.filter(({ ok, check }) => !ok && !/sandbox/.test(check))).toEqual([]);
    const lines = findings.map(({ check, detail }) => `${check}: ${detail}`);
    expect(lines).toContainEqual(expect.stringMatching(mode.realCall));
  },
};

/** Several in a row, because one address may lead to several processes. */
const IN_A_ROW = 6;

async function applied(clients: readonly Client[], mode: Mode, rule: string | undefined): Promise<void> {
  const look = async (): Promise<void> => {
    for (const client of clients) {
      for (let i = 0; i < IN_A_ROW; i++) {
        const answer = await call(client, mode.permitted);
        expect(answer.isError ?? false, JSON.stringify(answer)).toBe(rule !== undefined);
        if (rule !== undefined) expect(errorOf(answer)?.rule).toBe(rule);
      }
    }
  };
  await vi.waitFor(look, { timeout: 30_000, interval: 100 });
}

export const FORBIDDEN = "forbidden-meanwhile";

/** The rule that `Mode.forbid` adds. */
export const forbidding = (tool: string): string =>
  `@id("${FORBIDDEN}") forbid (principal, action == Action::"${tool}", resource);\n`;

/** `runStories` makes each story a test of this mode. */
export function runStories(name: string, modeOf: (world: World) => Mode): void {
  const world = new World();
  const scene = new Scene(world, modeOf(world));
  afterAll(() => world.close());
  for (const [story, run] of Object.entries(STORIES)) it(`in ${name} mode, ${story}`, () => run(scene));
}
