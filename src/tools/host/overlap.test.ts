import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { sharedDirectories } from "../index.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "overlap-")));
afterAll(() => rmSync(base, { recursive: true, force: true }));
mkdirSync(join(base, "a/inner"), { recursive: true });
mkdirSync(join(base, "a-b"));
symlinkSync(join(base, "a"), join(base, "link"));

const app = (id: string, ...directories: string[]) => ({
  id,
  filesystem: { allowedRoots: directories.map((directory) => join(base, directory)) },
});

it("directories of one application, and neighbours with similar names, are not shared", () => {
  expect(sharedDirectories([app("x", "a", "a/inner"), app("y", "a-b"), { id: "z" }])).toEqual([]);
});

it("the same directory, one inside another's, and one by another name are", () => {
  const both = ["x", "y"];
  expect(sharedDirectories([app("x", "a"), app("y", "a")])).toEqual([
    { directory: join(base, "a"), applications: both },
  ]);
  expect(sharedDirectories([app("x", "a"), app("y", "link/inner")])).toEqual([
    { directory: join(base, "a/inner"), applications: both },
  ]);
  const zone = { id: "y", filesystem: { writeRules: [{ path: join(base, "link") }] } };
  expect(sharedDirectories([app("x", "a"), zone])).toEqual([{ directory: join(base, "a"), applications: both }]);
});
