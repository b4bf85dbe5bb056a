import { test } from "vitest";
import fs from "node:fs";
import { Schema } from "./schema/schema.js";
test("x", async () => {
  const suite = JSON.parse(fs.readFileSync(new URL("./fixtures/json-schema-suite.json", import.meta.url), "utf8"));
  for (const d of ["draft-07", "2020-12"]) {
    let pass = 0, fail = 0, refused = 0; const lines: string[] = [];
    for (const [file, groups] of Object.entries<any>(suite[d])) for (const g of groups) {
      const schema = typeof g.schema === "object" && !g.schema.$schema ? { $schema: d === "draft-07" ? "http://json-schema.org/draft-07/schema#" : "https://json-schema.org/draft/2020-12/schema", ...g.schema } : g.schema;
      let s: Schema;
      try { s = new Schema(schema); } catch (e) { refused += g.tests.length; lines.push(`REFUSED ${file}: ${g.description}: ${(e as Error).message}`); continue; }
      for (const t of g.tests) {
        const r = await s.validate(t.data);
        if (r.ok === t.valid) pass++; else { fail++; lines.push(`FAIL ${file}: ${g.description} / ${t.description}: expected ${t.valid}`); }
      }
    }
    console.log(d, { pass, fail, refused }); console.log(lines.join("\n"));
  }
  const fm = JSON.parse(fs.readFileSync("/tmp/formats-suite.json", "utf8"));
  for (const [f, gs] of Object.entries<any>(fm)) { let p = 0, n = 0; const bad: string[] = []; for (const g of gs) for (const t of g.tests) { n++; const r = await new Schema({...g.schema}).validate(t.data); if (r.ok === t.valid) p++; else bad.push(`${t.description} want ${t.valid}`); } console.log(f, p, n, bad.slice(0, 6).join(" | ")); }
});
