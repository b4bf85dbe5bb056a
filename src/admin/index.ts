export { visible } from "../telemetry/index.js";
export { ensureOperatorToken, OperatorTokenError, readOperatorToken } from "./operator-token.js";
export { type AdminLimits, type AdminListener, type AdminOptions, startAdmin } from "./server.js";
