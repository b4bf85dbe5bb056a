// Servers are held to what they said when they were accepted; what is held back is in the log.

import type { PinKeeper as GatewayPins } from "../../gateway/index.js";
import type { Storage } from "../../storage/index.js";
import type { Telemetry } from "../../telemetry/index.js";
import { PinKeeper } from "../../upstream/index.js";

export function pinKeeper(storage: Storage, telemetry: Telemetry): GatewayPins {
  return new PinKeeper(storage.pins, {
    rules: async (app, server) => (await storage.applications.get(app))?.document.servers?.[server]?.pinRules ?? [],
    onHeld: ({ app, server, kind, name, reason }) =>
      telemetry.log.warning("a definition of a server is held back", { app, server, kind, name, reason }),
  });
}
