// What a server says about itself.

import { isJsonObject, type JsonObject, META } from "../index.js";

/** What a server says about itself. `serverInfo` is its own word and decides nothing here. */
export interface Discovery {
  supportedVersions: string[];
  capabilities: JsonObject;
  serverInfo?: JsonObject;
  instructions?: string;
  /** The whole answer, with fields nobody here knows. */
  result: JsonObject;
}

export function readDiscovery(result: JsonObject): Discovery | undefined {
  if (!Array.isArray(result.supportedVersions)) return undefined;
  const meta = isJsonObject(result._meta) ? result._meta[META.serverInfo] : undefined;
  const info = isJsonObject(meta) ? meta : result.serverInfo;
  return {
    supportedVersions: result.supportedVersions.filter((version) => typeof version === "string"),
    capabilities: isJsonObject(result.capabilities) ? result.capabilities : {},
    ...(isJsonObject(info) ? { serverInfo: info } : {}),
    ...(typeof result.instructions === "string" ? { instructions: result.instructions } : {}),
    result,
  };
}
