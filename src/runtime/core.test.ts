import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { usableTools } from "./core.js";

it("serves the other tools when settings cannot be used on this machine, and logs the problem", () => {
  const said: string[] = [];
  const log = { error: (text: string, fields?: object) => void said.push(`${text} ${JSON.stringify(fields)}`) };
  const services = { log: { log: () => {} } };
  const directory = realpathSync(mkdtempSync(join(tmpdir(), "usable-")));
  const named = (app: object): string[] =>
    usableTools({ id: "blog", config: {}, ...app }, services, log).tools.map(({ definition }) => definition.name);
  const whole = named({ filesystem: { allowedRoots: [directory] } });
  expect(said).toEqual([]);
  expect(whole).toContain("core.filesystem.readFile");
  const left = named({ filesystem: { allowedRoots: [join(directory, "not-there")] } });
  expect(left).toEqual(whole.filter((name) => !name.startsWith("core.filesystem.")));
  expect(left).toContain("core.framework.getConfigValue");
  expect(said).toEqual([expect.stringContaining("not-there")]);
  expect(named({ llm: { provider: "carrier-pigeon" } })).toEqual(left);
  expect(said[1]).toMatch(/"blog".*llm/);
  rmSync(directory, { recursive: true });
});
