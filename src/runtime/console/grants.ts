// Calls that an approver approves in advance: the same tool with the definition that was shown, under the same rules, with
// the same values of the arguments that were fixed, for a while. A call within a grant opens its approval request like
// every other one and is approved at once, on record and in the name of the one who granted it; policy decides it again.

import { createHash, randomBytes } from "node:crypto";
import type { AdminCaller, OperationHandlers, OperationResult } from "../../admin/index.js";
import { Fault, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { ApprovalRefused, type Challenge, canonicalize } from "../../policy/index.js";
import { visible } from "../../telemetry/index.js";
import { type ConsoleParts, iso, KEPT, notFound } from "./parts.js";

type GrantView = OperationResult<"listGrants">["grants"][number];

/** Ended grants are shown for a while. */
const SHOWN_MS = 24 * 3_600_000;
const MAX_GRANTS = 1_000;
const MAX_TRIES = 5;

interface KeptGrant {
  readonly app: string;
  readonly agent: string;
  readonly tool: string;
  readonly binding: string;
  readonly definition: string;
  readonly rules: readonly string[];
  readonly approvers: readonly string[];
  readonly fixed: Readonly<Record<string, JsonValue>>;
  readonly free: readonly string[];
  readonly forwarded: string;
  readonly until: number;
  readonly createdAt: number;
  readonly by: string;
  readonly groups: readonly string[];
  readonly caller?: string;
  readonly onlyApp?: string;
  readonly used: number;
  readonly revoked: boolean;
}

function viewOf(id: string, kept: KeptGrant, seesValues: boolean): GrantView {
  const { app, agent, tool, rules, fixed, free, until, by, createdAt, used, revoked } = kept;
  const shown = Object.fromEntries(
    Object.entries(fixed).map(([name, value]) => [visible(name), typeof value === "string" ? visible(value) : value]),
  );
  return {
    id,
    bound: {
      app,
      agent: visible(agent),
      tool: visible(tool),
      rules,
      fixed: seesValues ? shown : {},
      free: free.map(visible),
      until: iso(until),
    },
    by,
    created_at: iso(createdAt),
    used,
    state: revoked ? "revoked" : until <= Date.now() ? "expired" : "active",
  };
}

function sorted(texts: readonly string[]): string {
  return JSON.stringify([...texts].sort());
}

const rulesOf = (challenge: Challenge): string[] => challenge.rules.map(({ id }) => id);

function argumentsOf(challenge: Challenge): JsonObject {
  try {
    return JSON.parse(challenge.argumentsText) as JsonObject;
  } catch {
    return {};
  }
}

export class Grants {
  readonly #parts: ConsoleParts;

  constructor(parts: ConsoleParts) {
    this.#parts = parts;
  }

  /** Approves requests within a grant as they are opened in this process; returns what ends that. */
  start(): () => void {
    return this.#parts.approvals.onOpen((challenge) => {
      void this.#opened(challenge).catch((error: Error) =>
        this.#parts.telemetry.log.error("a grant could not be applied", {
          challenge: challenge.id,
          problem: error.message,
        }),
      );
    });
  }

  /** What a grant of this request would cover, with nothing but its own arguments. */
  bound(challenge: Challenge): OperationResult<"getApproval">["grant"] {
    const { app, agent, tool } = challenge;
    return {
      app,
      agent: visible(agent),
      tool: visible(tool),
      rules: rulesOf(challenge),
      fixed: argumentsOf(challenge) as GrantView["bound"]["fixed"],
      free: [],
      until: iso(Date.now() + 15 * 60_000),
    };
  }

  handlers(
    find: (id: string, by: AdminCaller) => Promise<Challenge>,
    approve: (challenge: Challenge, reason: string, by: AdminCaller, traceId: string) => Promise<unknown>,
    changed: (topic: "grant") => void,
  ): OperationHandlers {
    const { storage, ledger } = this.#parts;
    return {
      listGrants: async ({ app }, { by }) => {
        const grants = await this.#all();
        const theirs = grants.filter(
          ([, kept]) =>
            (app === undefined || kept.app === app) &&
            (by.app === undefined || by.app === kept.app) &&
            (by.roles.some((role) => role !== "approver") || answersFor(kept, by)),
        );
        const seesValues = by.roles.some((role) => role !== "viewer");
        return { grants: theirs.map(([id, kept]) => viewOf(id, kept, seesValues)) };
      },

      grantApproval: async ({ id, intent_id, minutes, fixed, reason = "" }, { by, traceId, actor }) => {
        const challenge = await find(id, by);
        if (challenge.intentId !== intent_id) {
          throw new Fault("InvalidRequest", `challenge ${id} is not the one that was shown; look at it again`);
        }
        const definition = await this.#definition(challenge);
        if (definition === undefined) throw notFound("the tool of this request is not there any more");
        const args = argumentsOf(challenge);
        const names = Object.keys(args);
        const unknown = fixed.find((name) => !names.some((each) => visible(each) === name || each === name));
        if (unknown !== undefined)
          throw new Fault("InvalidParams", "`fixed` names an argument that the call does not have");
        const isFixed = (name: string): boolean => fixed.includes(name) || fixed.includes(visible(name));
        const kept: KeptGrant = {
          app: challenge.app,
          agent: challenge.agent,
          tool: challenge.tool,
          binding: challenge.binding,
          definition,
          rules: rulesOf(challenge),
          approvers: challenge.approvers,
          fixed: Object.fromEntries(names.filter(isFixed).map((name) => [name, args[name] as JsonValue])),
          free: names.filter((name) => !isFixed(name)),
          forwarded: challenge.forwardedText,
          until: Date.now() + minutes * 60_000,
          createdAt: Date.now(),
          by: by.name,
          groups: by.groups,
          ...(by.caller === undefined ? {} : { caller: by.caller }),
          ...(by.app === undefined ? {} : { onlyApp: by.app }),
          used: 0,
          revoked: false,
        };
        // The call itself is approved first: who may not approve it may not grant further ones either.
        await approve(challenge, reason, by, traceId);
        const grant = `gr_${randomBytes(9).toString("base64url")}`;
        const { rules, approvers, free, until } = kept;
        const { app, agent, tool } = challenge;
        await ledger.append({
          kind: "admin",
          actor,
          action: "delegation.granted",
          detail: {
            grant,
            challenge: id,
            app,
            agent,
            tool,
            definition,
            rules,
            approvers,
            fixed: Object.keys(kept.fixed),
            free,
            until: iso(until),
          },
        });
        await storage.values.set(KEPT.grants, grant, kept as unknown as JsonValue, {
          ttlMs: minutes * 60_000 + SHOWN_MS,
        });
        changed("grant");
        return viewOf(grant, kept, true);
      },

      revokeGrant: async ({ id }, { by, actor }) => {
        for (let tries = 0; tries < MAX_TRIES; tries++) {
          const found = await storage.values.get(KEPT.grants, id);
          const kept = found?.value as unknown as KeptGrant | undefined;
          const isTheirs = kept && (by.app === undefined || by.app === kept.app) && answersFor(kept, by);
          if (!found || !kept || !isTheirs) throw notFound("there is no such grant");
          const revoked: KeptGrant = { ...kept, revoked: true };
          const put = await storage.values.set(KEPT.grants, id, revoked as unknown as JsonValue, {
            version: found.version,
            ttlMs: SHOWN_MS,
          });
          if (!put) continue;
          await ledger.append({ kind: "admin", actor, action: "delegation.revoked", detail: { grant: id } });
          changed("grant");
          return viewOf(id, revoked, true);
        }
        throw new Fault("Unavailable", "the grant is being used; try again");
      },
    };
  }

  async #all(): Promise<[string, KeptGrant][]> {
    const { items } = await this.#parts.storage.values.list(KEPT.grants, "", { limit: MAX_GRANTS });
    const all = items.map(({ key, value }): [string, KeptGrant] => [key, value as unknown as KeptGrant]);
    return all.sort(([, a], [, b]) => b.createdAt - a.createdAt);
  }

  async #opened(challenge: Challenge): Promise<void> {
    const fitting = (await this.#all()).filter(([, kept]) => fits(kept, challenge));
    if (fitting.length === 0) return;
    const definition = await this.#definition(challenge);
    const [id, kept] = fitting.find(([, each]) => each.definition === definition) ?? [];
    if (id === undefined || kept === undefined || !(await this.#use(id))) return;
    const { ledger, approvals } = this.#parts;
    const { app, agent, tool, argumentsId, rules, policyHash } = challenge;
    // INVARIANT: durable before it takes effect, as for an answer of an approver.
    await ledger.append({
      kind: "approval",
      challenge: challenge.id,
      approver: kept.by,
      verdict: "approved",
      reason: `within grant ${id}`,
      args_cid: argumentsId,
      rules: rules.map((rule) => rule.id),
      policy: policyHash,
      detail: { actor: `${app}/${agent}`, tool, grant: id },
    });
    try {
      const { by: name, groups, caller, onlyApp } = kept;
      await approvals.approve(challenge.id, {
        name,
        groups,
        ...(caller === undefined ? {} : { caller }),
        ...(onlyApp === undefined ? {} : { app: onlyApp }),
      });
    } catch (error) {
      if (!(error instanceof ApprovalRefused)) throw error;
      const detail = { challenge: challenge.id, verdict: "approved", reason: error.message, grant: id };
      await ledger.append({ kind: "admin", actor: `admin:${kept.by}`, action: "approval.void", detail });
    }
  }

  /** Counts the use; false when the grant has ended. */
  async #use(id: string): Promise<boolean> {
    const { values } = this.#parts.storage;
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const found = await values.get(KEPT.grants, id);
      const kept = found?.value as unknown as KeptGrant | undefined;
      if (!found || !kept || kept.revoked || kept.until <= Date.now()) return false;
      const next = { ...kept, used: kept.used + 1 } as unknown as JsonValue;
      const ttlMs = kept.until - Date.now() + SHOWN_MS;
      if (await values.set(KEPT.grants, id, next, { version: found.version, ttlMs })) return true;
    }
    return false;
  }

  async #definition({ app, tool }: Challenge): Promise<string | undefined> {
    const served = await this.#parts.applications.get(app);
    const definition = served?.endpoint.gateway.server.tools.get(tool)?.definition;
    return (
      definition &&
      createHash("sha256")
        .update(canonicalize(definition as unknown as JsonValue))
        .digest("hex")
    );
  }
}

function answersFor({ approvers }: KeptGrant, { groups }: AdminCaller): boolean {
  return approvers.length === 0 || approvers.some((group) => groups.includes(group));
}

function fits(kept: KeptGrant, challenge: Challenge): boolean {
  if (kept.revoked || kept.until <= Date.now() || challenge.method !== "tools/call") return false;
  const { app, agent, tool, binding, holder } = challenge;
  const isSame = kept.app === app && kept.agent === agent && kept.tool === tool && kept.binding === binding;
  if (!isSame || holder !== undefined || kept.forwarded !== challenge.forwardedText) return false;
  if (sorted(kept.rules) !== sorted(rulesOf(challenge)) || sorted(kept.approvers) !== sorted(challenge.approvers))
    return false;
  const args = argumentsOf(challenge);
  const known = new Set([...Object.keys(kept.fixed), ...kept.free]);
  if (Object.keys(args).some((name) => !known.has(name))) return false;
  return Object.entries(kept.fixed).every(
    ([name, value]) => Object.hasOwn(args, name) && canonicalize(args[name] as JsonValue) === canonicalize(value),
  );
}
