// Waits on this machine for the answer of an authorization server, which a person's browser brings.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Loopback {
  readonly redirectUri: string;
  /** The address, with its query, that carried this state. Others are turned away and waited past. */
  answer(state: string): Promise<string>;
  close(): void;
}

const PAGE = "<!doctype html><meta charset=utf-8><title>Portcullis</title><p>Done. You can close this window.";

export async function listenForAnswer(port: number, timeoutMs: number): Promise<Loopback> {
  const waiting = new Map<string, (url: string) => void>();
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", redirectUri);
    const take = url.pathname === "/callback" ? waiting.get(url.searchParams.get("state") ?? "") : undefined;
    response.setHeader("cache-control", "no-store");
    response.setHeader("connection", "close");
    if (!take || request.method !== "GET") return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    take(url.href);
  });
  server.maxConnections = 16;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const redirectUri = `http://127.0.0.1:${(server.address() as AddressInfo).port}/callback`;
  return {
    redirectUri,
    answer: (state) =>
      new Promise((resolve, reject) => {
        const late = new Error(`nobody logged in within ${Math.round(timeoutMs / 1_000)} s`);
        const timer = setTimeout(() => reject(late), timeoutMs);
        waiting.set(state, (url) => {
          clearTimeout(timer);
          waiting.delete(state);
          resolve(url);
        });
      }),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
