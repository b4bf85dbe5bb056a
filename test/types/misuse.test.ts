// Each misuse does not compile, and fails at run time when types are silenced; the nearest right use does both.

import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Complaint, compileAll } from "./compile.js";
import { misuses } from "./misuses.js";
import { newWorld, type World } from "./world.js";

const worlds: World[] = [];
afterEach(async () => {
  for (const world of worlds.splice(0)) await world.end();
});

async function freshWorld(): Promise<World> {
  const world = await newWorld();
  worlds.push(world);
  return world;
}

/** Runs a snippet as JavaScript: no type is left, as with `any` everywhere. */
async function runIn(world: World, code: string): Promise<unknown> {
  const AsyncFunction = (async () => {}).constructor as new (...text: string[]) => (w: World) => Promise<unknown>;
  return new AsyncFunction("world", `"use strict"; const { ${Object.keys(world).join(", ")} } = world;\n${code}`)(
    world,
  );
}

function markedLine(code: string): number {
  const lines = code.split("\n");
  const marked = lines.findIndex((line) => line.endsWith("// here"));
  return marked === -1 ? lines.length : marked + 1;
}

let names: string[];
let wrong: Complaint[][];
let right: Complaint[][];
beforeAll(async () => {
  const world = await newWorld();
  names = Object.keys(world);
  await world.end();
  const all = compileAll(names, [...misuses.map((each) => each.wrong), ...misuses.map((each) => each.right)]);
  wrong = all.slice(0, misuses.length);
  right = all.slice(misuses.length);
});

it("the list has at least thirty ways of misuse, each once", () => {
  expect(misuses.length).toBeGreaterThanOrEqual(30);
  expect(new Set(misuses.map((each) => each.wrong)).size).toBe(misuses.length);
  expect(new Set(misuses.map((each) => each.name)).size).toBe(misuses.length);
});

it("the published types, which leave private parts out, refuse the same at the same lines [L10]", () => {
  const snippets = [...misuses.map((each) => each.wrong), ...misuses.map((each) => each.right)];
  const places = (all: readonly Complaint[][]): number[][] => all.map((each) => each.map(({ line }) => line));
  expect(places(compileAll(names, snippets, "declarations"))).toEqual(places([...wrong, ...right]));
});

describe.each(misuses.map((each, at) => ({ ...each, at })))("$name", (misuse) => {
  it("the misuse does not compile, and the message says why [L7]", () => {
    const complaints = wrong[misuse.at] as Complaint[];
    expect(complaints.map(({ line }) => line)).toEqual([markedLine(misuse.wrong)]);
    expect(complaints[0]?.message).toMatch(misuse.compiler);
  });

  it("the misuse fails at run time, without effect [L7]", async () => {
    const world = await freshWorld();
    const failed = await runIn(world, misuse.wrong).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failed).toBeInstanceOf(Error);
    expect((failed as Error).message).toMatch(misuse.run);
    expect(world.server.ran).toEqual([]);
  });

  it("the nearest correct form compiles and runs [L10]", async () => {
    expect(right[misuse.at]).toEqual([]);
    await runIn(await freshWorld(), misuse.right);
  });
});
