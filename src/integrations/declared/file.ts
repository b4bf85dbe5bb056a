// portcullis.yaml: what there should be, without any secret in it. Read whole, or every problem with its line.

import { existsSync, readFileSync } from "node:fs";
import { dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { PermissionInvalid, readPermissions } from "../../auth/index.js";
import { type HostPolicyProblem as Placed, type Positions, placed, problemText, readYaml } from "../../host/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  list,
  object,
  optional,
  record,
  type ShapeProblem,
  textShape,
} from "../../mcp/index.js";
import { PolicyInvalid, type PolicySource, readPolicyFiles } from "../../policy/index.js";
import { gatewayShape, type Settings } from "../../runtime/config.js";
import { type ApplicationDocument, applicationFields, applicationProblems } from "../../storage/index.js";
import { hostPolicyParts } from "../../tools/index.js";
import { rulesProblems } from "./document-checks.js";

export interface Declared {
  readonly storage: string | undefined;
  readonly sealKey: string | undefined;
  readonly applications: ReadonlyMap<string, ApplicationDocument>;
  /** Secrets that the applications refer to. */
  readonly secrets: readonly { readonly app: string; readonly name: string }[];
}

type DeclaredRead =
  | { readonly ok: true; readonly declared: Declared }
  | {
      readonly ok: false;
      readonly problems: readonly Placed[];
      /** Nothing but the rules is wrong. */
      readonly isByRules: boolean;
    };

const declaredApplication = object("an application", {
  ...applicationFields,
  policies: optional(
    list("Cedar files, or directories of them", textShape("a path", { min: 1, max: 4096 }), { max: 100 }),
  ),
  hostPolicy: optional(
    textShape("a host's policy.yaml, whose directories and commands core.filesystem and core.linux use", {
      min: 1,
      max: 4096,
    }),
  ),
});

const declaredShape = object("what a gateway should have", {
  storage: optional(textShape("sqlite:path or postgres://…, where applications are kept", { min: 1, max: 4096 })),
  sealKey: optional(textShape("env:NAME, file:PATH or keyring:NAME, the key for secrets", { min: 1, max: 4096 })),
  gateway: optional(gatewayShape),
  applications: optional(
    record("applications by id", declaredApplication, {
      max: 10_000,
      names: "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
      namesSay: "it has letters, digits, - and _, begins with a letter or digit, and at most 63 characters",
    }),
  ),
});

/** portcullis.schema.json for editors. */
export function declaredSchema(): JsonObject {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Portcullis gateway",
    ...declaredShape.schema,
  };
}

const REFERENCE = /\$\{(secret|env):([^}]*)\}/g;
const NAME = /^[A-Za-z0-9_.-]{1,128}$/;

export async function readDeclared(file: string, env: NodeJS.ProcessEnv = process.env): Promise<DeclaredRead> {
  const read = readShape(file, env);
  if (!read.reader) return failed(read.problems);
  const { reader } = read;
  const declared = await reader.read(read.value);
  if (reader.problems.length > 0) return failed([...reader.problems, ...reader.ruleProblems]);
  return reader.ruleProblems.length > 0 ? failed(reader.ruleProblems, true) : { ok: true, declared };
}

/** The file as data of the right shape, or what is wrong with it. */
function readShape(file: string, env: NodeJS.ProcessEnv) {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (error) {
    const message = `cannot be read (${(error as NodeJS.ErrnoException).code})`;
    return { problems: [{ file, line: 1, column: 1, path: "", message, remedy: "check the path" }] };
  }
  const yaml = readYaml(source, file);
  if (yaml.problems.length > 0) return { problems: yaml.problems };
  const found: ShapeProblem[] = [];
  declaredShape.check(yaml.value ?? {}, [], found);
  if (found.length > 0) return { problems: found.map((problem) => placed(problem, yaml.positions)) };
  return {
    value: (yaml.value ?? {}) as JsonObject,
    reader: new Reader(dirname(resolve(file)), yaml.positions, env),
    problems: [],
  };
}

