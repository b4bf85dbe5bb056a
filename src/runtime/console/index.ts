// The operations of the console on a running gateway, and what they keep in the store.

import {
  type AdminCaller,
  type AdminEvents,
  type AdminOptions,
  Answering,
  type OperationHandlers,
  type SessionStore,
} from "../../admin/index.js";
import type { JsonObject } from "../../mcp/index.js";
import type { Challenge } from "../../policy/index.js";
import type { Storage } from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";
import { serverOf } from "../recorded-requests.js";
import { decisionHandlers, decisionRow, matcherOf, pageOfDecisions } from "./decisions.js";
import { Grants } from "./grants.js";
import { ledgerHandlers } from "./ledgers.js";
import { startLive } from "./live.js";
import { overviewHandlers } from "./overview.js";
import { type ConsoleParts, KEPT, ledgersOf } from "./parts.js";
import { policyHandlers } from "./policies.js";
import { resourceHandlers } from "./resources.js";
import { workflowHandlers } from "./workflow.js";

export type { ConsoleParts } from "./parts.js";

type ServerRows = Parameters<typeof resourceHandlers>[1];
type Detail = NonNullable<AdminOptions["approvalDetail"]>;

const RECENT = 20;
const RECENT_MS = 10 * 60_000;
const RECENT_BYTES = 2 * 1024 * 1024;
const LAST_BYTES = 16 * 1024 * 1024;
const MAX_SESSIONS = 1_000;

export interface Console {
  readonly operations: OperationHandlers;
  readonly approvalDetail: Detail;
  readonly sessions: SessionStore;
  startEvents(events: AdminEvents): () => void;
  close(): void;
}

export function openConsole(parts: ConsoleParts, serverRows: ServerRows): Console {
  const grants = new Grants(parts);
  const answering = new Answering(parts.approvals, parts.ledger);
  let events: AdminEvents | undefined;
  const find = (id: string, by: AdminCaller): Promise<Challenge> => answering.show(id, by);
  const approve = (challenge: Challenge, reason: string, by: AdminCaller, traceId: string): Promise<Challenge> =>
    answering.answer(challenge.id, "approved", reason, traceId, by, challenge.intentId);
  const end = grants.start();
  return {
    operations: {
      ...overviewHandlers(parts),
      ...decisionHandlers(parts),
      ...policyHandlers(parts),
      ...resourceHandlers(parts, serverRows),
      ...workflowHandlers(parts),
      ...ledgerHandlers(parts, () => events),
      ...grants.handlers(find, approve, (topic) => events?.send({ type: "changed", topic, app: "", name: "" })),
    },
    approvalDetail: (challenge, by) => detailOf(parts, grants, challenge, by),
    sessions: sessionsIn(parts.storage),
    startEvents: (opened) => {
      events = opened;
      return startLive(parts, opened);
    },
    close: end,
  };
}

/** Sessions are few, so a list of them is one page. */
function sessionsIn({ values }: Pick<Storage, "values">): SessionStore {
  return {
    get: async (id) => (await values.get(KEPT.sessions, id))?.value as JsonObject | undefined,
    put: async (id, document, ttlMs) => void (await values.set(KEPT.sessions, id, document, { ttlMs })),
    remove: async (id) => void (await values.remove(KEPT.sessions, id)),
    list: async () => {
      const { items } = await values.list(KEPT.sessions, "", { limit: MAX_SESSIONS });
      return items.map(({ key, value }) => [key, value as JsonObject] as const);
    },
  };
}

/** What an approver needs to know of a request besides the request itself. */
async function detailOf(
  parts: ConsoleParts,
  grants: Grants,
  challenge: Challenge,
  by: AdminCaller,
): ReturnType<Detail> {
  const { app, agent, tool } = challenge;
  const served = await parts.applications.get(app);
  const definition = served?.endpoint.gateway.server.tools.get(tool)?.definition;
  const texts = new Map(served?.gate.policy.rules.map((rule) => [rule.id, rule]));
  const since = new Date(Date.now() - RECENT_MS).toISOString();
  const isRecent = matcherOf({ app, agent, from: since });
  const { rows } = await pageOfDecisions(ledgersOf(parts), isRecent, RECENT, undefined, RECENT_BYTES);
  const last = await lastApproved(parts, challenge);
  const { description, annotations } = definition ?? {};
  return {
    rules: challenge.rules.map((rule) => {
      const known = texts.get(rule.id);
      const { file = known?.file, line = known?.line } = rule;
      return {
        id: rule.id,
        ...(file === undefined ? {} : { file }),
        ...(line === undefined ? {} : { line }),
        ...(known === undefined ? {} : { text: known.text }),
      };
    }),
    server: visible(serverOf(challenge.binding)),
    ...(description === undefined ? {} : { description: visible(description).replaceAll("\\u000a", "\n") }),
    ...(annotations === undefined ? {} : { hints: annotations as unknown as JsonObject }),
    // An approver answers for one call: what else its agent does is shown without the arguments.
    recent: by.roles.every((role) => role === "approver") ? rows.map(({ arguments: _, ...row }) => row) : rows,
    grant: grants.bound(challenge),
    ...(last === undefined ? {} : { last_approved: last }),
  };
}

/** The last call of the same agent and tool that was approved under the same rules. */
async function lastApproved(parts: ConsoleParts, challenge: Challenge) {
  const rules = JSON.stringify(challenge.rules.map(({ id }) => id).sort());
  const actor = `${challenge.app}/${challenge.agent}`;
  const { readLastOfSeveral } = await import("../../ledger/index.js");
  const { records } = await readLastOfSeveral(ledgersOf(parts), 1, {
    maxBytes: LAST_BYTES,
    filter: (record) =>
      record.kind === "approval" &&
      record.verdict === "approved" &&
      record.detail?.actor === actor &&
      record.detail?.tool === challenge.tool &&
      JSON.stringify([...record.rules].sort()) === rules,
  });
  const found = records[0]?.record;
  if (found?.kind !== "approval") return undefined;
  const before = await parts.approvals.get(found.challenge);
  const isSame = before?.argumentsId === found.args_cid;
  const args = isSame ? before?.argumentsText : await keptArguments(parts, found.args_cid);
  return { at: found.ts, by: visible(found.approver), ...(args === undefined ? {} : { arguments: visible(args) }) };
}

async function keptArguments(parts: ConsoleParts, id: string): Promise<string | undefined> {
  const isWanted = (record: Parameters<typeof decisionRow>[1]): boolean =>
    record.args_cid === id && record.args !== undefined;
  const { records } = await pageOfDecisions(ledgersOf(parts), isWanted, 1, undefined, LAST_BYTES);
  return records[0]?.record.args;
}
