import { describe, expect, it } from "vitest";
import { pathText } from "../mcp/index.js";
import { applicationProblems, checkApplication } from "./application.js";

const problems = (value: unknown): string[] =>
  applicationProblems(value).map(({ path, message }) => `${pathText(path)}: ${message}`);

describe("an application", () => {
  it("an application is what the guide shows", () => {
    const blog = {
      config: { "site.title": "Blog" },
      servers: {
        s3: { command: "npx", args: ["s3-server"], env: { AWS_SECRET_ACCESS_KEY: "${secret:AWS_SECRET}" } },
        search: { url: "https://search.example/mcp", headers: { Authorization: "Bearer ${secret:SEARCH}" } },
        drive: { url: "https://drive.example/mcp", auth: { type: "oauth", per: "user", scopes: ["files"] } },
      },
      routes: { "community.aws.s3": { server: "s3", strip: true } },
      permissions: ["core.state.*", "core.framework.getConfigValue"],
      limits: { app: { perMinute: 600 }, agent: { concurrent: 4 }, costs: { "core.llm.*": 10 } },
      policies: { "blog.cedar": "permit(principal, action, resource);" },
      keys: { ci: { permissions: ["invoke(core.*)"], perMinute: 60 } },
      llm: { provider: "ollama" },
    };
    expect(problems(blog)).toEqual([]);
    expect(checkApplication("blog", blog)).toBe(blog);
  });

  it.each([
    [{ server: {} }, "server: unknown field; did you mean `servers`?"],
    [{ servers: { s3: {} } }, "servers.s3: must have either `command` or `url`"],
    [{ servers: { s3: { command: "x", url: "https://y" } } }, "servers.s3: must have either `command` or `url`"],
    [{ servers: { s3: { command: "x", headers: {} } } }, "servers.s3.headers: belongs to a server with `url`"],
    [{ servers: { s3: { url: "https://x", args: [] } } }, "servers.s3.args: belongs to a server with `command`"],
    [{ servers: { "s 3": { command: "x" } } }, "servers.s 3: as a name, it has letters, digits, - and _"],
    [{ servers: { core: { command: "x" } } }, "servers.core.prefix: names under core are reserved"],
    [{ servers: { x: { command: "x", prefix: "core.llm" } } }, "servers.x.prefix: names under core are"],
    [{ routes: { "community.s3": { server: "s4" } } }, "routes.community.s3.server: there is no server `s4`"],
    [{ limits: { app: { perMinute: "60" } } }, "limits.app.perMinute: must be a whole number, not a string"],
    [{ limits: { app: { perMinute: 0 } } }, "limits.app.perMinute: is 0; it must lie between 1 and"],
    [{ permissions: ["rm -rf"] }, "permissions[0]: must be a tool name or pattern"],
    [{ config: [] }, "config: must be a map, not a list"],
    [{ servers: { x: { url: "https://x", auth: { type: "bearer" } } } }, "servers.x.auth: field `token` is missing"],
    [
      { servers: { x: { url: "https://x", auth: { type: "oauth", clientId: "a", clientSecret: "${secret:A}" } } } },
      "servers.x.auth: field `issuer` is missing: name the authorization server",
    ],
    [
      {
        servers: { x: { url: "https://x", auth: { type: "oauth", clientSecret: "${secret:A}", issuer: "https://i" } } },
      },
      "servers.x.auth: field `clientId` is missing",
    ],
    [
      { servers: { x: { url: "https://x", auth: { type: "oauth", issuer: "login.example" } } } },
      "servers.x.auth.issuer: must be an https address",
    ],
    [{ policies: { "../up.cedar": "" } }, "policies.../up.cedar: as a name, it is a relative file name"],
  ])("%j is refused: %s", (value, problem) => {
    expect(problems(value).join("\n")).toContain(problem);
  });

  it.each([
    [{ auth: { type: "bearer", token: "sk-123" } }, "auth.token"],
    [{ auth: { type: "oauth", clientSecret: "s3cret" } }, "auth.clientSecret"],
    [{ auth: { type: "oauth", privateKey: "-----BEGIN s3cret" } }, "auth.privateKey"],
    [{ headers: { Authorization: "Bearer sk-123" } }, "headers.Authorization"],
    [{ headers: { "X-Api-Key": "sk-123" } }, "headers.X-Api-Key"],
    [{ url: "https://u:s3cret@x/mcp" }, "url"],
    [{ url: "https://x/mcp?a=1&api_key=s3cret" }, "url"],
    [{ url: "https://x/mcp?a=${secret:A}&token=s3cret" }, "url"],
  ])("%j holds a credential in clear, and is refused without repeating it [H5]", (more, field) => {
    const said = problems({ servers: { x: { url: "https://x", ...more } } }).join("\n");
    expect(said).toContain(`servers.x.${field}: holds a credential in clear`);
    expect(said).not.toMatch(/sk-123|s3cret/);
  });

  it("does not count a reference to a credential as a credential", () => {
    for (const url of ["https://u:${secret:P}@x/mcp?api_key=${env:K}", "https://x:8080/@a/b?auth=oauth&tokens=5"]) {
      expect(problems({ servers: { x: { url } } })).toEqual([]);
    }
  });

  it("an application has an id that can stand in a path, and is not too large", () => {
    for (const id of ["", "a b", "../x", "a/b", "-x", "x".repeat(64), "__proto__"]) {
      expect(() => checkApplication(id, {})).toThrow("is not valid: id:");
    }
    const policies = Object.fromEntries(Array.from({ length: 4 }, (_, i) => [`p${i}.cedar`, "x".repeat(300_000)]));
    expect(() => checkApplication("blog", { policies })).toThrow("at most 1048576 are allowed");
  });
});
