// The community examples for PostgreSQL and e-mail: each application has its own server, with its own credentials, under
// one name. The far ends are a real PostgreSQL and a mail server that checks who signs in.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { JsonObject } from "../../src/mcp/index.js";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { createSealer, loadSealKeys } from "../../src/storage/index.js";
import { CERTIFICATE, KEY } from "../../src/upstream/fixtures/certificate.js";
import { type Deployment, deploy } from "./gateway-world.js";
import { type MailServer, startMailServer } from "./mail-server.js";

const root = join(import.meta.dirname, "..", "..");
let deployment: Deployment;
let postgres: PostgresCluster;
let database: string;
let mail: MailServer;

beforeAll(async () => {
  postgres = await startPostgres();
  database = await postgres.database();
  await sql(`CREATE TABLE posts (id serial PRIMARY KEY, title text NOT NULL);
    INSERT INTO posts (title) SELECT 'post ' || n FROM generate_series(1, 1500) n;
    CREATE TABLE secrets (text text); INSERT INTO secrets VALUES ('TOP SECRET');
    CREATE ROLE blog LOGIN PASSWORD 'of-blog'; GRANT SELECT, INSERT ON posts TO blog; GRANT USAGE ON posts_id_seq TO blog;
    CREATE ROLE shop LOGIN PASSWORD 'of-shop';`);
  mail = await startMailServer({ blog: "of-blog", shop: "of-shop" });
  deployment = await deploy("permit (principal, action, resource);");
  const sealer = createSealer(loadSealKeys({ defaultFile: join(deployment.dir, "seal.key") }));
  for (const app of ["blog", "shop"]) {
    const url = new URL(database);
    Object.assign(url, { username: app, password: "" });
    await deployment.put(app, {
      servers: {
        db: example("postgres-server.mjs", { DATABASE_URL: url.href, PGPASSWORD: "${secret:PASSWORD}" }),
        mail: example("email-server.mjs", {
          SMTP_URL: mail.url,
          SMTP_USER: app,
          SMTP_PASSWORD: "${secret:PASSWORD}",
          SMTP_FROM: `${app}@example.org`,
        }),
      },
      routes: { "community.postgres": { server: "db" }, "community.email": { server: "mail" } },
    });
    // The shop's password is wrong for the mail server.
    const sealed = sealer.seal({ kind: "secret", app, name: "PASSWORD" }, app === "blog" ? "of-blog" : "wrong");
    await deployment.runtime.storage.secrets.put(app, "PASSWORD", sealed, "test");
  }
}, 120_000);
afterAll(async () => {
  await deployment?.close();
  await mail?.close();
  await postgres?.stop();
});

async function sql(text: string): Promise<readonly object[]> {
  const client = new pg.Client({ connectionString: database });
  await client.connect();
  try {
    const result = await client.query(text);
    return Array.isArray(result) ? [] : result.rows;
  } finally {
    await client.end();
  }
}

function example(name: string, env: Record<string, string>) {
  return { command: process.execPath, args: [join(root, "examples", name)], env, noGuardrail: ["*"] };
}

let agents = 0;
async function call(app: string, tool: string, args: JsonObject): Promise<any> {
  const client = await deployment.client(await deployment.key(app, `agent-${agents++}`));
  try {
    return await client.callTool(tool, args);
  } catch (error) {
    return { isError: true, message: (error as Error).message };
  } finally {
    await client.close();
  }
}

const count = async (): Promise<unknown> => (await sql("SELECT count(*)::int AS n FROM posts"))[0];

