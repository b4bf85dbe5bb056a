import { execFileSync } from "node:child_process";
import { afterEach, expect, it } from "vitest";
import { environment, takeVariable } from "./environment.js";

const NAME = "PORTCULLIS_TEST_TAKEN";

afterEach(() => {
  delete process.env[NAME];
});

it("removes a variable that holds a secret from the environment of every later child, and still knows it [G8]", () => {
  process.env[NAME] = "hunter2";
  expect(takeVariable(NAME)).toBe("hunter2");
  expect(process.env[NAME]).toBeUndefined();
  expect(execFileSync("/usr/bin/env", { encoding: "utf8" })).not.toContain("hunter2");
  expect(takeVariable(NAME)).toBe("hunter2");
  expect(environment()[NAME]).toBe("hunter2");
});

it("leaves variables that every program needs in the environment", () => {
  const path = process.env.PATH;
  expect(takeVariable("PATH")).toBe(path);
  expect(process.env.PATH).toBe(path);
});
