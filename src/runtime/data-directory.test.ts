// Several gateways on one data directory: a name that stays, a ledger each, and admin ports that can be found.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { announceAdmin, knownAdmins } from "./admin-client.js";
import { replicaName } from "./data-directory.js";
import { openFreeLedger } from "./ledger.js";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-directory-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe("a data directory", () => {
  it("keeps the name that was chosen first, whatever the store is later", () => {
    const name = replicaName(dir, true);
    expect(name).toMatch(/-[0-9a-f]{8}$/);
    expect(replicaName(dir, true)).toBe(name);
    expect(replicaName(dir, false)).toBe(name);
  });

  it("keeps the name of a ledger from before names were stored", () => {
    mkdirSync(join(dir, "ledger"));
    expect(replicaName(dir, true)).toBe("gateway");
  });

  it("gives each gateway its own ledger, and the first one again when it is free", async () => {
    const open = () => openFreeLedger(dir, (nth) => `example.com/gateway-${nth}`, {});
    const first = await open();
    const second = await open();
    expect([first.nth, second.nth]).toEqual([1, 2]);
    expect([first.ledger.dir, second.ledger.dir]).toEqual([join(dir, "ledger"), join(dir, "ledgers", "2")]);
    await first.ledger.close();
    const third = await open();
    expect(third.nth).toBe(1);
    await second.ledger.close();
    await third.ledger.close();
  });

  it("lists the admin ports of running gateways only, the newest first", () => {
    expect(knownAdmins(dir)).toEqual([]);
    const end = announceAdmin(dir, "http://0.0.0.0:1234");
    const { pid } = spawnSync(process.execPath, ["-e", ""]);
    writeFileSync(join(dir, "admin", String(pid)), "http://127.0.0.1:6666");
    writeFileSync(join(dir, "admin", String(process.ppid)), "http://127.0.0.1:1111");
    utimesSync(join(dir, "admin", String(process.ppid)), 1, 1);
    expect(knownAdmins(dir)).toEqual(["http://127.0.0.1:1234", "http://127.0.0.1:1111"]);
    end();
    expect(knownAdmins(dir)).toEqual(["http://127.0.0.1:1111"]);
  });
});
