import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import type { ToolSummary } from "../policy/index.js";
import { PolicyCache } from "./policies.js";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const tools = (version: number): ToolSummary[] =>
  Array.from({ length: 200 }, (_, i) => ({
    name: `tool${i}`,
    server: "up",
    inputSchema: { type: "object", properties: { [`of${version}`]: { type: "string" } } },
  }));

function book(): PolicyCache {
  const policies = new PolicyCache();
  policies.setCommon([{ file: "all.cedar", text: "permit (principal, action, resource);" }]);
  return policies;
}

it("shares one set between applications with the same rules and tools", async () => {
  const policies = book();
  const first = await policies.load({}, tools(1));
  expect(await policies.load({}, tools(1))).toBe(first);
  expect(await policies.load({}, tools(2))).not.toBe(first);
});

it("keeps no set that is in force nowhere, however often a server changes its tools", async () => {
  const policies = book();
  const replaced: WeakRef<object>[] = [];
  for (let version = 0; version < 20; version++) replaced.push(new WeakRef(await policies.load({}, tools(version))));
  // A weak reference holds until the turn in which it was made is over.
  await turn();
  collect();
  expect(replaced.filter((set) => set.deref() !== undefined).length).toBeLessThanOrEqual(1);
});
