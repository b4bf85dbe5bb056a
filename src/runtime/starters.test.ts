import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DEMO_STARTER } from "./module.js";
import { COMMON_STARTER, isInForce, isUntouched, marked, updateStarter } from "./starters.js";

const starterFor = (tool: string) => ({
  name: "module.cedar",
  text: marked(`// Action::"comment"\npermit (principal, action in [Action::"${tool}", Action::"other"], resource);\n`),
});

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-starters-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));
const put = (name: string, text: string): void => writeFileSync(join(dir, name), text);
const read = (name: string): string => readFileSync(join(dir, name), "utf8");

describe("starter policies", () => {
  it("recognizes a starter policy that no one has changed, and no other text", () => {
    expect(isUntouched(DEMO_STARTER.text)).toBe(true);
    expect(isUntouched(DEMO_STARTER.text.replace("demo/*", "*"))).toBe(false);
    expect(isUntouched(`${DEMO_STARTER.text}permit (principal, action, resource);\n`)).toBe(false);
    expect(isUntouched("permit (principal, action, resource);\n")).toBe(false);
  });

  it("writes the starter of another server beside starters that no one has changed, and updates its own", () => {
    put(DEMO_STARTER.name, DEMO_STARTER.text);
    updateStarter(dir, starterFor("a"));
    expect(readdirSync(dir).sort()).toEqual(["demo.cedar", "module.cedar"]);
    updateStarter(dir, starterFor("b"));
    expect(read("module.cedar")).toBe(starterFor("b").text);
  });

  it("writes no starter where the operator changed it, has rules of their own, or has no file", () => {
    updateStarter(dir, starterFor("a"));
    expect(readdirSync(dir)).toEqual([]);
    put("mine.cedar", "forbid (principal, action, resource);\n");
    put(COMMON_STARTER.name, COMMON_STARTER.text);
    updateStarter(dir, starterFor("a"));
    expect(readdirSync(dir).sort()).toEqual(["common.cedar", "mine.cedar"]);
    put("module.cedar", `${starterFor("a").text}// mine now\n`);
    updateStarter(dir, starterFor("b"));
    expect(read("module.cedar")).toContain("// mine now");
  });

  it("leaves a starter of another server out of force, and never the rules of an operator", () => {
    const tools = [{ name: "a" }, { name: "other" }];
    const module = { file: "/x/module.cedar", text: starterFor("a").text };
    const demo = { file: "/x/demo.cedar", text: DEMO_STARTER.text };
    expect([module, demo].map((source) => isInForce(source, "module.cedar"))).toEqual([true, false]);
    expect([module, demo].map((source) => isInForce(source, tools))).toEqual([true, false]);
    expect(isInForce(demo, [])).toBe(true);
    expect(isInForce({ ...demo, text: `${demo.text}// changed\n` }, "module.cedar")).toBe(true);
  });
});
