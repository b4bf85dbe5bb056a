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

const app = (id: string, ...folders: string[]) => ({
  id,
  filesystem: { allowedRoots: folders.map((folder) => join(base, folder)) },
});

it("folders of one application, and neighbours with similar names, are not shared", () => {
  expect(sharedDirectories([app("x", "a", "a/inner"), app("y", "a-b"), { id: "z" }])).toEqual([]);
});

it("the same folder, one inside another's, and one by another name are", () => {
  const both = ["x", "y"];
  expect(sharedDirectories([app("x", "a"), app("y", "a")])).toEqual([{ folder: join(base, "a"), applications: both }]);
  expect(sharedDirectories([app("x", "a"), app("y", "link/inner")])).toEqual([
    { folder: join(base, "a/inner"), applications: both },
  ]);
  const zone = { id: "y", filesystem: { writeRules: [{ path: join(base, "link") }] } };
  expect(sharedDirectories([app("x", "a"), zone])).toEqual([{ folder: join(base, "a"), applications: both }]);
});
