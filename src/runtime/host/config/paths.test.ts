import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { hostPaths, isFleeting, programPaths, stableProgram, withTilde } from "./paths.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "host-paths-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));

describe("where things are", () => {
  test("uses the directories of each operating system [M10]", () => {
    expect(hostPaths("linux", {}, "/home/me")).toEqual({
      config: "/home/me/.config/portcullis/policy.yaml",
      state: "/home/me/.local/state/portcullis/host",
    });
    expect(hostPaths("linux", { XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "not/absolute" }, "/home/me")).toEqual({
      config: "/c/portcullis/policy.yaml",
      state: "/home/me/.local/state/portcullis/host",
    });
    expect(hostPaths("darwin", {}, "/Users/me")).toEqual({
      config: "/Users/me/Library/Preferences/portcullis/policy.yaml",
      state: "/Users/me/Library/Application Support/portcullis/host",
    });
    expect(hostPaths("win32", { APPDATA: "C:\\R", LOCALAPPDATA: "C:\\L" }, "C:\\me")).toEqual({
      config: "C:\\R\\portcullis\\policy.yaml",
      state: "C:\\L\\portcullis\\host",
    });
  });

  test("lists the program, its packages and Node as protected paths", () => {
    const paths = programPaths();
    expect(paths).toContain(process.execPath);
    expect(paths.some((path) => path.endsWith("node_modules"))).toBe(true);
    expect(paths.some((path) => path.endsWith("package.json"))).toBe(true);
  });

  test("names an installation by the program that stays when a version changes", () => {
    const main = join(base, "versions/1.2.3/dist/cli/main.js");
    mkdirSync(join(main, ".."), { recursive: true });
    expect(stableProgram(main)).toBeUndefined();
    mkdirSync(join(base, "bin"));
    writeFileSync(join(base, "bin/portcullis"), "");
    expect(stableProgram(main)).toBe(join(base, "bin/portcullis"));
    expect(stableProgram("/usr/lib/node_modules/portcullis/dist/cli/main.js")).toBeUndefined();
  });

  test("recognizes npx's cache and shortens the home directory", () => {
    expect(isFleeting(join("/home/me/.npm/_npx/abc/node_modules/portcullis/main.js"))).toBe(true);
    expect(isFleeting("/usr/lib/node_modules/portcullis")).toBe(false);
    expect(withTilde("/home/me/code", "/home/me")).toBe("~/code");
    expect(withTilde("/home/meander", "/home/me")).toBe("/home/meander");
    expect(withTilde("/x", "/")).toBe("/x");
  });
});
