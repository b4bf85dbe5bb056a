// The gate's approvals on a store that two replicas share.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CallTarget, makeIntent, type Principal, StoredApprovals } from "../policy/index.js";
import { openStorage } from "./open.js";
import type { Storage } from "./types.js";

const alice: Principal = { app: "blog", agent: "alice", scope: [], via: "test" };
const target = { name: "t", binding: "b", definitionHash: "h" } as CallTarget;
const olga = { name: "olga", groups: ["operators"] };

function request(text: string, rule = "r1") {
  const args = { text };
  const intent = makeIntent({ principal: alice, method: "tools/call", target, arguments: args, forwarded: {} });
  const told = { rules: [{ id: rule }], approvers: ["operators"], reason: "risky", policyHash: "p" };
  return { principal: alice, method: "tools/call", target, intent, ...told };
}

describe("an approval that replicas share", () => {
  const directory = mkdtempSync(join(tmpdir(), "portcullis-approvals-"));
  let stores: Storage[];
  let here: StoredApprovals;
  let there: StoredApprovals;
  beforeAll(async () => {
    stores = [await openStorage(`sqlite:${directory}/s.db`), await openStorage(`sqlite:${directory}/s.db`)];
    [here, there] = stores.map(({ challenges }) => new StoredApprovals(challenges)) as [
      StoredApprovals,
      StoredApprovals,
    ];
  });
  afterAll(async () => {
    for (const store of stores) await store.close();
    rmSync(directory, { recursive: true, force: true });
  });

  it("an approval that replicas share is asked for on one, given on another, and redeemed once on any", async () => {
    const { challenge } = await here.open(request("a"));
    expect(await there.open(request("a"))).toEqual({ challenge, isNew: false });
    expect((await there.open(request("a", "r2"))).isNew).toBe(true);
    expect((await there.list()).map(({ id }) => id)).toContain(challenge.id);
    const approved = await there.approve(challenge.id, olga);
    expect(approved).toEqual({ ...challenge, state: "approved", decidedBy: "olga" });
    await expect(here.deny(challenge.id, olga, "late")).rejects.toThrow("already approved");
    const tries = await Promise.all(Array.from({ length: 30 }, (_, i) => (i % 2 ? here : there).redeem(challenge.id)));
    expect(tries.filter(Boolean)).toHaveLength(1);
    expect((await here.open(request("a"))).isNew).toBe(true);
  });

  it("wakes a caller that waits in another process within a second", async () => {
    const { challenge } = await here.open(request("b"));
    const waiting = here.settled(challenge.id, 10_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await there.deny(challenge.id, olga, "not on a Sunday");
    expect(await waiting).toBe("denied");
    expect(await here.get(challenge.id)).toMatchObject({ state: "denied", denyReason: "not on a Sunday" });
  });

  it("an approval that replicas share is never the asker's own to give", async () => {
    const { challenge } = await here.open(request("c"));
    await expect(there.approve(challenge.id, { ...olga, caller: "blog/alice" })).rejects.toThrow("cannot approve it");
    expect((await here.get(challenge.id))?.state).toBe("pending");
  });
});
