export type { OperationExchange, OperationHandlers } from "./api.js";
export { Answering } from "./approvals.js";
export type { AdminCaller } from "./caller.js";
export type { AdminEvents } from "./events.js";
export type { HaltControl } from "./halts.js";
export type {
  AdminEvent,
  DecisionRow,
  ExplanationView,
  OperationInput,
  OperationResult,
  RecordRow,
  VerificationView,
} from "./operations.js";
export { readOperatorToken, rotateOperatorToken } from "./operator-token.js";
export type { Registrar, Registrations } from "./registrations.js";
export {
  type ComponentChecks,
  type ComponentState,
  combineReports,
  type ProcessReport,
  type ReportPart,
} from "./reports.js";
export { type AdminCredential, type AdminLimits, type AdminListener, type AdminOptions, startAdmin } from "./server.js";
export type { SessionStore } from "./sessions.js";
export { startWebhook, type Webhook, type WebhookOptions } from "./webhook.js";
