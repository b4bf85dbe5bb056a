// The gateway's own OAuth client towards servers that lie about who issues their tokens. Real sockets on loopback.

import { generateKeyPairSync } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { importSPKI, jwtVerify } from "jose";
import { afterEach, describe, expect, it } from "vitest";
import type { Application, ServerAuth, ServerEntry, Storage } from "../../storage/index.js";
import { downstreamOAuth } from "./downstream.js";

const SECRET = "the-operators-client-secret";
const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const PEM = privateKey.export({ format: "pem", type: "pkcs8" }).toString();
const closing: (() => unknown)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Party {
  readonly origin: string;
  readonly asked: { path: string; authorization: string | undefined; body: string }[];
  readonly answers: Record<string, object | { readonly redirect: string }>;
}

async function party(): Promise<Party> {
  const asked: Party["asked"] = [];
  const answers: Party["answers"] = {};
  const http = createServer(async (request: IncomingMessage, response) => {
    let body = "";
    for await (const chunk of request) body += String(chunk);
    asked.push({ path: request.url ?? "", authorization: request.headers.authorization, body });
    const answer = answers[request.url ?? ""];
    if (answer === undefined) return void response.writeHead(404).end();
    if ("redirect" in answer) return void response.writeHead(307, { location: String(answer.redirect) }).end();
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  closing.push(() => {
    http.close();
    http.closeAllConnections();
  });
  return { origin: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, asked, answers };
}

function describes(issuer: Party, more: object = {}): void {
  issuer.answers["/.well-known/oauth-authorization-server"] = {
    issuer: issuer.origin,
    token_endpoint: `${issuer.origin}/token`,
    ...more,
  };
  issuer.answers["/token"] = { access_token: "a-token", token_type: "Bearer" };
}

/** An MCP server that names these as its authorization servers. */
async function server(...issuers: Party[]): Promise<Party> {
  const made = await party();
  const names = issuers.map(({ origin }) => origin);
  made.answers["/.well-known/oauth-protected-resource"] = { resource: made.origin, authorization_servers: names };
  return made;
}

async function credentials(url: string, auth: Partial<ServerAuth>, allow: string[] = []) {
  let kept: { sealed: Uint8Array; version: number } | undefined;
  const storage = {
    tokens: {
      get: async () => kept,
      put: async (_id: object, sealed: Uint8Array, version: number) => {
        kept = { sealed, version: version + 1 };
        return kept;
      },
    },
  } as unknown as Storage;
  const sealer = {
    seal: (_as: object, text: string) => Buffer.from(text),
    open: (_as: object, sealed: Uint8Array) => Buffer.from(sealed).toString(),
  };
  const resolve = async (_app: string, text: string): Promise<string> =>
    text.replace("${secret:CLIENT}", SECRET).replace("${secret:KEY}", PEM);
  const parts = { storage, sealer, resolve } as unknown as Parameters<ReturnType<typeof downstreamOAuth>>[0];
  const entry: ServerEntry = { url, auth: { type: "oauth", ...auth } };
  const made = downstreamOAuth({ allow })(parts)({ id: "shop" } as Application, "stock", entry, "");
  return {
    headers: async () => made.headers("POST", "/"),
    refused: async () => made.refused?.({ status: 401, wwwAuthenticate: undefined, dpopNonce: undefined }),
  };
}

const withSecret = { clientId: "gateway", clientSecret: "${secret:CLIENT}" };

describe("the gateway's client", () => {
  it("sends the client secret to the configured issuer", async () => {
    const issuer = await party();
    describes(issuer);
    const { origin } = await server(issuer);
    const oauth = await credentials(origin, { ...withSecret, issuer: issuer.origin });
    expect(await oauth.refused()).toBe(true);
    expect(await oauth.headers()).toEqual({ authorization: "Bearer a-token" });
    const basic = Buffer.from(`gateway:${SECRET}`).toString("base64");
    expect(issuer.asked.at(-1)).toMatchObject({ path: "/token", authorization: `Basic ${basic}` });
  });

  it("sends no client secret to an issuer that only the server's metadata names [H5]", async () => {
    const [issuer, hostile] = [await party(), await party()];
    describes(issuer);
    describes(hostile);
    const { origin } = await server(hostile);
    const oauth = await credentials(origin, { ...withSecret, issuer: issuer.origin }, ["127.0.0.0/8"]);
    await expect(oauth.refused()).rejects.toThrow(`registered with ${issuer.origin}`);
    expect(hostile.asked).toEqual([]);
  });

  it("uses the configured issuer where the server names several", async () => {
    const [issuer, hostile] = [await party(), await party()];
    describes(issuer);
    describes(hostile);
    const { origin } = await server(hostile, issuer);
    const oauth = await credentials(origin, { ...withSecret, issuer: issuer.origin }, ["127.0.0.0/8"]);
    expect(await oauth.refused()).toBe(true);
    expect(hostile.asked).toEqual([]);
  });

  it.each([
    ["the token endpoint is at another origin", "`tokenEndpoint`"],
    ["the metadata names another issuer", "not the issuer"],
    ["the token endpoint redirects", "gives no token"],
  ])("sends no secret anywhere else when %s [H5]", async (how, why) => {
    const [issuer, hostile] = [await party(), await party()];
    describes(hostile);
    if (how.startsWith("the token endpoint is")) describes(issuer, { token_endpoint: `${hostile.origin}/token` });
    else if (how.startsWith("the metadata")) describes(issuer, { issuer: hostile.origin });
    else {
      describes(issuer);
      issuer.answers["/token"] = { redirect: `${hostile.origin}/token` };
    }
    const { origin } = await server(issuer);
    const oauth = await credentials(origin, { ...withSecret, issuer: issuer.origin }, ["127.0.0.0/8"]);
    await expect(oauth.refused()).rejects.toThrow(why);
    expect(hostile.asked).toEqual([]);
  });

  it("uses a token endpoint at another origin when the operator named it", async () => {
    const [issuer, tokens] = [await party(), await party()];
    describes(tokens);
    describes(issuer, { token_endpoint: `${tokens.origin}/token` });
    const { origin } = await server(issuer);
    const auth = { ...withSecret, issuer: issuer.origin, tokenEndpoint: `${tokens.origin}/token` };
    expect(await (await credentials(origin, auth)).refused()).toBe(true);
    expect(tokens.asked.map(({ path }) => path)).toEqual(["/token"]);
  });

  it("authenticates by a signed assertion instead of a secret where it has a private key [H5]", async () => {
    const issuer = await party();
    describes(issuer);
    const { origin } = await server(issuer);
    const auth = { ...withSecret, privateKey: "${secret:KEY}", privateKeyId: "k1", issuer: issuer.origin };
    expect(await (await credentials(origin, auth)).refused()).toBe(true);
    const { body, authorization } = issuer.asked.at(-1) as Party["asked"][number];
    const form = new URLSearchParams(body);
    expect([authorization, form.get("client_secret")]).toEqual([undefined, null]);
    const key = await importSPKI(publicKey.export({ format: "pem", type: "spki" }).toString(), "ES256");
    const { payload, protectedHeader } = await jwtVerify(form.get("client_assertion") ?? "", key);
    expect(payload).toMatchObject({ iss: "gateway", sub: "gateway", aud: issuer.origin });
    expect(protectedHeader).toEqual({ alg: "ES256", kid: "k1" });
  });

  it("refuses a stored entry without an issuer, with the remedy [H5]", async () => {
    const issuer = await party();
    describes(issuer);
    const { origin, asked } = await server(issuer);
    const oauth = await credentials(origin, withSecret, ["127.0.0.0/8"]);
    await expect(oauth.refused()).rejects.toThrow("`issuer` is missing");
    await expect(oauth.headers()).rejects.toThrow("`issuer` is missing");
    expect([...asked, ...issuer.asked]).toEqual([]);
  });

  it("reaches another port of a private host only when the operator named it", async () => {
    const issuer = await party();
    describes(issuer);
    const { origin } = await server(issuer);
    const before = issuer.asked.length;
    await expect((await credentials(origin, {})).refused()).rejects.toThrow("loopback");
    expect(issuer.asked.length).toBe(before);
  });
});
