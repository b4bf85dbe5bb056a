// Pins of servers' definitions: changes are pending review, and logged. Resources are not
// pinned: those that a server listed last are kept in the store beside the pins, so that a list does not start it.

import type { DefinitionPins } from "../gateway/index.js";
import type { JsonObject } from "../mcp/index.js";
import type { Storage } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import { PinKeeper } from "../upstream/index.js";

const MAX_RESOURCES_CHARS = 256 * 1024;
const KEPT_MS = 30 * 24 * 3_600_000;
/** Written again before it expires, and not each time the server is started. */
const RENEW_MS = KEPT_MS / 2;

export function pinKeeper(storage: Storage, telemetry: Telemetry): DefinitionPins {
  const keeper = new PinKeeper(storage.pins, {
    rules: async (app, server) => (await storage.applications.get(app))?.document.servers?.[server]?.pinRules ?? [],
    onHeld: ({ app, server, definitions }) => {
      // One line for a listing: a server may change thousands at once.
      const { kind, name, reason } = definitions[0] as (typeof definitions)[number];
      telemetry.log.warning("definitions of a server are pending review", {
        app,
        server,
        count: definitions.length,
        kind,
        name,
        reason,
      });
    },
  });
  return {
    async accept(app, server, mode, offered) {
      const shown = await keeper.accept(app, server, mode, offered);
      if (mode !== "off") await keepResources(storage.values, app, server, offered.resources);
      return shown;
    },
    async remembered(app, server, mode) {
      const catalogue = await keeper.remembered(app, server, mode);
      if (!catalogue) return undefined;
      const kept = await storage.values.get(placeOf(app), server);
      const resources = (kept?.value ?? []) as JsonObject[];
      return { catalogue: { ...catalogue, resources }, isComplete: kept !== undefined };
    },
  };
}

async function keepResources(
  values: Storage["values"],
  app: string,
  server: string,
  resources: readonly JsonObject[],
): Promise<void> {
  const text = JSON.stringify(resources);
  // Too many to keep: the server is started with its application.
  if (text.length > MAX_RESOURCES_CHARS) return void (await values.remove(placeOf(app), server));
  const kept = await values.get(placeOf(app), server);
  const isFresh = kept?.expiresAt !== undefined && kept.expiresAt - Date.now() > RENEW_MS;
  if (isFresh && JSON.stringify(kept.value) === text) return;
  await values.set(placeOf(app), server, [...resources], { ttlMs: KEPT_MS });
}

/** No application has a name like this. */
function placeOf(app: string): string {
  return `~resources/${app}`;
}