/** The settings of the process in a portcullis.yaml: the one that is named, or that of the data directory. */
export function readGatewaySettings(
  dataDirectory: string,
  named: string | undefined,
  env: NodeJS.ProcessEnv,
): Partial<Settings> {
  const file = resolve(named ?? join(dataDirectory, "portcullis.yaml"));
  if (named === undefined && !existsSync(file)) return {};
  const { reader, value, problems } = readShape(file, env);
  const settings = reader ? { ...withPaths(value.gateway, dirname(file)), ...reader.store(value) } : {};
  const all = [...problems, ...(reader?.problems ?? [])];
  if (all.length === 0) return settings;
  throw new CliError(`${file} is not valid`, EXIT.usage, all.map(problemText).join("\n"));
}

const PATH_SETTINGS: readonly (keyof Settings)[] = ["policy", "workflow", "oauth", "ledger", "publish"];

/** Paths are relative to the file that names them. */
function withPaths(section: unknown, directory: string): Partial<Settings> {
  const settings: Record<string, unknown> = { ...(section as object | undefined) };
  for (const name of PATH_SETTINGS) {
    const value = settings[name];
    if (typeof value === "string") settings[name] = resolve(directory, value);
    if (Array.isArray(value)) settings[name] = value.map((each: string) => resolve(directory, each));
  }
  return settings;
}

function failed(problems: readonly Placed[], isByRules = false): DeclaredRead {
  return { ok: false, problems, isByRules };
}

const placeOf = ({ file, line, column, message }: Omit<Placed, "path" | "remedy">) => [file, line, column, message];

class Reader {
  readonly problems: Placed[] = [];
  readonly ruleProblems: Placed[] = [];
  readonly #directory: string;
  readonly #positions: Positions;
  readonly #env: NodeJS.ProcessEnv;
  readonly #secrets: { app: string; name: string }[] = [];

  constructor(directory: string, positions: Positions, env: NodeJS.ProcessEnv) {
    this.#directory = directory;
    this.#positions = positions;
    this.#env = env;
  }

