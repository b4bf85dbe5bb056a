export type { HaltControl } from "./halts.js";
export { readOperatorToken, rotateOperatorToken } from "./operator-token.js";
export type { Registrar, Registrations } from "./registrations.js";
export {
  type ComponentChecks,
  type ComponentState,
  combineReports,
  type ProcessReport,
  type ReportPart,
} from "./reports.js";
export { type AdminLimits, type AdminListener, type AdminOptions, startAdmin } from "./server.js";
export { startWebhook, type Webhook, type WebhookOptions } from "./webhook.js";
