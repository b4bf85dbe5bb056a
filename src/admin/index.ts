export { readOperatorToken, rotateOperatorToken } from "./operator-token.js";
export {
  combineReports,
  type ComponentChecks,
  type ComponentState,
  type ProcessReport,
  type ReportPart,
} from "./reports.js";
export type { HaltControl } from "./halts.js";
export type { Registrar, Registrations } from "./registrations.js";
export { type AdminLimits, type AdminListener, type AdminOptions, startAdmin } from "./server.js";
export { startWebhook, type Webhook, type WebhookOptions } from "./webhook.js";
