// Values that the data directory and other modules know, for completion. Each is loaded when it is needed.

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { KnownValues } from "./complete.js";

export function knownValues(directory: () => string): KnownValues {
  const apps = async (): Promise<string[]> => {
    const { snapshotApps } = await import("../runtime/tool-snapshots.js");
    const dir = directory();
    return [...new Set([...snapshotApps(dir), ...(await storedApps(dir))])].sort();
  };
  const connectable = async (): Promise<readonly string[]> =>
    (await import("../integrations/clients/places.js")).CONNECTABLE;
  return {
    app: apps,
    client: connectable,
    from: async () => (await import("../integrations/clients/places.js")).CLIENTS,
    shell: () => ["bash", "zsh", "fish"],
    tool: async () => {
      const { readSnapshot, snapshotApps } = await import("../runtime/tool-snapshots.js");
      const dir = directory();
      return snapshotApps(dir).flatMap((app) => (readSnapshot(dir, app) ?? []).map(({ name }) => name));
    },
  };
}

async function storedApps(dir: string): Promise<string[]> {
  const { STORE_FILE } = await import("../runtime/data-directory.js");
  if (!existsSync(join(dir, STORE_FILE))) return [];
  const { openStore } = await import("../runtime/store/open.js");
  const storage = await openStore(dir, undefined, { sweepMs: 0 });
  try {
    return (await storage.applications.list({ limit: 1_000 })).items.map(({ id }) => id);
  } finally {
    await storage.close();
  }
}
