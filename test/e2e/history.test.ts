// Rules over past calls in a gateway that is killed: what it decided is on record before anything runs, so the next one
// decides as if nothing had happened.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { portcullis, root, type Serving, serve } from "./serving.js";

let home: string;
let serving: Serving | undefined;
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "portcullis-history-"));
});
afterAll(async () => {
  await serving?.stop();
  rmSync(home, { recursive: true, force: true });
});

const POLICY = `
permit (principal, action, resource);

@id("read-first") @reason("read the mail before you send one")
forbid (principal, action == Action::"send", resource)
unless temporal { formerly within 1h Action::"look"::permitted{ principal: principal } };

@id("two-each") @reason("at most two mails an hour to one address")
forbid (principal, action == Action::"send", resource)
when temporal { count_within(1h, Action::"send"::permitted{ principal: principal, arguments.to: context.arguments.to }) >= 2 };
`;

const MODULE = `
import { createServer } from ${JSON.stringify(pathToFileURL(join(root, "dist", "server.js")).href)};
const open = { noGuardrailRequired: true };
export default createServer("own", { policy: ${JSON.stringify(POLICY)} })
  .tool("look", "looks", { type: "object" }, () => "looked", { ...open, annotations: { readOnlyHint: true } })
  .tool("send", "sends", { type: "object", properties: { to: { type: "string" } }, required: ["to"] }, () => "sent", open);
`;

it("a gateway that is killed decides by the calls before it: at most two to one address, and none before reading", async () => {
  const file = join(home, "module.mjs");
  const dir = join(home, "data");
  writeFileSync(file, MODULE);
  serving = await serve([file], { dir });
  const call = (tool: string, args: object) =>
    portcullis(["call", tool, JSON.stringify(args), "--url", (serving as Serving).url]);
  const early = call("send", { to: "ann" });
  expect(early).toMatchObject({ code: 2, stderr: expect.stringContaining("read the mail before you send one") });
  expect(call("look", {})).toMatchObject({ code: 0 });
  expect(call("send", { to: "ann" })).toMatchObject({ code: 0 });

  const killed = new Promise((resolve) => serving?.child.once("exit", resolve));
  serving.child.kill("SIGKILL");
  await killed;
  serving = await serve([file], { dir });
  expect(call("send", { to: "ann" })).toMatchObject({ code: 0 });
  const third = call("send", { to: "ann" });
  expect(third).toMatchObject({ code: 2, stderr: expect.stringContaining("at most two mails an hour to one address") });
  expect(call("send", { to: "bob" })).toMatchObject({ code: 0 });
});
