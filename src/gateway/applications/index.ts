export { Applications, type ApplicationsOptions } from "./applications.js";
export { deferredUpstream, type ObserveRequest } from "./deferred.js";
export { matcher } from "./patterns.js";
export { Lobby, type LobbyOptions } from "./lobby.js";
export { PolicyBook } from "./policies.js";
export { storedSessions } from "./session-store.js";
export { sharedLimits } from "./shared-limits.js";
export type { CoreTools, HouseServices, InProcessApplication, PinKeeper, PinMode } from "./types.js";
