import { existsSync, readdirSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, relative, resolve, sep } from "node:path";
import { describe, expect, it } from "vitest";

// The import map: which room may enter which. A room is entered by its index.ts; pure rooms do no I/O.
const ROOMS: Readonly<Record<string, { pure?: true; mayEnter: readonly string[] }>> = {
  protocol: { pure: true, mayEnter: [] },
  lib: { mayEnter: [] },
  lattice: { pure: true, mayEnter: ["protocol"] },
  codegen: { pure: true, mayEnter: ["protocol", "lattice"] },
  transport: { mayEnter: ["protocol"] },
  gate: { mayEnter: ["protocol"] },
  tool: { mayEnter: ["protocol"] },
  ledger: { mayEnter: ["protocol", "lib"] },
  telemetry: { mayEnter: ["protocol"] },
  storage: { mayEnter: ["protocol"] },
  oauth: { mayEnter: ["protocol"] },
  identity: { mayEnter: ["protocol", "transport", "gate", "storage", "oauth"] },
  host: { mayEnter: ["protocol", "gate", "tool", "lib"] },
  core: { mayEnter: ["protocol", "gate", "tool", "host", "storage", "upstream", "telemetry"] },
  upstream: { mayEnter: ["protocol", "transport", "telemetry", "host"] },
  gateway: {
    mayEnter: [
      "protocol",
      "transport",
      "gate",
      "tool",
      "ledger",
      "telemetry",
      "identity",
      "storage",
      "upstream",
      "core",
    ],
  },
  client: { mayEnter: ["protocol", "transport", "gate", "tool", "ledger", "oauth"] },
  admin: { mayEnter: ["protocol", "transport", "gate", "ledger", "telemetry", "storage"] },
  cli: {
    mayEnter: [
      "protocol",
      "transport",
      "gate",
      "tool",
      "ledger",
      "telemetry",
      "identity",
      "storage",
      "host",
      "core",
      "gateway",
      "client",
      "admin",
      "lattice",
      "upstream",
      "codegen",
      "oauth",
    ],
  },
};

/** Files outside any room: the doors of the package. */
const DOORS = new Set(["index.ts", "server.ts"]);

function sources(root: string): string[] {
  return (
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith(".ts") && !/\.(test|contract)\.ts$/.test(entry.name))
      // What tests alone use is no part of the product, and may read files.
      .filter((entry) => !/[\\/]fixtures([\\/]|$)/.test(entry.parentPath))
      .map((entry) => join(entry.parentPath, entry.name))
  );
}

const SPECIFIER =
  /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s*["']([^"']+)["']|(?:^|\n)\s*import\s*["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/g;

function importsOf(text: string): string[] {
  return [...text.matchAll(SPECIFIER)].map((match) => (match[1] ?? match[2] ?? match[3]) as string);
}

/** Everything that breaks the map, in words. Takes the tree as data, so that the check itself can be tested. */
export function violations(files: ReadonlyMap<string, string>): string[] {
  const found: string[] = [];
  for (const [file, text] of files) {
    const room = file.includes("/") ? (file.split("/")[0] as string) : undefined;
    if (room === undefined) {
      if (!DOORS.has(file)) found.push(`${file} stands outside every room`);
      continue;
    }
    const rules = ROOMS[room];
    if (!rules) {
      found.push(`${file}: room ${room} is not on the map`);
      continue;
    }
    for (const specifier of importsOf(text)) {
      if (specifier.startsWith(".")) found.push(...checkInside(file, room, rules, specifier));
      else if (rules.pure && isBuiltin(specifier)) found.push(`${file}: pure room ${room} imports ${specifier}`);
    }
  }
  return found;
}

function checkInside(file: string, room: string, rules: { mayEnter: readonly string[] }, specifier: string): string[] {
  const target = join(dirname(file), specifier).split(sep).join("/");
  const [targetRoom, ...rest] = target.split("/");
  if (rest.length === 0) return [`${file}: a room imports the package's own door ${target}`];
  if (targetRoom === room) return [];
  if (!rules.mayEnter.includes(targetRoom as string)) return [`${file}: ${room} may not enter ${targetRoom}`];
  return rest.join("/") === "index.js" ? [] : [`${file}: ${targetRoom} is entered by its index.ts, not by ${target}`];
}

function isBuiltin(specifier: string): boolean {
  return specifier.startsWith("node:") || builtinModules.includes(specifier.split("/")[0] as string);
}

function tree(root: string): Map<string, string> {
  const files = new Map<string, string>();
  for (const file of sources(root)) files.set(relative(root, file).split(sep).join("/"), readFileSync(file, "utf8"));
  return files;
}

describe("the import map", () => {
  const src = resolve(import.meta.dirname, "../src");

  it("holds for every source file", () => {
    expect(violations(tree(src))).toEqual([]);
  });

  it("has a folder for every room that it names, with one door", () => {
    for (const room of Object.keys(ROOMS)) {
      const door = room === "cli" ? "main.ts" : "index.ts";
      expect(existsSync(join(src, room, door)), `src/${room}/${door}`).toBe(true);
    }
  });

  it.each([
    ["gate/a.ts", 'import { x } from "../gateway/index.js";', "gate may not enter gateway"],
    ["gate/a.ts", 'import { x } from "../protocol/json.js";', "entered by its index.ts"],
    ["gate/policy/a.ts", 'import type { x } from "../../transport/index.js";', "gate may not enter transport"],
    ["attic/a.ts", "", "room attic is not on the map"],
    ["loose.ts", "", "stands outside every room"],
    ["protocol/a.ts", 'import { readFileSync } from "node:fs";', "pure room protocol imports node:fs"],
    ["lattice/a.ts", 'import fs from "fs/promises";', "pure room lattice imports fs/promises"],
    ["protocol/a.ts", 'const fs = await import("node:fs");', "pure room protocol imports node:fs"],
    ["client/a.ts", 'export { x } from "../server.js";', "imports the package's own door"],
  ])("finds what is wrong with %s: %s", (file, text, problem) => {
    expect(violations(new Map([[file, text]])).join()).toContain(problem);
  });

  it("accepts what is right", () => {
    const fine = new Map([
      ["gate/a.ts", 'import { x } from "../protocol/index.js";\nimport { y } from "./b.js";\nimport "node:fs";'],
      ["lattice/a.ts", 'import { z } from "refa";'],
      ["server.ts", 'import { call } from "./gateway/call.js";'],
    ]);
    expect(violations(fine)).toEqual([]);
  });
});
