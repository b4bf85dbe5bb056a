export { Applications, type ApplicationsOptions } from "./applications.js";
export { House, matcher } from "./house.js";
export { Lobby, type LobbyOptions } from "./lobby.js";
export { PolicyBook } from "./policies.js";
export type { HouseServices, PinKeeper, PinMode } from "./types.js";
