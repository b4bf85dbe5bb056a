import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { createKey } from "../../auth/index.js";
import { problemText } from "../../host/index.js";
import type { JsonObject } from "../../mcp/index.js";
import { clearCredentials, hideCredentials, openStorage } from "../../storage/index.js";
import { startingPolicy } from "../clients/starting-policy.js";
import { carryOut, planFor } from "./apply.js";
import { changeText, differences } from "./difference.js";
import { rulesProblems, unusableHere } from "./document-checks.js";
import { type Declared, declaredSchema, readDeclared } from "./file.js";

const directory = mkdtempSync(join(tmpdir(), "portcullis-yaml-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
const file = join(directory, "portcullis.yaml");
const read = async (text: string, env = {}) => {
  writeFileSync(file, text);
  return readDeclared(file, env);
};
const problems = async (text: string, env = {}): Promise<string> => {
  const result = await read(text, env);
  return result.ok ? "" : result.problems.map((each) => problemText(each).replace(file, "F")).join("\n");
};
const declared = async (text: string, env = {}): Promise<Declared> => {
  const result = await read(text, env);
  if (!result.ok) throw new Error(result.problems.map(problemText).join("\n"));
  return result.declared;
};

const EXAMPLE = readFileSync(new URL("../../../examples/portcullis.yaml", import.meta.url), "utf8");

describe("portcullis.yaml", () => {
  it("reads portcullis.yaml with the texts of policies and the names of secrets", async () => {
    mkdirSync(join(directory, "policies"), { recursive: true });
    writeFileSync(join(directory, "policies", "blog.cedar"), "permit(principal, action, resource);\n");
    const { applications, secrets, storage } = await declared(EXAMPLE, { DATABASE_URL: "postgres://db/x" });
    const blog = applications.get("blog");
    expect(blog?.policies).toEqual({ "policies/blog.cedar": "permit(principal, action, resource);\n" });
    expect(blog?.servers?.s3?.env).toMatchObject({ AWS_SECRET_ACCESS_KEY: "${secret:AWS_SECRET_ACCESS_KEY}" });
    expect(secrets).toContainEqual({ app: "blog", name: "AWS_SECRET_ACCESS_KEY" });
    expect(storage).toBe("postgres://db/x");
  });

  it.each([
    [
      "applications:\n  blog:\n    server: {}\n",
      "F:3:5: applications.blog.server: unknown field; did you mean `servers`?",
    ],
    [
      "applications:\n  blog:\n    routes:\n      community.s3: { server: s4 }\n",
      "F:4:31: applications.blog.routes.community.s3.server: there is no server `s4`",
    ],
    [
      "applications:\n  blog:\n    config: { a: '${env:NOT_SET}' }\n",
      "F:3:18: applications.blog.config.a: the variable NOT_SET is not set; set it, or use ${secret:NOT_SET}",
    ],
    ["applications:\n  blog:\n    config: { a: '${secret:}' }\n", "names nothing"],
    [
      "applications:\n  blog:\n    policies: [./missing]\n",
      "F:3:16: applications.blog.policies[0]: `./missing` cannot be read",
    ],
    [
      "applications:\n  blog:\n    keys:\n      ci: { permissions: [fly] }\n",
      "F:4:26: applications.blog.keys.ci.permissions: unknown permission `fly`",
    ],
    ["applications:\n  blog:\n    keys:\n      ci: { permissions: ['approve(x)', list] }\n", "can do nothing else"],
    ["applications:\n  'b g': {}\n", "F:2:3: applications.b g: as a name, it has letters, digits"],
    ["applications: [blog]\n", "F:1:15: applications: must be a map, not a list"],
    ["storage: '${secret:X}'\n", "cannot be used here"],
    ["storage: '${env:X}'\n", "the variable X is not set"],
    ["applications: {}\napplications: {}\n", "F:2:1:"],
    ["a: &x 1\nb: *x\n", "aliases are not allowed"],
  ])("%j is refused with its line: %s", async (text, problem) => {
    expect(await problems(text)).toContain(problem);
  });

  it("refuses policies that no gateway could load, with their line and the remedy", async () => {
    const cedar = join(directory, "bad.cedar");
    writeFileSync(cedar, "permit(principal, action, resource);\npermit(principal, action, resource\n");
    const text = "applications:\n  blog: { policies: [bad.cedar] }\n  shop: { policies: [bad.cedar] }\n";
    expect(await read(text)).toMatchObject({ ok: false, isByRules: true, problems: [{ file: cedar, line: 2 }] });
    writeFileSync(
      cedar,
      'permit(principal, action in Action::"tools/call", resource)\nwhen { context.args.x == 1 };\n',
    );
    expect((await problems(text)).replace(cedar, "C")).toMatch(/^C:2:8: attribute `args` in context .* did you mean/);
    writeFileSync(
      cedar,
      'permit(principal, action == Action::"not.there", resource) when { context.arguments.x == 1 };\n',
    );
    expect(await read(text)).toMatchObject({ ok: true });
    expect(rulesProblems([{ file: "imported.cedar", text: startingPolicy("local") }])).toEqual([]);
    expect(await read("applications:\n  blog: { nope: 1 }\n")).toMatchObject({ ok: false, isByRules: false });
  });

  it("names directories and commands that cannot be used on this machine", () => {
    expect(unusableHere("blog", { filesystem: { allowedRoots: ["/nonexistent"] } })).toContain("/nonexistent");
    expect(unusableHere("blog", { filesystem: { roots: [] } })).toContain("no field `roots`");
    expect(unusableHere("blog", { filesystem: { allowedRoots: [directory] } })).toBeUndefined();
    expect(unusableHere("blog", {})).toBeUndefined();
  });

  it("takes directories and commands from a host's policy.yaml and refuses other fields", async () => {
    const text = "applications:\n  blog: { hostPolicy: ./policy.yaml }\n";
    const policy = (more: string): void =>
      writeFileSync(join(directory, "policy.yaml"), `version: 1\nallowedRoots: ["${directory}"]\n${more}`);
    policy(
      "sandbox: preferred\ncommands: [{ id: ls, exec: /bin/ls }]\nlimits: { maxReadBytes: 1_000 }\nlogging: { level: info }\n",
    );
    const { applications } = await declared(text);
    expect(applications.get("blog")).toEqual({
      filesystem: { allowedRoots: [directory], limits: { maxReadBytes: expect.anything() } },
      linux: { sandbox: "preferred", commands: [{ id: "ls", exec: "/bin/ls" }] },
    });
    expect(unusableHere("blog", applications.get("blog") ?? {})).toBeUndefined();
    policy("profiles: [{ client: guest }]\n");
    expect(await problems(text)).toMatch(/policy\.yaml:3:\d+: profiles: an application has no client profiles/);
    policy("alowedRoots: []\n");
    expect(await problems(text)).toMatch(/policy\.yaml:3:\d+: alowedRoots: unknown field/);
    policy("");
    const both = "applications:\n  blog: { hostPolicy: ./policy.yaml, filesystem: { allowedRoots: [] } }\n";
    expect(await problems(both)).toContain("cannot be combined with `filesystem` or `linux`");
    expect(await problems("applications:\n  blog: { hostPolicy: ./none.yaml }\n")).toContain("cannot be read");
  });

  it("reports all problems of portcullis.yaml at once", async () => {
    const text =
      "applications:\n  a: { limits: { app: { perMinute: x } } }\n  b: { servers: { s: {} } }\n  c: { nope: 1 }\n";
    expect((await problems(text)).split("\n")).toHaveLength(2);
  });

  it("generates portcullis.schema.json as published (UPDATE_SCHEMA=1 writes it)", () => {
    const published = new URL("../../../portcullis.schema.json", import.meta.url);
    const text = `${JSON.stringify(declaredSchema(), null, 2)}\n`;
    if (process.env.UPDATE_SCHEMA === "1") writeFileSync(published, text);
    expect(readFileSync(published, "utf8")).toBe(text);
    const validate = new Ajv2020({ strict: true, allErrors: true, strictTypes: false }).compile(declaredSchema());
    expect(validate(parse(EXAMPLE)), JSON.stringify(validate.errors)).toBe(true);
    expect(validate({ applications: { blog: { server: {} } } })).toBe(false);
  });
});

describe("the difference", () => {
  it("shows changed policies as line diffs, and new or removed ones whole [H5]", () => {
    const [before, after] = ["permit a;\n\nforbid b;\n", "permit a;\n\nforbid c;\n"];
    const text = (was: JsonObject, is: JsonObject): string => differences(was, is).map(changeText).join("\n");
    expect(text({ policies: { "p.cedar": before } }, { policies: { "p.cedar": after } })).toBe(
      "~ policies.p.cedar:\n      permit a;\n      \n    - forbid b;\n    + forbid c;",
    );
    expect(text({}, { policies: { "p.cedar": "permit a;\n" } })).toBe("+ policies.p.cedar:\n    + permit a;");
    expect(text({ policies: { "p.cedar": "permit a;\n" } }, {})).toBe("- policies.p.cedar:\n    - permit a;");
  });

  it("lists added, removed and changed fields", () => {
    const before = { a: 1, b: { c: [1], d: "x" }, e: true };
    const after = { a: 2, b: { c: [1, 2], f: {} } };
    expect(differences(before, after).map((each) => changeText(each))).toEqual([
      "~ a: 1 → 2",
      "~ b.c: [1] → [1,2]",
      '- b.d: "x"',
      "+ b.f: {}",
      "- e: true",
    ]);
    expect(differences(before, before)).toEqual([]);
  });

  it("hides possible credentials and escapes characters that move the cursor", () => {
    const env = { API_TOKEN: "hunter2", REGION: "eu", OTHER_KEY: "${secret:K}", X: "\u001b[2J" };
    const [change] = differences({}, { servers: { s: { env } } });
    const text = changeText(change as never);
    expect(text).not.toContain("hunter2");
    expect(text).not.toContain("\u001b");
    expect(text).toContain('"REGION":"eu"');
    expect(text).toContain("${secret:K}");
    expect(hideCredentials({ servers: { s: { env } } })).toMatchObject({
      servers: { s: { env: { API_TOKEN: "[hidden]", REGION: "eu" } } },
    });
  });

  it("hides credentials in arguments, URLs and values of any name and keeps the rest readable", () => {
    const servers = {
      s: {
        command: "docker",
        args: ["run", "-e", "DB_PASSWORD=hunter2", "--api-key", "hunter2", "--api-key=${secret:K}", "node:20"],
        env: { OTHER: "ghp_0123456789abcdefhunter2" },
      },
      t: { url: "https://u:hunter2@host/x?api_key=hunter2&a=1" },
    };
    const text = JSON.stringify(hideCredentials({ servers }));
    expect(text).not.toContain("hunter2");
    expect(hideCredentials({ servers })).toEqual({
      servers: {
        s: {
          command: "docker",
          args: ["run", "-e", "DB_PASSWORD=[hidden]", "--api-key", "[hidden]", "--api-key=${secret:K}", "node:20"],
          env: { OTHER: "[hidden]" },
        },
        t: { url: "https://u:[hidden]@host/x?api_key=[hidden]&a=1" },
      },
    });
    expect(differences({}, { servers }).map(changeText).join()).not.toContain("hunter2");
    expect(clearCredentials("blog", { servers }).map((each) => each.split(" ", 1)[0])).toEqual([
      "servers.s.args",
      "servers.s.env.OTHER",
      "servers.t.url",
    ]);
  });
});

describe("applying", () => {
  const one =
    "applications:\n  blog:\n    config: { colour: red }\n    keys: { ci: { permissions: [list] } }\n  shop: {}\n";

  it("applies portcullis.yaml to the store, after which there is no difference", async () => {
    const storage = await openStorage("sqlite::memory:");
    await storage.applications.put("old", {}, "test");
    const plan = await planFor(storage, await declared(one), false);
    expect(plan.applications.map(({ app, action }) => [app, action])).toEqual([
      ["blog", "add"],
      ["shop", "add"],
    ]);
    await carryOut(storage, plan, "cli:anna");
    expect((await storage.applications.get("blog"))?.document.config).toEqual({ colour: "red" });
    expect((await planFor(storage, await declared(one), false)).applications).toEqual([]);
    expect(await storage.applications.get("old")).toBeDefined();
    const pruning = await planFor(storage, await declared(one), true);
    expect(pruning.applications.map(({ app, action }) => [app, action])).toEqual([["old", "remove"]]);
    await carryOut(storage, pruning, "cli:anna");
    expect(await storage.applications.get("old")).toBeUndefined();
    await storage.close();
  });

  it("updates keys to the permissions declared for their name", async () => {
    const storage = await openStorage("sqlite::memory:");
    await carryOut(storage, await planFor(storage, await declared(one), false), "cli:anna");
    const { key } = await createKey(storage.keys, { app: "blog", name: "ci", permissions: ["list"] }, "test");
    const { key: other } = await createKey(storage.keys, { app: "blog", name: "other", permissions: ["list"] }, "test");
    const text = one.replace("[list]", "['invoke(core.*)'], perMinute: 9");
    const plan = await planFor(storage, await declared(text), false);
    expect(plan.applications[0]?.keys.map(({ id }) => id)).toEqual([key.id]);
    await carryOut(storage, plan, "cli:anna");
    expect(await storage.keys.get(key.id)).toMatchObject({ permissions: ["invoke(core.*)"], limits: { perMinute: 9 } });
    expect(await storage.keys.get(other.id)).toMatchObject({ permissions: ["list"] });
    await storage.close();
  });

  it("refuses to overwrite a change that it has not shown, and lists the missing secrets", async () => {
    const storage = await openStorage("sqlite::memory:");
    const text = "applications:\n  blog:\n    config: { key: '${secret:K}' }\n";
    const plan = await planFor(storage, await declared(text), false);
    expect(plan.missingSecrets).toEqual([{ app: "blog", name: "K" }]);
    await storage.applications.put("blog", { description: "by another caller" }, "test");
    await expect(carryOut(storage, plan, "cli:anna")).rejects.toThrow("changed by another process");
    expect((await storage.applications.get("blog"))?.document).toEqual({ description: "by another caller" });
    await storage.close();
  });
});
