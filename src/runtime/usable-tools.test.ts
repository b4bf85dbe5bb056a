import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { usableTools } from "./usable-tools.js";

it("settings that cannot be used here cost their own tools alone, and the operator is told", () => {
  const said: string[] = [];
  const log = { error: (text: string, fields?: object) => void said.push(`${text} ${JSON.stringify(fields)}`) };
  const services = { log: { log: () => {} } };
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "usable-")));
  const named = (app: object): string[] =>
    usableTools({ id: "blog", config: {}, ...app }, services, log).tools.map(({ definition }) => definition.name);
  const whole = named({ filesystem: { allowedRoots: [folder] } });
  expect(said).toEqual([]);
  expect(whole).toContain("core.filesystem.readFile");
  const left = named({ filesystem: { allowedRoots: [join(folder, "not-there")] } });
  expect(left).toEqual(whole.filter((name) => !name.startsWith("core.filesystem.")));
  expect(left).toContain("core.framework.getConfigValue");
  expect(said).toEqual([expect.stringContaining("not-there")]);
  expect(named({ llm: { provider: "carrier-pigeon" } })).toEqual(left);
  expect(said[1]).toMatch(/"blog".*llm/);
  rmSync(folder, { recursive: true });
});
