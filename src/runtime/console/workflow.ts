// The workflow as the console draws it: the graph of `portcullis lattice graph`, and which delegations calls have used.

import { readFile } from "node:fs/promises";
import type { OperationHandlers } from "../../admin/index.js";
import { type LedgerRecord, readLast } from "../../ledger/index.js";
import type { JsonObject } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";
import { loadWorkflow } from "../workflow/load.js";
import { type ConsoleParts, ledgersOf } from "./parts.js";

const SCAN_BYTES = 16 * 1024 * 1024;
const MAX_SHOWN = 1_000;

interface Link {
  readonly agent?: unknown;
}

export function workflowHandlers(parts: ConsoleParts): OperationHandlers {
  const { workflow } = parts;
  return {
    getWorkflow: async () => {
      if (!workflow) return { served: false };
      const text = await readFile(workflow.file, "utf8");
      const { lattice, workflow: loaded, violations } = await loadWorkflow(workflow.file);
      const graph = JSON.parse(lattice.toJson(loaded, violations, { most: MAX_SHOWN })) as JsonObject;
      return { served: true, app: workflow.app, text, graph };
    },

    checkWorkflow: async ({ text }) => {
      const lattice = await import("../../lattice/index.js");
      try {
        // Files beside the workflow are those of the gateway's machine: a text from a browser names none.
        const manifest = (name: string): unknown => {
          throw new lattice.LatticeError(
            "LATTICE_MANIFEST",
            `the manifest ${name} cannot be read here; write its tools into the workflow`,
          );
        };
        const checked = lattice.parseWorkflow(text, { manifest });
        const violations = lattice.analyse(checked, { validator: () => () => true }).violations();
        const graph = JSON.parse(lattice.toJson(checked, violations, { most: MAX_SHOWN })) as JsonObject;
        return { ok: violations.length === 0, graph };
      } catch (error) {
        if (!(error instanceof lattice.LatticeError)) throw error;
        return { ok: false, problem: visible(error.message) };
      }
    },

    listDelegations: async () => {
      const uses = new Map<string, { from: string; to: string; calls: number; last: string }>();
      let scanned = 0;
      for (const { path } of ledgersOf(parts)) {
        const filter = (record: LedgerRecord): boolean => {
          scanned++;
          if (record.kind !== "decision") return false;
          const chain = (record.detail?.delegation as { chain?: readonly Link[] } | undefined)?.chain ?? [];
          for (const [i, { agent: to }] of chain.entries()) {
            const from = chain[i - 1]?.agent;
            if (typeof from !== "string" || typeof to !== "string") continue;
            const key = JSON.stringify([from, to]);
            const known = uses.get(key) ?? { from: visible(from), to: visible(to), calls: 0, last: record.ts };
            known.calls++;
            if (record.ts > known.last) known.last = record.ts;
            uses.set(key, known);
          }
          return false;
        };
        await readLast(path, 1, { filter, maxBytes: SCAN_BYTES });
      }
      return { delegations: [...uses.values()].sort((a, b) => b.calls - a.calls), scanned };
    },
  };
}
