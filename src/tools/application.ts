// What the core tools know: one application's own settings as data, and a few services that were bound to this
// application before they came here. Nothing in this room takes an application's name and looks something up by it.

import type { Sandbox } from "../host/index.js";
import type { JsonObject } from "../mcp/index.js";
import type { Logger, Telemetry } from "../telemetry/index.js";
import type { UsageRecord } from "./llm/settings.js";
import type { StateSettings } from "./state/settings.js";
import type { StoredHistory } from "./state/stored-history.js";
import type { RuntimeValues } from "./state/values.js";

/** A part that is left out has no tools. */
export interface CoreApplication {
  readonly id: string;
  /** What `core.framework.getConfigValue` reads. No secrets: a caller sees all of it. */
  readonly config?: JsonObject | undefined;
  readonly state?: StateSettings | undefined;
  /** The provider of `core.llm.generate`; see `LlmSettings`. */
  readonly llm?: JsonObject | undefined;
  /** Commands and their limits, in the words of `policy.yaml`. They run with the folders of `filesystem`. */
  readonly linux?: JsonObject | undefined;
  /** Folders, in the words of `policy.yaml`. */
  readonly filesystem?: JsonObject | undefined;
}

/** Everything here is this application's own. */
export interface CoreServices {
  /** The operator's log. */
  readonly log: Pick<Logger, "log">;
  /** The span of a call of this application: `telemetry.note`. */
  readonly note?: Telemetry["note"];
  readonly values?: RuntimeValues;
  /** Of the definition files; `state` needs it. */
  readonly history?: StoredHistory;
  /** The one way out to the network: `createOutbound(dialer).fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** Puts this application's secrets where a text says `${secret:NAME}`. */
  readonly resolve?: (text: string) => Promise<string> | string;
  /** Told after every answer of a model. */
  readonly usage?: (record: UsageRecord) => void;
  /** One for each application, so that none waits in another's queue. Closed by whoever made it. */
  readonly sandbox?: Sandbox;
  /** Keys, ledger, store, state of every application: no folder of the application may reach them. */
  readonly protectedPaths?: readonly string[];
}

/** Settings that cannot be used; found when an application is loaded, never in a call. */
export class CoreSettingsError extends Error {
  readonly code = "INVALID_SETTINGS";
  constructor(application: string, problem: string) {
    super(`application \`${application}\`: ${problem}`);
    this.name = "CoreSettingsError";
  }
}
