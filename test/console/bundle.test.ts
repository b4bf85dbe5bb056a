// The bundle of the console: small, fingerprinted, and nothing in it that a strict content security policy refuses.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { root } from "../e2e/serving.js";

const DIST = join(root, "dist", "console");
const KIB = 1_024;

describe("the bundle of the console", () => {
  const assets = readdirSync(join(DIST, "assets")).map((name) => {
    const bytes = readFileSync(join(DIST, "assets", name));
    return { name, text: bytes.toString("utf8"), zippedBytes: gzipSync(bytes, { level: 9 }).length };
  });
  const page = readFileSync(join(DIST, "index.html"), "utf8");
  const isCode = ({ name }: { name: string }): boolean => /\.(js|css)$/.test(name);
  const isEditor = ({ name }: { name: string }): boolean => name.startsWith("editor-");
  const sizeOf = (some: typeof assets): number => some.reduce((sum, { zippedBytes }) => sum + zippedBytes, 0);

  it("the console is at most 60 KiB zipped before the editor loads, and 220 KiB with it", () => {
    expect(assets.some(isEditor)).toBe(true);
    expect(sizeOf(assets.filter((asset) => isCode(asset) && !isEditor(asset)))).toBeLessThan(60 * KIB);
    expect(sizeOf(assets.filter(isCode))).toBeLessThan(220 * KIB);
  });

  it("every asset of the console carries a hash of its contents in its name, and the page refers to such names alone", () => {
    expect(assets.filter(({ name }) => !/-[A-Z0-9]{8}\.(js|css|css\.map|js\.LEGAL\.txt|js\.map)$/.test(name))).toEqual(
      [],
    );
    const referred = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path = ""]) => path);
    expect(referred.length).toBe(3);
    for (const path of referred.filter((each) => !each.endsWith("/icon.svg"))) {
      expect(assets.map(({ name }) => `/console/assets/${name}`)).toContain(path);
    }
  });

  it("the page of the console has no inline script or style and refers to no other origin", () => {
    expect(page).not.toMatch(/<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|javascript:|https?:/i);
  });

  it("the code of the console neither evaluates text nor writes markup into the page", () => {
    const own = assets.filter((asset) => isCode(asset) && !isEditor(asset));
    for (const { name, text } of own) {
      expect(text, name).not.toMatch(/\beval\(|new Function\(|\.outerHTML|insertAdjacentHTML|document\.write/);
      expect(text, name).not.toMatch(/url\(\s*["']?https?:|@import|@font-face/);
    }
  });
});
