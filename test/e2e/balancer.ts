// A small HTTP balancer: it asks every replica for `/readyz` and acts on the answer late, as real ones do.

import { Agent, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import type { Replica } from "./replicas.js";

const PROBE_MS = 100;

export interface Balancer {
  readonly url: string;
  /** Requests that it could not pass on or that a replica dropped. */
  readonly failures: string[];
  /** Names of the replicas that get requests now. */
  readonly inUse: string[];
  close(): Promise<void>;
}

export async function startBalancer(replicas: readonly Replica[], lagMs: number): Promise<Balancer> {
  const agent = new Agent({ keepAlive: true });
  const failures: string[] = [];
  const used = new Map<Replica, string>();
  let turn = 0;
  const probe = async (replica: Replica): Promise<void> => {
    const { url, admin } = replica;
    const isReady = await fetch(`${admin}/readyz`, { signal: AbortSignal.timeout(1_000) }).then(
      (answer) => answer.status === 200,
      () => false,
    );
    setTimeout(() => {
      if (isReady) used.set(replica, url);
      else used.delete(replica);
    }, lagMs).unref();
  };
  const timer = setInterval(() => replicas.forEach((replica) => void probe(replica)), PROBE_MS);
  const server = createServer((req, res) => {
    const targets = [...used.values()];
    const target = targets[turn++ % Math.max(1, targets.length)];
    const fail = (why: string): void => {
      failures.push(why);
      if (!res.headersSent) res.writeHead(502);
      res.end();
    };
    if (target === undefined) return fail("no replica is ready");
    const headers = { ...req.headers, host: new URL(target).host };
    const onward = request(target, { method: req.method, headers, agent }, (answer) => {
      if ((answer.statusCode ?? 0) >= 500) failures.push(`status ${answer.statusCode}`);
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      // An event stream has its head at once, not with its first event.
      res.flushHeaders();
      answer.on("error", (error) => fail(error.message));
      answer.pipe(res);
    });
    onward.on("error", (error) => fail(error.message));
    req.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    failures,
    get inUse() {
      return [...used.keys()].map((replica) => replica.name);
    },
    async close() {
      clearInterval(timer);
      server.closeAllConnections();
      agent.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
