// A gateway as the console meets it: two applications, three servers, policies, keys, and a ledger with calls of every
// kind. Everything is real: the built command, stdio servers, callers with keys.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, connect } from "../../src/mcp/client/index.js";
import { portcullis, root, type Serving, serve } from "../e2e/serving.js";

const SERVER = join(root, "test", "console", "server.mjs");

export const POLICIES = {
  blog: `@id("blog-reads")
permit (principal, action == Action::"notes.read", resource);

@id("blog-writes")
permit (principal, action in [Action::"notes.write", Action::"notes.delete", Action::"mail.send"], resource);

@id("delete-needs-approval") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"notes.delete", resource) unless { context.approved };

@id("no-mail-outside")
forbid (principal, action == Action::"mail.send", resource)
when { context.arguments.item like "*@evil.example" };

@id("never-used")
permit (principal, action == Action::"mail.read", resource);
`,
  shop: `@id("shop-orders")
permit (principal, action in [Action::"orders.read", Action::"orders.refund"], resource);

@id("refund-needs-approval") @outcome("challenge") @approvers("leads")
forbid (principal, action == Action::"orders.refund", resource) unless { context.approved };
`,
};

/** Who answers or looks, each with a key: application, name and permission. */
const PEOPLE = {
  approver: ["blog", "olga", "approve(operators)"],
  lead: ["shop", "lea", "approve(leads)"],
  viewer: ["blog", "vera", "console(viewer)"],
  auditor: ["blog", "otto", "console(auditor)"],
  stranger: ["shop", "sven", "console(auditor)"],
} satisfies Record<string, [app: string, name: string, permission: string]>;
type Person = keyof typeof PEOPLE;

const entry = (tools: string, changed?: string) => ({
  command: process.execPath,
  args: [SERVER, tools, ...(changed === undefined ? [] : [changed])],
  noGuardrail: ["*"],
  sandbox: "off",
});

export interface World {
  readonly gateway: Serving;
  readonly admin: string;
  readonly dir: string;
  readonly operatorToken: string;
  /** Keys by name: `writer` and `clerk` call; `approver` (blog, operators), `lead` (shop, leads), `viewer`, `auditor` (blog), `stranger` (auditor of shop). */
  readonly keys: Readonly<Record<string, string>>;
  readonly blog: Client;
  readonly shop: Client;
  run(...args: string[]): string;
  /** Opens an approval request and returns its id. */
  ask(item: string, note?: string): Promise<string>;
  askRefund(item: string): Promise<string>;
  close(): Promise<void>;
}

export async function openWorld(
  calls = 12,
  people: readonly Person[] = Object.keys(PEOPLE) as Person[],
): Promise<World> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-console-"));
  const run = (...given: string[]): string => {
    const { code, stdout, stderr } = portcullis(["--dir", dir, ...given]);
    if (code !== 0) throw new Error(`${given.join(" ")} ended with ${code}: ${stderr}`);
    return stdout;
  };
  const documents = {
    applications: {
      blog: {
        description: "The blog and its mail",
        servers: { notes: entry("read,write,delete"), mail: entry("send,read") },
        limits: { agent: { perMinute: 6000 } },
        policies: ["blog.cedar"],
      },
      shop: { servers: { orders: { ...entry("read,refund"), prefix: "orders" } }, policies: ["shop.cedar"] },
    },
  };
  const file = join(dir, "world.json");
  for (const [name, text] of Object.entries(POLICIES)) writeFileSync(join(dir, `${name}.cedar`), text);
  writeFileSync(file, JSON.stringify(documents));
  run("app", "apply", file, "--yes");
  const key = (app: string, name: string, ...allow: string[]): string =>
    run("key", "add", app, "--name", name, "--allow", ...allow).trim();
  const keys = {
    writer: key("blog", "writer", "invoke(*)", "list"),
    clerk: key("shop", "clerk", "invoke(*)", "list"),
    ...Object.fromEntries(people.map((name) => [name, key(...PEOPLE[name])])),
  };
  const gateway = await serve(["--challenge-wait", "0.1", "--keep-arguments"], { dir });
  const client = (token: string): Promise<Client> =>
    connect(gateway.url, { headers: { authorization: `Bearer ${token}` } });
  const [blog, shop] = await Promise.all([client(keys.writer), client(keys.clerk)]);
  const idIn = (result: unknown): string => {
    const found = /ch_[A-Za-z0-9_-]{8,}/.exec(JSON.stringify(result))?.[0];
    if (found === undefined) throw new Error(`no approval request in ${JSON.stringify(result)}`);
    return found;
  };
  const failing = async (calling: Promise<unknown>): Promise<unknown> => calling.catch((error: unknown) => error);
  for (let i = 0; i < calls; i++) {
    await blog.callTool("notes.read", { item: `post-${i}` });
    if (i % 3 === 0) await failing(blog.callTool("mail.send", { item: `someone-${i}@evil.example` }));
    if (i % 2 === 0) await shop.callTool("orders.read", { item: `order-${i}` });
  }
  return {
    gateway,
    admin: gateway.admin,
    dir,
    operatorToken: readFileSync(join(dir, "operator.token"), "utf8").trim(),
    keys,
    blog,
    shop,
    run,
    ask: async (item, note) =>
      idIn(await failing(blog.callTool("notes.delete", note === undefined ? { item } : { item, note }))),
    askRefund: async (item) => idIn(await failing(shop.callTool("orders.refund", { item }))),
    close: async () => {
      await Promise.all([blog.close(), shop.close()]);
      await gateway.stop();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
