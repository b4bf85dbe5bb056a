// Ledgers as the console shows them: records by their numbers, and verification with its progress.

import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import type { OperationHandlers, OperationResult, VerificationView } from "../../admin/index.js";
import { type NamedLedger, read, readLast, verify } from "../../ledger/index.js";
import { recordRow, signedSize } from "./decisions.js";
import { type AdminEvents, type ConsoleParts, ledgerNamed, ledgersOf, notFound } from "./parts.js";

const DEFAULT_LIMIT = 100;
const MAX_VERIFICATIONS = 20;
const PROGRESS_MS = 250;

async function extentOf(parts: ConsoleParts, { path }: NamedLedger): Promise<{ first: number; size: number }> {
  const firsts = (await readdir(path)).flatMap((name) => /^seq-(\d+)\.ndjson/.exec(name)?.[1] ?? []).map(Number);
  const first = firsts.length === 0 ? 0 : Math.min(...firsts);
  const size = path === parts.ledger.dir ? parts.ledger.status().size : (await readLast(path, 1)).next;
  return { first, size };
}

export function ledgerHandlers(parts: ConsoleParts, events: () => AdminEvents | undefined): OperationHandlers {
  const verifications = new Map<string, VerificationView>();
  const put = (verification: VerificationView): VerificationView => {
    verifications.set(verification.id, verification);
    while (verifications.size > MAX_VERIFICATIONS) verifications.delete(verifications.keys().next().value as string);
    events()?.send({ type: "verification", verification });
    return verification;
  };
  return {
    listLedgers: async () => {
      const ledgers = await Promise.all(
        ledgersOf(parts).map(async (ledger): Promise<OperationResult<"listLedgers">["ledgers"][number]> => {
          const own = ledger.path === parts.ledger.dir;
          const { healthy, lastError } = own ? parts.ledger.status() : { healthy: true, lastError: undefined };
          const extent = await extentOf(parts, ledger);
          const signed = await signedSize(parts, ledger);
          const problem = lastError?.message;
          return {
            ledger: ledger.name,
            ...extent,
            signed,
            own,
            healthy,
            ...(problem === undefined ? {} : { problem }),
          };
        }),
      );
      return { ledgers };
    },

    listRecords: async ({ ledger: name, from, limit = DEFAULT_LIMIT, kind }) => {
      const ledger = ledgerNamed(parts, name);
      const { first, size } = await extentOf(parts, ledger);
      const start = from ?? Math.max(first, size - limit);
      const items: OperationResult<"listRecords">["items"][number][] = [];
      for await (const { record } of read(ledger.path, {
        from: start,
        to: size,
        ...(kind === undefined ? {} : { filter: (each) => each.kind === kind }),
      })) {
        items.push(recordRow(name, record));
        if (items.length >= limit) break;
      }
      return { items, first, size };
    },

    verifyLedger: async ({ ledger: name }) => {
      const ledger = ledgerNamed(parts, name);
      const running = [...verifications.values()].find((each) => each.ledger === name && each.state === "running");
      if (running) return running;
      const { first, size } = await extentOf(parts, ledger);
      const id = randomBytes(9).toString("base64url");
      const started: VerificationView = {
        id,
        ledger: name,
        state: "running",
        progress: 0,
        started_at: new Date().toISOString(),
        problems: [],
        notes: [],
      };
      put(started);
      let shownAt = performance.now();
      const onProgress = (next: number): void => {
        if (performance.now() - shownAt < PROGRESS_MS) return;
        shownAt = performance.now();
        put({ ...started, progress: Math.min(1, (next - first) / Math.max(1, size - first)) });
      };
      verify(ledger.path, { onProgress }).then(
        ({ ok, from, to, covered, problems, notes }) =>
          put({
            ...started,
            state: "done",
            progress: 1,
            ok,
            records: to - from,
            covered,
            problems: problems.map(({ message }) => message),
            notes,
          }),
        (error: Error) => put({ ...started, state: "failed", progress: 1, ok: false, problems: [error.message] }),
      );
      return started;
    },

    getVerification: ({ id }) => {
      const found = verifications.get(id);
      if (!found) throw notFound("there is no such verification");
      return found;
    },
  };
}
