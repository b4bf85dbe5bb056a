// The guide's snippets run. They are written without type annotations, so that they are JavaScript as they stand but
// for `as const`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import * as zod from "zod";
import * as tool from "./index.js";

const guide = readFileSync(new URL("../../docs/guides/tools.md", import.meta.url), "utf8");
const snippets = [...guide.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code = ""]) => code);

const modules: Record<string, object> = {
  "portcullis/server": { ...tool, createServer: tool.defineServer },
  "node:assert/strict": { default: assert },
  zod,
};

function runnable(code: string): string {
  return code
    .replaceAll(/^import (\w+) from "(.+)";$/gm, 'const { default: $1 } = modules["$2"];')
    .replaceAll(/^import (\{.+\}) from "(.+)";$/gm, 'const $1 = modules["$2"];')
    .replaceAll(" as const", "");
}

const AsyncFunction = (async () => {}).constructor as new (...args: string[]) => (modules: object) => Promise<void>;

describe("the guide to tools", () => {
  it("has a snippet for each part", () => {
    expect(snippets).toHaveLength(6);
  });
  it.each(snippets.map((code, index) => [index + 1, code] as const))("snippet %i runs", async (_, code) => {
    await new AsyncFunction("modules", runnable(code))(modules);
  });
});
