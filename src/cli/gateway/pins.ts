// Servers are held to what they said when they were accepted; what is held back is in the log.

import type { PinKeeper as GatewayPins } from "../../gateway/index.js";
import type { Storage } from "../../storage/index.js";
import type { Telemetry } from "../../telemetry/index.js";
import { PinKeeper } from "../../upstream/index.js";

export function pinKeeper(storage: Storage, telemetry: Telemetry): GatewayPins {
  return new PinKeeper(storage.pins, {
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
}
