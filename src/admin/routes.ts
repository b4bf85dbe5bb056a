// The table of operations of the admin API: where each is, who may use it and what it shows. It imports nothing, so that
// the console can bundle it; `operations.ts` has what each operation takes and returns.

/**
 * `viewer` reads everything but arguments, `auditor` reads arguments too and verifies ledgers, `approver` answers the
 * requests of its groups, `operator` may do everything.
 */
export type Role = "viewer" | "auditor" | "approver" | "operator";

export interface OperationRoute {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Names in braces are fields of the input; the others are the query of GET and DELETE, and the body otherwise. */
  readonly path: string;
  /** Who may use it; `anyone` needs no credential. */
  readonly roles: readonly Role[] | "anyone";
  /** The answer has arguments of calls; a viewer gets it without them. */
  readonly showsArguments?: true;
  /** It changes something: it is recorded in the ledger with who did it. */
  readonly writes?: true;
  /** It shows or changes what is of no single application: not for a credential of one application. */
  readonly wholeGateway?: true;
}

const READERS = ["viewer", "auditor", "operator"] as const;
const ALL = ["viewer", "auditor", "approver", "operator"] as const;
const APPROVERS = ["approver", "operator"] as const;
const OPERATOR = ["operator"] as const;
const AUDITORS = ["auditor", "operator"] as const;

