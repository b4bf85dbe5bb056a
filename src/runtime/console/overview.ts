// The first screen: what waits, what is red, what happens, and which rules are at work.

import type { OperationHandlers, OperationResult } from "../../admin/index.js";
import { figuresOf } from "./decisions.js";
import { type ConsoleParts, ledgersOf } from "./parts.js";

type Problem = OperationResult<"getOverview">["problems"][number];

const BUCKETS = 60;
const REPLICA_MS = 60_000;
const MAX_LISTED = 10;
const WINDOW_MS = 24 * 3_600_000;

function problemsOf({ components, servers, applications }: ConsoleParts, app: string | undefined): Problem[] {
  const ofApp = (each: { readonly app: string }): boolean => app === undefined || each.app === app;
  const found: Problem[] =
    app === undefined ? components().map(({ name, message }) => ({ what: name, message, screen: screenOf(name) })) : [];
  for (const { app: name, reason } of applications.refused.filter(ofApp)) {
    found.push({ what: `application ${name}`, message: reason, screen: "policy" });
  }
  for (const { app: name, server, state, circuit, last_error } of servers().filter(ofApp)) {
    if (state !== "failed" && circuit === "closed") continue;
    const message = last_error?.message ?? (circuit === "closed" ? state : `circuit ${circuit}`);
    found.push({ what: `server ${name}/${server}`, message, screen: "servers" });
  }
  return found;
}

function screenOf(component: string): Problem["screen"] {
  if (component === "policy") return "policy";
  return component === "ledger" || component === "records" || component === "archive" ? "ledger" : "overview";
}

export function overviewHandlers(parts: ConsoleParts): OperationHandlers {
  const { storage, applications } = parts;
  return {
    getOverview: async ({ app }, { by }) => {
      const only = by.app ?? app;
      const now = Date.now();
      const denied = new Map<string, number>();
      const used = new Set<string>();
      const from = new Date(now - WINDOW_MS).toISOString();
      const histogram = await figuresOf(ledgersOf(parts), { app: only, from }, BUCKETS, ({ effect, rules }) => {
        for (const rule of rules) used.add(rule);
        if (effect !== "deny") return;
        for (const rule of rules.length === 0 ? ["no rule permits it"] : rules)
          denied.set(rule, (denied.get(rule) ?? 0) + 1);
      });
      const waiting = await storage.challenges.list(1_000, { app: only, state: "pending" });
      const oldest = Math.min(...waiting.map(({ createdAt }) => createdAt), now);
      const replicas = await storage.replicas.list(REPLICA_MS);
      const newest = Math.max(...replicas.map(({ seenAt }) => seenAt));
      const open = [...applications.open].filter(({ id }) => only === undefined || id === only);
      const permits = new Map(
        open.flatMap(({ gate }) =>
          gate.policy.rules
            .filter(({ effect, id }) => effect === "permit" && !used.has(id))
            .map(({ id, file, line, text }) => [`${file} ${id}`, { id, file, line, text }] as const),
        ),
      );
      return {
        now: new Date(now).toISOString(),
        waiting: waiting.length,
        oldest_waiting_ms: Math.max(0, now - oldest),
        problems: problemsOf(parts, only),
        histogram,
        denied_rules: [...denied]
          .sort(([, a], [, b]) => b - a)
          .slice(0, MAX_LISTED)
          .map(([id, count]) => ({ id, count })),
        unused_permits: [...permits.values()].slice(0, MAX_LISTED * 2),
        replicas: (only === undefined ? replicas : []).map(({ id, detail, seenAt }) => ({
          id,
          ...(typeof detail.version === "string" ? { version: detail.version } : {}),
          lag_ms: Math.max(0, newest - seenAt),
        })),
      };
    },
  };
}
