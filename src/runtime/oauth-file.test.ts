import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { readOAuthFile } from "./identity.js";
import { servesApplications } from "./serve.js";

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

it("reads client secrets from the environment only", () => {
  const read = readOAuthFile(file(WITH_SECRET("${env:THE_SECRET}")), { THE_SECRET: "s3cret" });
  expect(read.issuers[0]?.introspection?.clientSecret).toBe("s3cret");
  expect(() => readOAuthFile(file(WITH_SECRET("${env:THE_SECRET}")), {})).toThrow("no client secret");
  expect(() => readOAuthFile(file(WITH_SECRET("written down")), {})).toThrow("no client secret");
});

it("reports every problem of an OAuth file with its line", () => {
  const path = file("resource: https://gateway.example/mcp\nissuers:\n  - issuer: https://a.example\n    ap: shop\n");
  expect(() => readOAuthFile(path)).toThrow(/oauth\.yaml:4: .*did you mean `app`/);
  expect(() => readOAuthFile(file("resource: [\n"))).toThrow("oauth.yaml:");
  expect(() => readOAuthFile(join(dir, "none.yaml"))).toThrow("ENOENT");
});

it("serves applications instead of the demonstration with an OAuth file", async () => {
  expect(await servesApplications(dir, {})).toBe(false);
  expect(await servesApplications(dir, { oauth: "oauth.yaml" })).toBe(true);
});

it("accepts every OAuth file that the guide shows", () => {
  const guide = readFileSync(join(import.meta.dirname, "../../docs/guides/oauth.md"), "utf8");
  const shown = [...guide.matchAll(/^```yaml oauth\.yaml\n([\s\S]*?)^```$/gm)].map(([, text = ""]) => text);
  const read = shown.map((text) => readOAuthFile(file(text), { PARTNERS_SECRET: "s3cret" }));
  expect(read.map(({ issuers }) => issuers.map(({ dpop }) => dpop))).toEqual([[undefined, undefined], ["required"]]);
  expect(read[1]?.proofs).toEqual({ maxAgeSeconds: 60, maxAheadSeconds: 5, roots: ["wss://gateway.example:7421"] });
});
