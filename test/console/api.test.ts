// The admin API as the console uses it, against a real gateway: every operation by every role, what it shows to whom, what
// it records, sessions and events.

import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openApiDocument } from "../../src/admin/openapi.js";
import { OPERATIONS } from "../../src/admin/operations.js";
import { type OperationName, type OperationRoute, ROUTES, type Role } from "../../src/admin/routes.js";
import { openWorld, type World } from "./world.js";

type Json = Record<string, any>;
const NAMES = Object.keys(ROUTES) as OperationName[];

/** Credentials of one application, as those of keys are. */
const SCOPED: Readonly<Record<string, Role>> = { viewer: "viewer", auditor: "auditor", approver: "approver" };

let world: World;
beforeAll(async () => {
  world = await openWorld(6);
}, 120_000);
afterAll(() => world?.close());

interface Reply {
  readonly status: number;
  readonly json: Json;
  readonly headers: Headers;
}

async function send(
  method: string,
  path: string,
  { token, body, headers = {} }: { token?: string | undefined; body?: unknown; headers?: Record<string, string> } = {},
): Promise<Reply> {
  const response = await fetch(`${world.admin}${path}`, {
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(method === "GET" || method === "DELETE" ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    redirect: "manual",
  });
  const text = await response.text();
  return {
    status: response.status,
    json: text.startsWith("{") ? (JSON.parse(text) as Json) : {},
    headers: response.headers,
  };
}

const get = (path: string, token: string | undefined): Promise<Reply> => send("GET", path, { token });
const operator = (): string => world.operatorToken;

/** A path with something in the place of each field; nothing that exists is changed by it. */
function sample(name: OperationName): string {
  const route: OperationRoute = ROUTES[name];
  return route.path.replace(/\{(\w+)\}/g, (_all, field: string) =>
    field === "app" ? "blog" : field === "ledger" ? "ledger" : field === "hash" ? "0".repeat(64) : "none-such",
  );
}

function expected(name: OperationName, who: string): "open" | "refused" {
  const route: OperationRoute = ROUTES[name];
  if (route.roles === "anyone" || who === "operator") return "open";
  if (route.wholeGateway) return "refused";
  return (route.roles as readonly Role[]).includes(SCOPED[who] as Role) ? "open" : "refused";
}

describe("the admin API, role by role", () => {
  it("every operation is refused without a credential, and with the key of an agent", async () => {
    const wrong: string[] = [];
    for (const name of NAMES) {
      const route: OperationRoute = ROUTES[name];
      if (route.roles === "anyone") continue;
      for (const token of [undefined, "x".repeat(48), world.keys.writer]) {
        const body = route.method === "GET" || route.method === "DELETE" ? undefined : {};
        const { status } = await send(route.method, sample(name), { token, body });
        // Many wrong credentials in a minute are answered with 429.
        if (status !== 401 && status !== 429) wrong.push(`${name} ${token?.slice(0, 3)}: ${status}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  it.each(["viewer", "auditor", "approver", "operator"])(
    "the %s may use exactly the operations that the table gives this role",
    async (who) => {
      const token = who === "operator" ? operator() : (world.keys[who] as string);
      const wrong: string[] = [];
      for (const name of NAMES) {
        if (name === "signIn" || name === "followEvents") continue;
        const { method } = ROUTES[name];
        const body = method === "GET" || method === "DELETE" ? undefined : {};
        const { status, json } = await send(method, sample(name), { token, body });
        const isRefused = status === 401 || status === 403;
        if (isRefused !== (expected(name, who) === "refused") || status >= 500 || status === 405) {
          wrong.push(`${who} ${name}: ${status} ${json.error?.reason ?? ""}`);
        }
      }
      expect(wrong).toEqual([]);
      const { operations } = (await get("/v1/session", token)).json as { operations: string[] };
      const should = NAMES.filter((name) => expected(name, who) === "open");
      expect(operations.toSorted()).toEqual(should.toSorted());
    },
  );

  it("a credential of one application sees nothing of another one", async () => {
    const { stranger } = world.keys as { stranger: string };
    const id = await world.ask("secret-of-blog");
    const blogs = (await get("/v1/decisions?app=blog&limit=1", operator())).json.items[0] as Json;
    const record = encodeURIComponent(blogs.id);
    for (const path of [
      "/v1/applications/blog",
      "/v1/applications/blog/servers/notes",
      "/v1/applications/blog/secrets",
      "/v1/policies?app=blog",
      "/v1/decisions?app=blog",
      "/v1/histogram?app=blog",
      "/v1/overview?app=blog",
      "/v1/keys?app=blog",
      "/v1/servers?app=blog",
      "/v1/drafts?app=blog",
      `/v1/decisions/${record}`,
      `/v1/decisions/${record}/proof`,
      `/v1/decisions/${record}/evidence`,
      `/v1/approvals/${id}`,
    ]) {
      const { status } = await get(path, stranger);
      expect([path, status]).toEqual([path, 404]);
    }
    const texts: string[] = [];
    for (const path of [
      "/v1/overview",
      "/v1/approvals",
      "/v1/decisions",
      "/v1/applications",
      "/v1/servers",
      "/v1/keys",
    ]) {
      texts.push(JSON.stringify((await get(path, stranger)).json));
    }
    expect(texts.join("\n")).not.toMatch(/blog|notes\.|writer|secret-of-blog/);
    expect((await send("POST", `/v1/approvals/${id}/approve`, { token: world.keys.lead, body: {} })).status).toBe(404);
  });

  it("a viewer gets everything without the arguments of calls, an auditor with them", async () => {
    const id = await world.ask("marked-argument", "marked-note");
    const paths = ["/v1/decisions?limit=5", "/v1/approvals", `/v1/approvals/${id}`];
    const decision = (await get("/v1/decisions?limit=1&tool=notes.delete", operator())).json.items[0] as Json;
    paths.push(`/v1/decisions/${encodeURIComponent(decision.id)}`);
    for (const path of paths) {
      expect(JSON.stringify((await get(path, world.keys.viewer)).json)).not.toContain("marked-");
      expect(JSON.stringify((await get(path, world.keys.auditor)).json)).toContain("marked-argument");
    }
  });

  it("an approver is shown the requests of its groups alone, and nobody answers for other groups", async () => {
    const refund = await world.askRefund("order-1");
    const listed = (await get("/v1/approvals", world.keys.approver)).json.approvals as Json[];
    expect(new Set(listed.map(({ app }) => app))).toEqual(new Set(["blog"]));
    expect((await get(`/v1/approvals/${refund}`, world.keys.approver)).status).toBe(404);
    // The operator's groups are `operators`: a refund is for the leads.
    const answer = await send("POST", `/v1/approvals/${refund}/approve`, { token: operator(), body: {} });
    expect(answer.status).toBe(403);
    expect((await send("POST", `/v1/approvals/${refund}/approve`, { token: world.keys.lead, body: {} })).status).toBe(
      200,
    );
  });
});

describe("the admin API, as a document", () => {
  it("results of every read have the form that the served OpenAPI document gives them", async () => {
    const document = (await get("/v1/openapi.json", operator())).json;
    expect(document.openapi).toBe("3.1.0");
    expect(document.paths).toEqual(openApiDocument(document.info.version).paths);
    const id = (await get("/v1/approvals", operator())).json.approvals[0].id as string;
    const decision = encodeURIComponent(
      (await get("/v1/decisions?limit=1&tool=notes.read", operator())).json.items[0].id,
    );
    const samples: [OperationName, string][] = [
      ["getSession", "/v1/session"],
      ["getOverview", "/v1/overview"],
      ["listApprovals", "/v1/approvals"],
      ["getApproval", `/v1/approvals/${id}`],
      ["listGrants", "/v1/grants"],
      ["listDecisions", "/v1/decisions"],
      ["getHistogram", "/v1/histogram"],
      ["explainDecision", `/v1/decisions/${decision}`],
      ["proveDecision", `/v1/decisions/${decision}/proof`],
      ["getEvidence", `/v1/decisions/${decision}/evidence`],
      ["getPolicies", "/v1/policies?app=blog"],
      ["listPolicyVersions", "/v1/policies/versions"],
      ["suggestPolicy", "/v1/policies/suggestion?app=blog"],
      ["listDrafts", "/v1/drafts"],
      ["listApplications", "/v1/applications"],
      ["getApplication", "/v1/applications/blog"],
      ["listServers", "/v1/servers"],
      ["getServer", "/v1/applications/blog/servers/notes"],
      ["listKeys", "/v1/keys"],
      ["listSecrets", "/v1/applications/blog/secrets"],
      ["listHalts", "/v1/halts"],
      ["getWorkflow", "/v1/workflow"],
      ["listDelegations", "/v1/delegations"],
      ["listLedgers", "/v1/ledgers"],
      ["listRecords", "/v1/ledgers/ledger/records"],
    ];
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    const wrong: string[] = [];
    for (const [name, path] of samples) {
      const { status, json } = await get(path, operator());
      const validate = ajv.compile(OPERATIONS[name].result.schema as object);
      if (status !== 200 || !validate(json)) wrong.push(`${name} ${status}: ${ajv.errorsText(validate.errors)}`);
    }
    expect(wrong).toEqual([]);
  });

  it("pages of decisions follow each other without a gap and without a repetition", async () => {
    const whole = (await get("/v1/decisions?limit=1000", operator())).json.items as Json[];
    const paged: Json[] = [];
    for (let next = ""; ; ) {
      const { items, next: following } = (
        await get(`/v1/decisions?limit=4${next === "" ? "" : `&cursor=${next}`}`, operator())
      ).json as { items: Json[]; next?: string };
      paged.push(...items);
      if (following === undefined) break;
      next = following;
    }
    expect(paged.map(({ id }) => id)).toEqual(whole.map(({ id }) => id));
    expect(paged.find(({ tool }) => tool === "notes.read")?.outcome).toBe("ok");
    expect((await get("/v1/decisions?cursor=nonsense", operator())).status).toBe(400);
  });
});

describe("the admin API, on record", () => {
  it("every change is on record with who made it, before it takes effect, and never with a secret", async () => {
    const token = operator();
    const secret = "s3cret-value-of-a-test";
    const { hash } = (await get("/v1/policies?app=blog", token)).json as { hash: string };
    const changes: [string, string, unknown][] = [
      ["PUT", "/v1/applications/blog/secrets/API_TOKEN", { value: secret }],
      ["PUT", "/v1/drafts/idea", { app: "blog", base: hash, files: [{ file: "a.cedar", text: "" }] }],
      ["DELETE", "/v1/drafts/idea", undefined],
      ["DELETE", "/v1/applications/blog/secrets/API_TOKEN", undefined],
      ["POST", "/v1/keys", { app: "blog", name: "temp", permissions: ["list"] }],
    ];
    for (const [method, path, body] of changes) {
      expect([path, (await send(method, path, { token, body })).status]).toEqual([path, 200]);
    }
    const { items } = (await get("/v1/ledgers/ledger/records?limit=1000&from=0", token)).json as { items: Json[] };
    const actions = items.filter(({ record }) => record.actor === "admin:operator").map(({ record }) => record.action);
    for (const action of ["putSecret", "putDraft", "removeDraft", "removeSecret", "createKey"]) {
      expect(actions).toContain(action);
    }
    expect(JSON.stringify(items)).not.toContain(secret);
    const names = NAMES.filter((name) => (ROUTES[name] as OperationRoute).writes);
    expect(names.length).toBeGreaterThan(15);
  });

  it("a server that is added with a credential has it sealed in the store, never shown and never in the document", async () => {
    const token = operator();
    const secret = "ghp_0123456789abcdefghijABCDEFGHIJ456789";
    const entry = { command: "no-such-program", env: { GITHUB_TOKEN: secret }, disabled: true };
    const path = "/v1/applications/blog/servers/added";
    expect((await send("PUT", path, { token, body: { entry } })).status).toBe(200);
    const detail = (await get("/v1/applications/blog", token)).json;
    expect(JSON.stringify(detail)).not.toContain(secret);
    expect(detail.document.servers.added.env.GITHUB_TOKEN).toMatch(/^\$\{secret:added_\w+\}$/);
    expect(detail.secrets.map(({ name }: Json) => name)).toContain("added_GITHUB_TOKEN");
    expect((await send("DELETE", path, { token })).status).toBe(200);
  });
});

describe("sessions of browsers", () => {
  /** Many wrong credentials in a minute are answered with 429. */
  const REFUSED = [401, 429];
  const signIn = async (credential: string): Promise<{ cookie: string; page: string; setCookie: string }> => {
    const { status, json, headers } = await send("POST", "/v1/sign-in", { body: { credential } });
    expect(status).toBe(200);
    const setCookie = headers.get("set-cookie") as string;
    return { cookie: setCookie.split(";")[0] as string, page: json.page_key as string, setCookie };
  };
  const withSession = (path: string, cookie: string, page: string | undefined, more: Record<string, string> = {}) =>
    send("GET", path, { headers: { cookie, ...(page === undefined ? {} : { "portcullis-page-key": page }), ...more } });

  it("a session needs its cookie and its page key, from the same origin", async () => {
    const { cookie, page, setCookie } = await signIn(world.keys.approver as string);
    expect(setCookie).toMatch(/; Path=\/v1\/; HttpOnly; SameSite=Strict; Max-Age=43200$/);
    expect((await withSession("/v1/session", cookie, page)).json.name).toMatch(/^olga /);
    expect((await withSession("/v1/session", cookie, undefined)).status).toBeOneOf(REFUSED);
    expect((await withSession("/v1/session", cookie, `${page.slice(0, -1)}x`)).status).toBeOneOf(REFUSED);
    expect((await withSession("/v1/session", "portcullis=x", page)).status).toBeOneOf(REFUSED);
    for (const site of ["cross-site", "same-site"]) {
      expect((await withSession("/v1/session", cookie, page, { "sec-fetch-site": site })).status).toBe(403);
    }
    expect((await withSession("/v1/session", cookie, page, { origin: "http://evil.example" })).status).toBe(403);
  });

  it("sign-out everywhere ends every session of the same name, and no other", async () => {
    const [one, two, other] = await Promise.all([
      signIn(world.keys.auditor as string),
      signIn(world.keys.auditor as string),
      signIn(world.keys.viewer as string),
    ]);
    const out = await send("POST", "/v1/sign-out", {
      body: { everywhere: true },
      headers: { cookie: one.cookie, "portcullis-page-key": one.page },
    });
    expect(out.json.ended).toBeGreaterThanOrEqual(2);
    expect(out.headers.get("set-cookie")).toContain("Max-Age=0");
    expect((await withSession("/v1/session", two.cookie, two.page)).status).toBeOneOf(REFUSED);
    expect((await withSession("/v1/session", other.cookie, other.page)).status).toBe(200);
  });

  it("a session ends with the key that opened it", async () => {
    const made = await send("POST", "/v1/keys", {
      token: operator(),
      body: { app: "blog", name: "brief", permissions: ["console(viewer)"] },
    });
    const { cookie, page } = await signIn(made.json.token as string);
    expect((await withSession("/v1/session", cookie, page)).status).toBe(200);
    await send("DELETE", `/v1/keys/${made.json.key.id}`, { token: operator() });
    expect((await withSession("/v1/session", cookie, page)).status).toBeOneOf(REFUSED);
  });

  it("the console cannot be framed, runs its own scripts alone, and shows nothing before a sign-in", async () => {
    const response = await fetch(`${world.admin}/console/approvals/ch_x`);
    const policy = response.headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toContain("unsafe");
    expect(response.headers.get("x-frame-options")).toBe("DENY");
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(await response.text()).not.toMatch(/blog|shop|writer/);
    const asset = /src="([^"]+)"/.exec(await (await fetch(`${world.admin}/console/`)).text())?.[1] as string;
    expect((await fetch(`${world.admin}${asset}`)).headers.get("cache-control")).toContain("immutable");
    expect(
      (await fetch(`${world.admin}/console/assets/..%2f..%2foperator.token`)).headers.get("content-type"),
    ).toContain("html");
  });
});

describe("events", () => {
  const reader = async (last?: string) => {
    const stop = new AbortController();
    const response = await fetch(`${world.admin}/v1/events`, {
      headers: { authorization: `Bearer ${operator()}`, ...(last === undefined ? {} : { "last-event-id": last }) },
      signal: stop.signal,
    });
    const stream = (response.body as ReadableStream<Uint8Array>).getReader();
    let text = "";
    const until = async (what: RegExp): Promise<string> => {
      for (;;) {
        if (what.test(text)) return text;
        const { done, value } = await stream.read();
        if (done) throw new Error(`ended without ${what}: ${text}`);
        text += new TextDecoder().decode(value);
      }
    };
    return { until, end: () => stop.abort() };
  };
  const lastId = (text: string): string => [...text.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] as string;

  it("a browser that was away gets what happened meanwhile, once, and is told where too much has happened", {
    timeout: 30_000,
  }, async () => {
    const first = await reader();
    await first.until(/event: hello/);
    await world.blog.callTool("notes.read", { item: "while-here" });
    const seen = await first.until(/while-here/);
    first.end();
    // The gateway keeps following for other browsers.
    const other = await reader();
    await other.until(/event: hello/);
    await world.blog.callTool("notes.read", { item: "while-away" });
    await other.until(/while-away/);
    const again = await reader(lastId(seen));
    const resumed = await again.until(/while-away/);
    expect(resumed).toContain('"resumed":true');
    expect(resumed).not.toContain("while-here");
    again.end();
    const unknown = await reader("another-process-7");
    expect(await unknown.until(/event: reset/)).toContain('"resumed":false');
    unknown.end();
    other.end();
  });
});
