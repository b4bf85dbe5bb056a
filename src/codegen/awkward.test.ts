import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { generateCode } from "../cli/generate.js";
import { AWKWARD, awkwardManifest } from "./fixtures/awkward.js";
import { compileTypeScript, writeFiles } from "./fixtures/compile.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-awkward-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

type Methods = Record<string, (args: object) => Promise<unknown>>;
type Handlers = Record<string, (args: object, context: unknown) => Promise<unknown>>;

describe("tools and arguments whose names are words of a language", () => {
  let problems: string;
  beforeAll(() => {
    writeFiles(dir, generateCode("ts", awkwardManifest()).files);
    problems = compileTypeScript(dir, true);
  });
  const load = async <T>(file: string): Promise<T> => (await import(pathToFileURL(join(dir, file)).href)) as T;

  it("compile as strict TypeScript", () => {
    expect(problems).toBe("");
    expect(AWKWARD.length).toBeGreaterThan(300);
  });

  it("tools and arguments whose names are words of a language are each sent by a method of their own, under their own name", async () => {
    const sent: [string, object][] = [];
    const { AwkwardCaller } = await load<{ AwkwardCaller: new (caller: object) => Methods }>("caller.js");
    const caller = new AwkwardCaller({
      callTool: async (name: string, args: object) => {
        sent.push([name, args]);
        return { structuredContent: {} };
      },
    });
    const text = readFileSync(join(dir, "caller.ts"), "utf8");
    const methods = [...text.matchAll(/^ {2}async (\w+)\(args: .*\n.*this\[CALL\]\(("(?:[^"\\]|\\.)*")/gm)].map(
      ([, method, tool]) => [method as string, JSON.parse(tool as string) as string] as const,
    );
    expect(new Set(methods.map(([, tool]) => tool))).toEqual(new Set([...AWKWARD, "all of them", "one of them"]));
    for (const [method, tool] of methods) {
      if (!AWKWARD.includes(tool)) continue;
      const args = Object.fromEntries([[tool, "x"]]);
      await caller[method]?.(args);
      expect(sent.pop()).toEqual([tool, args]);
    }
    expect(sent).toEqual([]);
  });

  it("tools and arguments whose names are words of a language are each handled by a method of their own", async () => {
    const { handlers } = await load<{ handlers: Handlers }>("handlers.js");
    const { dispatch } = await load<{ dispatch: (...args: unknown[]) => Promise<unknown> }>("server.js");
    for (const tool of AWKWARD) {
      const answer = dispatch(handlers, tool, Object.fromEntries([[tool, "x"]]), undefined);
      await expect(answer).rejects.toThrow(`${tool} is not implemented`);
    }
    for (const tool of ["hasOwn", "__proto__ ", "NEW", "new2"]) {
      await expect(dispatch(handlers, tool, {}, undefined)).rejects.toThrow("there is no tool");
    }
  });

  it("tools and arguments whose names are words of a language never run because code awaits, prints or compares what has them", async () => {
    const { AwkwardCaller } = await load<{ AwkwardCaller: new (caller: object) => Methods }>("caller.js");
    const { handlers } = await load<{ handlers: Handlers }>("handlers.js");
    const caller = new AwkwardCaller({
      callTool: () => {
        throw new Error("a tool ran");
      },
    });
    for (const each of [caller, handlers]) {
      expect((await each) === each).toBe(true);
      expect(String(each)).toBe("[object Object]");
      expect(each.toLocaleString()).toBe("[object Object]");
      expect(JSON.stringify(each)).toBe("{}");
      expect(each.then).toBeUndefined();
      for (const key of Object.getOwnPropertyNames(Object.prototype)) {
        if (key === "constructor" || key === "__proto__") continue;
        expect((each as Record<string, unknown>)[key], key).toBe((Object.prototype as Record<string, unknown>)[key]);
      }
    }
    expect(Object.getPrototypeOf(handlers)).toBe(Object.prototype);
  });

  it("tools and arguments whose names are words of a language need a name", () => {
    expect(() => generateCode("ts", { tools: [{ name: "" }] })).toThrow("has no name");
  });
});
