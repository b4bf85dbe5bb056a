// Files of gateways that no stdio server may see: this gateway's own, and those of others on this machine that use the
// same store. A credential of any replica answers for all of them.

import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import type { ServerSandbox } from "../host/index.js";
import type { JsonObject } from "../mcp/index.js";
import type { Storage } from "../storage/index.js";

export type GatewayFiles = Pick<ServerSandbox, "hidden" | "readOnly">;

/** Replicas that were heard of this recently may still run. */
const SEEN_MS = 24 * 3_600_000;
const MAX_HIDDEN = 256;
/** From a ledger up to its data directory: a worker's is two below. */
const MAX_LEVELS = 3;

/** What a replica says of itself to those on the same machine. */
export function filesDetail({ hidden }: GatewayFiles): JsonObject {
  return { host: hostname(), files: [...hidden] };
}

/** Read each time a server starts: replicas come and go. */
export async function hiddenFiles(
  own: GatewayFiles,
  storage: Pick<Storage, "replicas" | "ledgers">,
): Promise<GatewayFiles> {
  const [replicas, ledgers] = await Promise.all([storage.replicas.list(SEEN_MS), storage.ledgers.list()]);
  const here = `${hostname()}:`;
  const live = replicas.flatMap(({ detail }) => (detail.host === hostname() ? texts(detail.files) : []));
  const known = ledgers.flatMap(({ place }) => (place.startsWith(here) ? [gatewayOf(place.slice(here.length))] : []));
  const others = [...new Set([...live, ...known])].filter((path) => !own.hidden.includes(path) && existsSync(path));
  return { ...own, hidden: [...own.hidden, ...others.slice(0, MAX_HIDDEN)] };
}

/** The data directory of a ledger, or the ledger itself where that lies elsewhere. */
function gatewayOf(ledger: string): string {
  let at = ledger;
  for (let level = 0; level < MAX_LEVELS; level++) {
    at = dirname(at);
    if (existsSync(join(at, "operator.token"))) return at;
  }
  return ledger;
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}
