// An issuer whose keys the test holds, so that tokens can be made wrong in every way. It publishes over real HTTP.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT } from "jose";

export interface OwnIssuer {
  readonly issuer: string;
  readonly asked: string[];
  readonly jwks: { keys: JWK[] };
  /** Changes what is signed with and what is published. */
  rotate(kid: string): Promise<void>;
  sign(claims: Record<string, unknown>, header?: Record<string, unknown>): Promise<string>;
  readonly revoked: Set<string>;
  fail: boolean;
  /** What the metadata names instead of its own address. */
  introspectionEndpoint: string | undefined;
  /** Where requests for introspection are redirected to. */
  redirect: string | undefined;
  /** Requests for introspection that carried a credential. */
  readonly credentials: string[];
  close(): Promise<void>;
}

export async function ownIssuer(alg = "ES256"): Promise<OwnIssuer> {
  const asked: string[] = [];
  const revoked = new Set<string>();
  const jwks: { keys: JWK[] } = { keys: [] };
  let key: CryptoKey;
  let kid = "";
  const credentials: string[] = [];
  const own: Pick<OwnIssuer, "fail" | "introspectionEndpoint" | "redirect"> = {
    fail: false,
    introspectionEndpoint: undefined,
    redirect: undefined,
  };
  const http = createServer((req, res) => {
    asked.push(req.url ?? "");
    if (own.fail) return void res.writeHead(503).end();
    if (req.url === "/introspect") return void introspect(req, res);
    const body =
      req.url === "/.well-known/oauth-authorization-server"
        ? {
            issuer,
            jwks_uri: `${issuer}/keys`,
            introspection_endpoint: own.introspectionEndpoint ?? `${issuer}/introspect`,
          }
        : req.url === "/keys"
          ? jwks
          : undefined;
    if (!body) return void res.writeHead(404).end();
    res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  const introspect = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    let text = "";
    for await (const chunk of req) text += String(chunk);
    if (req.headers.authorization !== undefined || text !== "") credentials.push(req.headers.authorization ?? text);
    if (own.redirect !== undefined) return void res.writeHead(307, { location: own.redirect }).end();
    // The name and the secret are form-encoded, then joined: RFC 6749, 2.3.1.
    const known = `Basic ${Buffer.from("gateway:a+secret%3A+100%25").toString("base64")}`;
    if (req.headers.authorization !== known) return void res.writeHead(401).end();
    res.end(JSON.stringify({ active: !revoked.has(new URLSearchParams(text).get("token") ?? "") }));
  };
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const rotate = async (next: string): Promise<void> => {
    const pair = await generateKeyPair(alg, { extractable: true });
    key = pair.privateKey;
    kid = next;
    jwks.keys = [{ ...(await exportJWK(pair.publicKey)), kid, alg, use: "sig" }];
  };
  await rotate("first");
  return Object.assign(own, {
    issuer,
    asked,
    credentials,
    jwks,
    rotate,
    revoked,
    sign: (claims: Record<string, unknown>, header: Record<string, unknown> = {}) =>
      new SignJWT(claims).setProtectedHeader({ alg, kid, typ: "at+jwt", ...header }).sign(key),
    close: () =>
      new Promise<void>((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  }) as OwnIssuer;
}
