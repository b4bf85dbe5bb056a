// The table of screens: where each is, which operations it uses, and so who sees it. A screen is shown to those who may use
// its first operation; what needs another operation is shown to those who may use that one.

import type { ComponentType } from "preact";
import type { OperationName } from "../../src/admin/routes.js";
import { Applications } from "./screens/applications.js";
import { Approvals } from "./screens/approvals.js";
import { Decisions } from "./screens/decisions.js";
import { Lattice } from "./screens/lattice.js";
import { Ledger } from "./screens/ledger.js";
import { Overview } from "./screens/overview.js";
import { Policy } from "./screens/policy.js";
import { Servers } from "./screens/servers.js";
import type { IconName } from "./ui/icon.js";

export interface Screen {
  readonly path: string;
  readonly title: string;
  readonly icon: IconName;
  readonly operations: readonly [OperationName, ...OperationName[]];
  readonly view: ComponentType;
}

export const SCREENS: readonly Screen[] = [
  {
    path: "overview",
    title: "Overview",
    icon: "overview",
    operations: ["getOverview"],
    view: Overview,
  },
  {
    path: "approvals",
    title: "Approvals",
    icon: "approvals",
    operations: [
      "listApprovals",
      "getApproval",
      "approve",
      "deny",
      "approveThese",
      "grantApproval",
      "listGrants",
      "revokeGrant",
    ],
    view: Approvals,
  },
  {
    path: "decisions",
    title: "Decisions",
    icon: "decisions",
    operations: ["listDecisions", "getHistogram", "explainDecision", "proveDecision", "getEvidence", "comparePolicies"],
    view: Decisions,
  },
  {
    path: "policy",
    title: "Policy",
    icon: "policy",
    operations: [
      "getPolicies",
      "checkPolicies",
      "tryCall",
      "comparePolicies",
      "activatePolicies",
      "listPolicyVersions",
      "getPolicyVersion",
      "suggestPolicy",
      "listDrafts",
      "putDraft",
      "removeDraft",
    ],
    view: Policy,
  },
  {
    path: "servers",
    title: "Servers",
    icon: "servers",
    operations: ["listServers", "getServer", "putServer", "removeServer", "acceptPin"],
    view: Servers,
  },
  {
    path: "applications",
    title: "Applications",
    icon: "applications",
    operations: [
      "listApplications",
      "getApplication",
      "listKeys",
      "createKey",
      "revokeKey",
      "listSecrets",
      "putSecret",
      "removeSecret",
    ],
    view: Applications,
  },
  {
    path: "lattice",
    title: "Lattice",
    icon: "lattice",
    operations: ["getWorkflow", "checkWorkflow", "listDelegations"],
    view: Lattice,
  },
  {
    path: "ledger",
    title: "Ledger",
    icon: "ledger",
    operations: ["listLedgers", "listRecords", "verifyLedger", "getVerification"],
    view: Ledger,
  },
];