describe("community.postgres", { timeout: 60_000 }, () => {
  it("community.postgres reads rows with parameters, at most a thousand, as the role of the application [H13]", async () => {
    const one = await call("blog", "community.postgres.query", {
      sql: "SELECT title, current_user AS role FROM posts WHERE id = $1",
      parameters: [7],
    });
    expect(one.structuredContent).toEqual({ rows: [{ title: "post 7", role: "blog" }], truncated: false });
    const all = await call("blog", "community.postgres.query", { sql: "SELECT id FROM posts" });
    expect(all.structuredContent.rows).toHaveLength(1000);
    expect(all.structuredContent.truncated).toBe(true);
  });

  it("community.postgres changes rows by execute, and never by query [H13]", async () => {
    const before = await count();
    for (const statement of [
      "INSERT INTO posts (title) VALUES ('by query')",
      "WITH x AS (INSERT INTO posts (title) VALUES ('by query') RETURNING id) SELECT * FROM x",
      "SELECT 1; INSERT INTO posts (title) VALUES ('by query')",
      "SELECT nextval('posts_id_seq')",
    ]) {
      const refused = await call("blog", "community.postgres.query", { sql: statement });
      expect([statement, refused.isError]).toEqual([statement, true]);
    }
    expect(await count()).toEqual(before);
    const written = await call("blog", "community.postgres.execute", {
      sql: "INSERT INTO posts (title) VALUES ($1)",
      parameters: ["'); DROP TABLE posts; --"],
    });
    expect(written.structuredContent).toEqual({ rowCount: 1 });
    expect(await sql("SELECT title FROM posts ORDER BY id DESC LIMIT 1")).toEqual([
      { title: "'); DROP TABLE posts; --" },
    ]);
  });

  it("community.postgres reaches nothing that PostgreSQL does not grant the application's own role [H13]", async () => {
    for (const [app, statement] of [
      ["blog", "SELECT * FROM secrets"],
      ["blog", "SELECT pg_read_file('/etc/passwd')"],
      ["shop", "SELECT title FROM posts"],
    ] as const) {
      const refused = await call(app, "community.postgres.query", { sql: statement });
      expect(refused.isError, JSON.stringify(refused)).toBe(true);
      expect(JSON.stringify(refused)).not.toMatch(/TOP SECRET|root:/);
    }
  });
});

describe("community.email", { timeout: 60_000 }, () => {
  it("community.email sends a message from the application's own account, with any text in subject and body [H13]", async () => {
    const text = `Hello,\r\n.\r\nMAIL FROM:<x@example.org>\r\n${"ü".repeat(2000)}`;
    const subject = "Grüße\r\nBcc: other@example.org";
    const to = ["ann@example.org", "ben@example.org"];
    const sent = await call("blog", "community.email.sendMessage", { to, subject, text });
    expect(sent.structuredContent, JSON.stringify(sent)).toMatchObject({ accepted: to });
    expect(mail.mails).toHaveLength(1);
    const [message] = mail.mails;
    expect(message).toMatchObject({ user: "blog", from: "blog@example.org", to });
    const [head = "", body = ""] = (message?.data ?? "").split("\r\n\r\n");
    expect(head).not.toMatch(/^Bcc:/m);
    const words = [...head.matchAll(/=\?UTF-8\?B\?([^?]*)\?=/g)];
    expect(words.map(([, word = ""]) => Buffer.from(word, "base64").toString()).join("")).toBe(subject);
    expect(Buffer.from(body, "base64").toString()).toBe(text);
  });

  it("community.email sends password and message only by TLS where the server offers STARTTLS, and nothing to a false server [H13]", async () => {
    const directory = mkdtempSync(join(tmpdir(), "portcullis-mail-"));
    const file = join(directory, "ca.pem");
    writeFileSync(file, CERTIFICATE);
    const secure = await startMailServer({ blog: "of-blog" }, { key: KEY, cert: CERTIFICATE });
    try {
      const env = { SMTP_USER: "blog", SMTP_PASSWORD: "of-blog", SMTP_FROM: "blog@example.org" };
      for (const [app, more] of [
        ["trusting", { NODE_EXTRA_CA_CERTS: file }],
        ["other", {}],
      ] as const) {
        const url = secure.url.replace("127.0.0.1", "localhost");
        const server = example("email-server.mjs", { ...env, ...more, SMTP_URL: url });
        await deployment.put(app, { servers: { mail: server }, routes: { "community.email": { server: "mail" } } });
      }
      const message = { to: ["ann@example.org"], subject: "s", text: "by TLS" };
      const refused = await call("other", "community.email.sendMessage", message);
      expect(JSON.stringify(refused)).toMatch(/self-signed|certificate/);
      expect(secure.mails).toEqual([]);
      const sent = await call("trusting", "community.email.sendMessage", message);
      expect(sent.isError ?? false, JSON.stringify(sent)).toBe(false);
      expect(secure.mails).toMatchObject([{ user: "blog", to: ["ann@example.org"] }]);
    } finally {
      await secure.close();
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it("community.email sends nothing with a wrong password, nor to an address that is a second command [H13]", async () => {
    const before = mail.mails.length;
    const message = { subject: "s", text: "t" };
    const wrong = await call("shop", "community.email.sendMessage", { to: ["ann@example.org"], ...message });
    expect(JSON.stringify(wrong)).toContain("535");
    for (const address of ["ann@example.org>\r\nRCPT TO:<eve@example.org", "<ann@example.org>", "ann@example.org "]) {
      const refused = await call("blog", "community.email.sendMessage", { to: [address], ...message });
      expect(refused.isError ?? false, address).toBe(true);
    }
    expect(mail.mails).toHaveLength(before);
  });
});
