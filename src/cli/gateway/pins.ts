import type { PinKeeper } from "../../gateway/index.js";
import type { Pins } from "../../storage/index.js";
import type { Telemetry } from "../../telemetry/index.js";

/** To come with the upstream room's pins. */
export function pinKeeper(_pins: Pins, _telemetry: Telemetry): PinKeeper {
  return { accept: async (_app, _server, _mode, offered) => offered, remembered: async () => undefined };
}