  async read(value: JsonObject): Promise<Declared> {
    const applications = new Map<string, ApplicationDocument>();
    for (const [id, entry] of Object.entries((value.applications ?? {}) as JsonObject)) {
      const at = ["applications", id];
      const document = { ...(entry as JsonObject) };
      if (Array.isArray(document.policies)) document.policies = await this.#policies(document.policies as string[], at);
      if (typeof document.hostPolicy === "string") this.#hostPolicy(document, at);
      for (const problem of applicationProblems(document, at)) this.problems.push(placed(problem, this.#positions));
      this.#references(document, at, id);
      this.#permissions(document as ApplicationDocument, at);
      applications.set(id, document as ApplicationDocument);
    }
    return { ...this.store(value), applications, secrets: this.#secrets };
  }

  store(value: JsonObject): Pick<Declared, "storage" | "sealKey"> {
    return { storage: this.#inPlace(value, "storage"), sealKey: this.#inPlace(value, "sealKey") };
  }

  /** Puts what the file says in place of its name, so that every replica enforces the same, wherever the file is. */
  #hostPolicy(document: Record<string, JsonValue>, at: readonly string[]): void {
    const path = [...at, "hostPolicy"];
    const file = resolve(this.#directory, document.hostPolicy as string);
    delete document.hostPolicy;
    if (document.filesystem !== undefined || document.linux !== undefined) {
      return this.#report(path, "cannot be combined with `filesystem` or `linux`", "remove one of them");
    }
    let source: string;
    try {
      source = readFileSync(file, "utf8");
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      return this.#report(path, `\`${file}\` cannot be read (${code})`, "name the policy.yaml of a host");
    }
    const yaml = readYaml(source, file);
    if (yaml.problems.length > 0) return void this.problems.push(...yaml.problems);
    const parts = hostPolicyParts(isJsonObject(yaml.value) ? yaml.value : {});
    if ("problem" in parts) {
      return void this.problems.push(yaml.positions.problem([parts.field], parts.problem, parts.remedy));
    }
    document.filesystem = parts.filesystem;
    if (parts.linux !== undefined) document.linux = parts.linux;
  }

  /** The texts themselves: every replica decides by them, wherever these files are. */
  async #policies(paths: readonly string[], at: readonly string[]): Promise<JsonObject> {
    const texts: Record<string, string> = {};
    const sources = new Map<string, PolicySource>();
    for (const [i, path] of paths.entries()) {
      try {
        for (const source of await readPolicyFiles([resolve(this.#directory, path)])) {
          texts[this.#nameOf(source.file)] = source.text;
          sources.set(source.file, source);
        }
      } catch (error) {
        const reason = error instanceof PolicyInvalid ? (error.problems[0]?.message ?? error.message) : String(error);
        this.#report([...at, "policies", i], `\`${path}\` ${reason}`, "name a .cedar file or a directory of them");
      }
    }
    for (const { help, ...problem } of rulesProblems([...sources.values()])) {
      const isSaid = this.ruleProblems.some((each) => isDeepStrictEqual(placeOf(each), placeOf(problem)));
      // Applications may share a file.
      if (!isSaid) this.ruleProblems.push({ ...problem, path: "", remedy: help || "correct the rule" });
    }
    return texts;
  }

  /** As seen from portcullis.yaml, with forward slashes. */
  #nameOf(file: string): string {
    const near = relative(this.#directory, file);
    const outside = near.startsWith("..") || isAbsolute(near);
    return (outside ? join("policies", file.split(sep).slice(-2).join(sep)) : near).split(sep).join("/");
  }

  #references(value: JsonValue, at: readonly (string | number)[], app: string): void {
    if (Array.isArray(value)) value.forEach((each, i) => this.#references(each, [...at, i], app));
    else if (isJsonObject(value)) {
      for (const [name, each] of Object.entries(value)) {
        // Cedar has no references; what looks like one is the policy's own text.
        if (at.length !== 2 || name !== "policies") this.#references(each as JsonValue, [...at, name], app);
      }
    } else if (typeof value === "string") {
      for (const [whole, kind, name = ""] of value.matchAll(REFERENCE)) {
        if (!NAME.test(name)) this.#report(at, `\`${whole}\` names nothing`, "write ${secret:NAME} or ${env:NAME}");
        else if (kind === "secret") this.#secrets.push({ app, name });
        else if (this.#env[name] === undefined) this.#unset(at, name);
      }
    }
  }

  #permissions({ keys = {} }: ApplicationDocument, at: readonly string[]): void {
    for (const [name, entry] of Object.entries(keys)) {
      try {
        readPermissions(entry.permissions);
      } catch (error) {
        if (!(error instanceof PermissionInvalid)) throw error;
        this.#report([...at, "keys", name, "permissions"], error.message, "correct the value");
      }
    }
  }

  /** Needed here and now, so its references are resolved here: from the environment only. */
  #inPlace(value: JsonObject, field: "storage" | "sealKey"): string | undefined {
    const given = value[field];
    if (typeof given !== "string") return undefined;
    return given.replace(REFERENCE, (whole, kind: string, name: string) => {
      if (kind === "secret") {
        this.#report([field], `\`${whole}\` cannot be used here: secrets are in the store itself`, "use ${env:NAME}");
      } else if (this.#env[name] === undefined) this.#report([field], `the variable ${name} is not set`, "set it");
      return this.#env[name] ?? "";
    });
  }

  #unset(at: readonly (string | number)[], name: string): void {
    this.#report(at, `the variable ${name} is not set`, `set it, or use \${secret:${name}}`);
  }

  #report(path: readonly (string | number)[], message: string, remedy: string): void {
    this.problems.push(this.#positions.problem(path, message, remedy));
  }
}