export const ROUTES = {
  // Sign-in
  signIn: { method: "POST", path: "/v1/sign-in", roles: "anyone" },
  getSession: { method: "GET", path: "/v1/session", roles: ALL },
  signOut: { method: "POST", path: "/v1/sign-out", roles: ALL },
  createSignInLink: { method: "POST", path: "/v1/sign-in-links", roles: OPERATOR },

  // What waits and what happens
  getOverview: { method: "GET", path: "/v1/overview", roles: READERS },
  /** Server-sent events; see `AdminEvent`. */
  followEvents: { method: "GET", path: "/v1/events", roles: ALL },

  // Approvals
  listApprovals: { method: "GET", path: "/v1/approvals", roles: ALL, showsArguments: true },
  getApproval: { method: "GET", path: "/v1/approvals/{id}", roles: ALL, showsArguments: true },
  approve: {
    method: "POST",
    path: "/v1/approvals/{id}/approve",
    roles: APPROVERS,
    showsArguments: true,
    writes: true,
  },
  deny: { method: "POST", path: "/v1/approvals/{id}/deny", roles: APPROVERS, showsArguments: true, writes: true },
  /** Approves exactly the requests that are named, each by the intent that was shown. */
  approveThese: { method: "POST", path: "/v1/approvals", roles: APPROVERS, writes: true },
  /** Approves the request, and further ones like it for a while. */
  grantApproval: { method: "POST", path: "/v1/approvals/{id}/grant", roles: APPROVERS, writes: true },
  listGrants: { method: "GET", path: "/v1/grants", roles: ALL, showsArguments: true },
  revokeGrant: { method: "DELETE", path: "/v1/grants/{id}", roles: APPROVERS, writes: true },

  // Decisions
  listDecisions: { method: "GET", path: "/v1/decisions", roles: READERS, showsArguments: true },
  getHistogram: { method: "GET", path: "/v1/histogram", roles: READERS },
  explainDecision: { method: "GET", path: "/v1/decisions/{id}", roles: READERS, showsArguments: true },
  proveDecision: { method: "GET", path: "/v1/decisions/{id}/proof", roles: AUDITORS, showsArguments: true },
  getEvidence: { method: "GET", path: "/v1/decisions/{id}/evidence", roles: AUDITORS, showsArguments: true },

  // Policies
  getPolicies: { method: "GET", path: "/v1/policies", roles: READERS },
  checkPolicies: { method: "POST", path: "/v1/policies/check", roles: OPERATOR },
  tryCall: { method: "POST", path: "/v1/policies/try", roles: OPERATOR, showsArguments: true },
  comparePolicies: { method: "POST", path: "/v1/policies/compare", roles: OPERATOR, showsArguments: true },
  activatePolicies: { method: "POST", path: "/v1/policies/activate", roles: OPERATOR, writes: true },
  listPolicyVersions: { method: "GET", path: "/v1/policies/versions", roles: READERS },
  getPolicyVersion: { method: "GET", path: "/v1/policies/versions/{hash}", roles: READERS },
  suggestPolicy: { method: "GET", path: "/v1/policies/suggestion", roles: OPERATOR },
  listDrafts: { method: "GET", path: "/v1/drafts", roles: READERS },
  putDraft: { method: "PUT", path: "/v1/drafts/{name}", roles: OPERATOR, writes: true },
  removeDraft: { method: "DELETE", path: "/v1/drafts/{name}", roles: OPERATOR, writes: true },

  // Applications, servers, pins, keys, secrets
  listApplications: { method: "GET", path: "/v1/applications", roles: READERS },
  getApplication: { method: "GET", path: "/v1/applications/{app}", roles: READERS },
  listServers: { method: "GET", path: "/v1/servers", roles: READERS },
  getServer: { method: "GET", path: "/v1/applications/{app}/servers/{server}", roles: READERS },
  putServer: { method: "PUT", path: "/v1/applications/{app}/servers/{server}", roles: OPERATOR, writes: true },
  removeServer: { method: "DELETE", path: "/v1/applications/{app}/servers/{server}", roles: OPERATOR, writes: true },
  acceptPin: {
    method: "POST",
    path: "/v1/applications/{app}/servers/{server}/pins",
    roles: OPERATOR,
    writes: true,
  },
  listKeys: { method: "GET", path: "/v1/keys", roles: READERS },
  createKey: { method: "POST", path: "/v1/keys", roles: OPERATOR, writes: true },
  revokeKey: { method: "DELETE", path: "/v1/keys/{id}", roles: OPERATOR, writes: true },
  listSecrets: { method: "GET", path: "/v1/applications/{app}/secrets", roles: READERS },
  putSecret: { method: "PUT", path: "/v1/applications/{app}/secrets/{name}", roles: OPERATOR, writes: true },
  removeSecret: { method: "DELETE", path: "/v1/applications/{app}/secrets/{name}", roles: OPERATOR, writes: true },

  // Emergency stop
  listHalts: { method: "GET", path: "/v1/halts", roles: READERS, wholeGateway: true },
  halt: { method: "POST", path: "/v1/halts", roles: OPERATOR, writes: true },
  resume: { method: "DELETE", path: "/v1/halts", roles: OPERATOR, writes: true },

  // Workflow
  getWorkflow: { method: "GET", path: "/v1/workflow", roles: READERS, wholeGateway: true },
  checkWorkflow: { method: "POST", path: "/v1/workflow/check", roles: OPERATOR },
  listDelegations: { method: "GET", path: "/v1/delegations", roles: READERS, wholeGateway: true },

  // Ledgers
  listLedgers: { method: "GET", path: "/v1/ledgers", roles: READERS, wholeGateway: true },
  listRecords: {
    method: "GET",
    path: "/v1/ledgers/{ledger}/records",
    roles: READERS,
    showsArguments: true,
    wholeGateway: true,
  },
  /** Starts a verification; its progress is an event, and the answer of `getVerification`. */
  verifyLedger: {
    method: "POST",
    path: "/v1/ledgers/{ledger}/verifications",
    roles: AUDITORS,
    writes: true,
    wholeGateway: true,
  },
  getVerification: { method: "GET", path: "/v1/verifications/{id}", roles: AUDITORS, wholeGateway: true },

  getOpenApi: { method: "GET", path: "/v1/openapi.json", roles: ALL },
} as const satisfies Record<string, OperationRoute>;

export type OperationName = keyof typeof ROUTES;
