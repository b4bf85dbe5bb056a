import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { readOAuthFile } from "./oauth-file.js";

const dir = mkdtempSync(join(tmpdir(), "portcullis-oauth-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function file(text: string): string {
  const path = join(dir, "oauth.yaml");
  writeFileSync(path, text);
  return path;
}

const WITH_SECRET = (secret: string): string => `resource: https://gateway.example/mcp
issuers:
  - issuer: https://login.example
    app: shop
    introspection: { clientId: gateway, clientSecret: "${secret}" }
`;

it("takes secrets from the environment and from nowhere else", () => {
  const read = readOAuthFile(file(WITH_SECRET("${env:THE_SECRET}")), { THE_SECRET: "s3cret" });
  expect(read.issuers[0]?.introspection?.clientSecret).toBe("s3cret");
  expect(() => readOAuthFile(file(WITH_SECRET("${env:THE_SECRET}")), {})).toThrow("no client secret");
  expect(() => readOAuthFile(file(WITH_SECRET("written down")), {})).toThrow("no client secret");
});

it("names every problem with its line", () => {
  const path = file("resource: https://gateway.example/mcp\nissuers:\n  - issuer: https://a.example\n    ap: shop\n");
  expect(() => readOAuthFile(path)).toThrow(/oauth\.yaml:4: .*did you mean `app`/);
  expect(() => readOAuthFile(file("resource: [\n"))).toThrow("oauth.yaml:");
  expect(() => readOAuthFile(join(dir, "none.yaml"))).toThrow("ENOENT");
});
