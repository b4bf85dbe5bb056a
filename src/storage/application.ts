// What an application is, field by field: the stored document, the part of portcullis.yaml that describes it, and the
// JSON Schema for editors all come from here.

import {
  anyObject,
  flag,
  integer,
  type JsonObject,
  list,
  object,
  oneOf,
  optional,
  type Path,
  pathText,
  record,
  required,
  type Shape,
  type ShapeProblem,
  SUPPORTED_VERSIONS,
  textShape,
  wordOr,
} from "../mcp/index.js";
import { credentialsInUrl } from "./credentials/spans.js";
import { type FlowEntry, flowShape } from "./flow-entry.js";
import { StorageError } from "./sql.js";

/** Texts may hold `${secret:NAME}` and `${env:NAME}`; they are resolved where they are used, never in the store. */
export interface ApplicationDocument {
  readonly description?: string | undefined;
  /** What `core.framework.getConfigValue` answers with. */
  readonly config?: JsonObject | undefined;
  readonly servers?: Readonly<Record<string, ServerEntry>> | undefined;
  /** Name prefix, like `community.aws.s3`, to where it leads. */
  readonly routes?: Readonly<Record<string, RouteEntry>> | undefined;
  /**
   * How lists show tools: by their full names, by short ones without dots for clients that take no others, or as three
   * tools that search and call the others.
   */
  readonly names?: "full" | "short" | "search" | undefined;
  /** The `core.*` tools that this application may use, by pattern. None unless named. */
  readonly permissions?: readonly string[] | undefined;
  readonly limits?: ApplicationLimits | undefined;
  /** Cedar, by file name. The text itself is stored, so that every replica decides by the same words. */
  readonly policies?: Readonly<Record<string, string>> | undefined;
  /** Callbacks that run before a tool does, beside those of a module's author. */
  readonly guardrails?: readonly GuardrailEntry[] | undefined;
  /** Information flow: what results carry and what calls do. */
  readonly flow?: FlowEntry | undefined;
  /** What keys of these names may do; `key add` and `app apply` follow it. */
  readonly keys?: Readonly<Record<string, ApplicationKeyEntry>> | undefined;
  /** For `core.llm.*`, `core.linux.*` and `core.filesystem.*`; checked by those modules. */
  readonly llm?: JsonObject | undefined;
  readonly linux?: JsonObject | undefined;
  readonly filesystem?: JsonObject | undefined;
}

/** A process (`command`) or something to connect to (`url`), never both. */
export interface ServerEntry {
  readonly command?: string | undefined;
  readonly args?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  /**
   * Whether the process must run in a sandbox; `preferred` unless given: with what the machine offers. A word hides what is
   * the gateway's; a profile hides everything that it does not name.
   */
  readonly sandbox?: "required" | "preferred" | "off" | SandboxEntry | undefined;
  readonly url?: string | undefined;
  /** `http` is Streamable HTTP. Found by the URL's scheme unless given. */
  readonly transport?: "http" | "sse" | "websocket" | "tcp" | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The API at `url` is described by this document: its operations are the server's tools. */
  readonly openapi?: OpenApiEntry | undefined;
  readonly auth?: ServerAuth | undefined;
  /** In front of its tools' names; "" for none. The server's own name unless given. */
  readonly prefix?: string | undefined;
  /**
   * How many processes or connections share the work; or one for each user, or for each session of a client (for each
   * caller where the client's revision has no sessions). `shared`, which is 1, unless given.
   */
  readonly instances?: number | "shared" | "per-user" | "per-session" | undefined;
  /** The only MCP revision that is spoken with the server; found out unless given. */
  readonly revision?: string | undefined;
  /**
   * When the process of a `command` is started: by the first call, where its definitions are known (`lazy`, unless
   * given), or with its application (`eager`).
   */
  readonly start?: "eager" | "lazy" | undefined;
  /** A process that was not used for so long is stopped until the next call; 0 for never, which is the default of `eager`. */
  readonly idleStopMs?: number | undefined;
  readonly timeoutMs?: number | undefined;
  /** How long a resource that was read may be used again, where the server states no time. Not at all unless given. */
  readonly resourceTtlMs?: number | undefined;
  /** Tools that change nothing, by pattern, on the operator's word. */
  readonly readOnly?: readonly string[] | undefined;
  /** Tools that need no guardrail, by pattern, on the operator's word. */
  readonly noGuardrail?: readonly string[] | undefined;
  /**
   * Fields of a request beside its arguments that the server receives, by pattern: `field` of `params`, `_meta/key`.
   * None unless given.
   */
  readonly forward?: readonly string[] | undefined;
  /** Whether new and changed definitions wait for an operator. `first` trusts what is seen first. */
  readonly pin?: "first" | "always-ask" | "off" | undefined;
  /** Changes of its definitions that are accepted in advance. */
  readonly pinRules?: readonly PinRule[] | undefined;
  readonly disabled?: boolean | undefined;
  /**
   * The key that registered it through the admin API. Such a server reaches private addresses only where the operator
   * named them, and always has its name as prefix. An operator removes this field to take the entry over.
   */
  readonly registeredBy?: string | undefined;
}

export interface OpenApiEntry {
  /** An address, or an absolute path on every machine of the gateway. */
  readonly document: string;
  /** Operations by id, tool name or `METHOD /path`; every operation unless given. */
  readonly include?: readonly string[] | undefined;
  readonly exclude?: readonly string[] | undefined;
  /** Names of tools by operation id. */
  readonly names?: Readonly<Record<string, string>> | undefined;
}

/** Everything a server may touch besides its own code, and a home and a /tmp of its own. */
export interface SandboxEntry {
  /** `required` unless given: without what the profile asks for, the server is not started. */
  readonly mode?: "required" | "preferred" | undefined;
  readonly read?: readonly string[] | undefined;
  readonly write?: readonly string[] | undefined;
  /** `off` unless given. `public`, also in a list: every public host by its name; `on`: the machine's network. */
  readonly network?: "off" | "public" | "on" | readonly string[] | undefined;
  /** Megabytes; 1024 unless given. */
  readonly memory?: number | undefined;
  /** Processors; 2 unless given. */
  readonly cpu?: number | undefined;
  /** Processes and threads; 256 unless given. */
  readonly processes?: number | undefined;
  /** What it touches is recorded; `portcullis server observe` proposes the profile that follows from it. */
  readonly observe?: boolean | undefined;
}

export interface PinRule {
  /** Recorded as the accepting operator. */
  readonly name: string;
  readonly kinds?: readonly ("tool" | "prompt" | "template" | "instructions")[] | undefined;
  /** Names, as a pattern. */
  readonly names?: string | undefined;
  /** Parts that may change, as paths: `description`, `annotations.title`; `*` is everything. */
  readonly fields?: readonly string[] | undefined;
  /** Definitions that were not there before. */
  readonly additions?: boolean | undefined;
}

export interface ServerAuth {
  readonly type: "oauth" | "bearer";
  /** Whose tokens: the application's one, or one for each user. */
  readonly per?: "application" | "user" | undefined;
  readonly token?: string | undefined;
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  /** Proves who the client is instead of a secret (`private_key_jwt`). PKCS #8 in PEM. */
  readonly privateKey?: string | undefined;
  readonly privateKeyId?: string | undefined;
  /** The authorization server that the client is registered with: its credentials are sent to no other. */
  readonly issuer?: string | undefined;
  /** Where the issuer's token endpoint is, when it is at another origin than the issuer. */
  readonly tokenEndpoint?: string | undefined;
  readonly scopes?: readonly string[] | undefined;
}

export interface RouteEntry {
  readonly server: string;
  /** The server sees the name without this prefix. True unless given. */
  readonly strip?: boolean | undefined;
}

export interface RateEntry {
  readonly perMinute?: number | undefined;
  readonly perHour?: number | undefined;
  /** Counted by each replica and worker for itself; the others are counted together. */
  readonly concurrent?: number | undefined;
  readonly bytesPerMinute?: number | undefined;
  readonly costPerHour?: number | undefined;
}

export interface ApplicationLimits {
  /** All calls of the application together; those of one agent; those of one agent to one tool. */
  readonly app?: RateEntry | undefined;
  readonly agent?: RateEntry | undefined;
  readonly tool?: RateEntry | undefined;
  readonly approvals?: ApprovalBounds | undefined;
  /** What a call of a tool costs, by pattern; 1 unless named. */
  readonly costs?: Readonly<Record<string, number>> | undefined;
}

/** A guardrail by a JavaScript file of the data directory (`module`) or by a tool of the application (`call`). */
export interface GuardrailEntry {
  readonly id: string;
  /** Exact agent, or `*` for every agent, which is the default. */
  readonly agent?: string | undefined;
  /** Exact tool name, a prefix ending in `*`, or `*`. */
  readonly tool: string;
  readonly module?: string | undefined;
  readonly call?: string | undefined;
}

/** Bounds of approval requests; the gate's defaults apply to what is not named. */
export interface ApprovalBounds {
  /** Open at once: of the application, of one agent. */
  readonly perApp?: number | undefined;
  readonly perAgent?: number | undefined;
  /** What an approver can be asked to read: arguments and everything else that is forwarded. */
  readonly maxBytes?: number | undefined;
}

export interface ApplicationKeyEntry {
  readonly agent?: string | undefined;
  readonly permissions: readonly string[];
  readonly perMinute?: number | undefined;
  readonly perHour?: number | undefined;
}

const NAME = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$";
const NAME_SAYS = "it has letters, digits, - and _, begins with a letter or digit, and at most 63 characters";
const DOTTED = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\\.[A-Za-z0-9][A-Za-z0-9_-]{0,62}){0,15}$";
const VARIABLE = "^[A-Za-z_][A-Za-z0-9_]{0,127}$";
const HEADER = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$";
const PATTERN = "^[A-Za-z0-9_*./-]{1,256}$";
const MAX_TEXT = 32_768;
const MAX_RATE = 1_000_000_000;
/** The whole document as JSON. */
export const MAX_DOCUMENT_BYTES = 1024 * 1024;

const APPLICATION_ID = new RegExp(NAME);

const line = (about: string, max = 4096): Shape<string> => textShape(about, { min: 1, max });
const pattern = (about: string): Shape<string> =>
  textShape(about, {
    max: 256,
    pattern: PATTERN,
    patternSays: "must be a tool name or pattern: letters, digits, _ - . / and *",
  });
const patterns = (about: string): Shape<readonly string[]> => list(about, pattern("a name or pattern"), { max: 1000 });
const count = (about: string, max = MAX_RATE): Shape<number> => integer(about, { min: 1, max });

const auth: Shape<ServerAuth> = object("how the gateway authenticates to the server", {
  type: required(oneOf("the kind of credential", ["oauth", "bearer"])),
  per: optional(oneOf("whose tokens", ["application", "user"])),
  token: optional(line("the bearer token; write ${secret:NAME}", MAX_TEXT)),
  clientId: optional(line("the OAuth client's id")),
  clientSecret: optional(line("the OAuth client's secret; write ${secret:NAME}")),
  privateKey: optional(line("the client's private key in PEM, instead of a secret; write ${secret:NAME}", MAX_TEXT)),
  privateKeyId: optional(line("the id under which the issuer knows that key", 256)),
  issuer: optional(line("the authorization server that the client is registered with; required with clientId", 2_048)),
  tokenEndpoint: optional(line("the issuer's token endpoint, when it is at another origin than the issuer", 2_048)),
  scopes: optional(list("the scopes to ask for", line("a scope", 256), { max: 100 })),
});

const pinRule: Shape<PinRule> = object("a rule about changed definitions", {
  name: required(textShape("the rule's name", { max: 63, pattern: NAME, patternSays: NAME_SAYS })),
  kinds: optional(
    list("kinds of definitions", oneOf("a kind", ["tool", "prompt", "template", "instructions"]), { max: 4 }),
  ),
  names: optional(line("names, as a pattern", 2048)),
  fields: optional(list("parts that may change", line("a path like annotations.title", 256), { max: 100 })),
  additions: optional(flag("definitions that were not there before are accepted")),
});

const paths = (about: string): Shape<readonly string[]> =>
  list(
    about,
    textShape("a path", { max: 4096, pattern: "^(~|~?/.*)$", patternSays: "must be absolute, or begin with ~/" }),
    {
      max: 64,
    },
  );

const HOST = "^(\\*\\.)?([A-Za-z0-9_-]{1,63}\\.){0,16}[0-9-]{0,62}[A-Za-z][A-Za-z0-9-]{0,62}(:[0-9]{1,5})?$";
const HOST_SAYS = "must be a name like api.example.com, *.example.com or localhost:5432; addresses have no name";

const profile: Shape<SandboxEntry> = object(
  "everything the server may touch; what is not named does not exist for it",
  {
    mode: optional(oneOf("whether it is started where the machine cannot give all of this", ["required", "preferred"])),
    read: optional(paths("directories and files that it may read")),
    write: optional(paths("directories and files that it may read and change")),
    network: optional(
      wordOr(
        oneOf("which hosts it reaches; public is every public host by its name, on is the machine's network", [
          "off",
          "public",
          "on",
        ]),
        list("the hosts that it reaches", textShape("a host", { max: 300, pattern: HOST, patternSays: HOST_SAYS }), {
          max: 100,
        }),
      ),
    ),
    memory: optional(count("megabytes of memory", 1_048_576)),
    cpu: optional(count("processors", 1_024)),
    processes: optional(count("processes and threads at once", 100_000)),
    observe: optional(flag("record what it touches, for `portcullis server observe`; slower")),
  },
);

const operations = (about: string): Shape<readonly string[]> =>
  list(about, line("an operation id, a tool name or `METHOD /path`; * matches any text", 512), { max: 1_000 });

const openapi: Shape<OpenApiEntry> = object("the document of an HTTP API whose operations are the server's tools", {
  document: required(
    textShape("its address, or an absolute path", {
      max: 4_096,
      pattern: "^(https?://|/).+",
      patternSays: "must be an address or an absolute path",
    }),
  ),
  include: optional(operations("the operations that become tools; all unless given")),
  exclude: optional(operations("operations that do not become tools")),
  names: optional(
    record("names of tools by operation id", textShape("a tool's name", { max: 64, pattern: "^[A-Za-z0-9_.-]+$" }), {
      max: 1_000,
      names: "^.{1,512}$",
      namesSay: "it is an operation id",
    }),
  ),
});

/** Spoken with servers alone. */
const FIRST_REVISION = "2024-11-05";

const server: Shape<ServerEntry> = object("a downstream MCP server", {
  command: optional(line("the program of a stdio server")),
  args: optional(list("its arguments", textShape("an argument", { max: MAX_TEXT }), { max: 256 })),
  env: optional(
    record("its environment", textShape("a value", { max: MAX_TEXT }), {
      max: 256,
      names: VARIABLE,
      namesSay: "it has letters, digits and _ and begins with no digit",
    }),
  ),
  cwd: optional(line("the directory it runs in")),
  sandbox: optional(
    wordOr(
      oneOf("whether it must run in a sandbox that keeps the gateway's files and processes out of its reach", [
        "required",
        "preferred",
        "off",
      ]),
      profile,
    ),
  ),
  url: optional(line("where it listens")),
  transport: optional(oneOf("transport of that server", ["http", "sse", "websocket", "tcp"])),
  headers: optional(
    record("headers to send", textShape("a value", { max: MAX_TEXT }), {
      max: 64,
      names: HEADER,
      namesSay: "it must be a header's name",
    }),
  ),
  openapi: optional(openapi),
  auth: optional(auth),
  prefix: optional(
    textShape("in front of its tools' names", {
      max: 200,
      pattern: `^$|${DOTTED}`,
      patternSays: "must be names joined by dots, or empty",
    }),
  ),
  instances: optional(
    wordOr(
      oneOf("one for all, for each user, or for each session of a client", ["shared", "per-user", "per-session"]),
      count("how many share the work", 64),
    ),
  ),
  revision: optional(oneOf("the only MCP revision that is spoken with it", [...SUPPORTED_VERSIONS, FIRST_REVISION])),
  start: optional(oneOf("when its process is started: by the first call, or with its application", ["eager", "lazy"])),
  idleStopMs: optional(
    integer("a process that was not used for so long is stopped until the next call; 0 for never", {
      min: 0,
      max: 86_400_000,
    }),
  ),
  timeoutMs: optional(count("how long one call may take", 3_600_000)),
  resourceTtlMs: optional(count("how long a resource may be used again", 3_600_000)),
  readOnly: optional(patterns("tools that change nothing")),
  noGuardrail: optional(patterns("tools that need no guardrail")),
  forward: optional(
    list(
      "fields beside the arguments that the server receives",
      line("a field, or `_meta/` and a key; * matches any text", 256),
      {
        max: 100,
      },
    ),
  ),
  pin: optional(oneOf("what happens to new definitions", ["first", "always-ask", "off"])),
  pinRules: optional(list("changes that are accepted in advance", pinRule, { max: 100 })),
  disabled: optional(flag("known, but not connected")),
  registeredBy: optional(
    line("the key that registered it through the admin API; remove it to take the entry over", 128),
  ),
});

const rate: Shape<RateEntry> = object("a limit", {
  perMinute: optional(count("calls in a minute")),
  perHour: optional(count("calls in an hour")),
  concurrent: optional(count("calls at once, counted by each replica and worker for itself", 100_000)),
  bytesPerMinute: optional(count("bytes of arguments and results in a minute", Number.MAX_SAFE_INTEGER)),
  costPerHour: optional(count("the sum of what calls cost in an hour")),
});

const limits: Shape<ApplicationLimits> = object("limits", {
  app: optional(rate),
  agent: optional(rate),
  tool: optional(rate),
  approvals: optional(
    object("bounds of approval requests", {
      perApp: optional(count("approval requests of the application open at once; 1000 unless given", 100_000)),
      perAgent: optional(count("approval requests of one agent open at once; 100 unless given", 100_000)),
      maxBytes: optional(count("bytes of a call that an approver can be asked to read; 65536 unless given", 4_194_304)),
    }),
  ),
  costs: optional(
    record("what a call costs", integer("the cost", { min: 0, max: 1_000_000 }), {
      max: 1000,
      names: PATTERN,
      namesSay: "it must be a tool name or pattern",
    }),
  ),
});

const keyEntry: Shape<ApplicationKeyEntry> = object("what keys of this name may do", {
  agent: optional(
    textShape("the agent; the key's name unless given", { max: 63, pattern: NAME, patternSays: NAME_SAYS }),
  ),
  permissions: required(list("permissions", line("a permission", 300), { max: 1000 })),
  perMinute: optional(count("calls in a minute")),
  perHour: optional(count("calls in an hour")),
});

const guardrail: Shape<GuardrailEntry> = object("a guardrail", {
  id: required(textShape("its name in records", { max: 63, pattern: NAME, patternSays: NAME_SAYS })),
  agent: optional(line("an agent, or * for every agent", 256)),
  tool: required(pattern("a tool, a prefix ending in *, or *")),
  module: optional(
    textShape("a file of the directory `guardrails` of the data directory", {
      max: 128,
      pattern: "^[A-Za-z0-9_][A-Za-z0-9_-]{0,100}\\.m?js$",
      patternSays: "must be a file name like check.mjs, without a directory",
    }),
  ),
  call: optional(pattern('a tool of this application that answers {"allow": true}')),
});

const names = { names: NAME, namesSay: NAME_SAYS };

/** The fields of an application, for files that give some of them in another form. */
export const applicationFields = {
  description: optional(textShape("description for operators", { max: 1000 })),
  config: optional(anyObject("values for core.framework.getConfigValue")),
  servers: optional(record("downstream servers by name", server, { max: 256, ...names })),
  routes: optional(
    record(
      "where names lead, by prefix",
      object("a route", {
        server: required(line("a name under servers", 63)),
        strip: optional(flag("the server sees names without the prefix")),
      }),
      { max: 1000, names: DOTTED, namesSay: "it is a prefix like community.aws.s3" },
    ),
  ),
  names: optional(oneOf("how tools are listed", ["full", "short", "search"])),
  permissions: optional(patterns("core tools that the application may use")),
  limits: optional(limits),
  policies: optional(
    record("Cedar texts by file name", textShape("Cedar", { max: 512 * 1024 }), {
      max: 100,
      names: "^[A-Za-z0-9_][A-Za-z0-9_./-]{0,254}$",
      namesSay: "it is a relative file name",
    }),
  ),
  guardrails: optional(list("callbacks that run before a tool does", guardrail, { max: 100 })),
  flow: optional(flowShape),
  keys: optional(record("keys by name", keyEntry, { max: 1000, ...names })),
  llm: optional(anyObject("the provider for core.llm")),
  linux: optional(anyObject("commands for core.linux")),
  filesystem: optional(anyObject("directories for core.filesystem")),
};

const applicationShape: Shape<ApplicationDocument> = object("an application", applicationFields);

export class ApplicationInvalid extends StorageError {
  readonly problems: readonly ShapeProblem[];
  constructor(what: string, problems: readonly ShapeProblem[]) {
    const listed = problems.slice(0, 20).map(({ path, message }) => `${pathText(path) || "the document"}: ${message}`);
    super("STORAGE_INVALID", `${what} is not valid: ${listed.join("; ")}`);
    this.name = "ApplicationInvalid";
    this.problems = problems;
  }
}

/** Everything that is wrong with it, or nothing. */
export function applicationProblems(value: unknown, at: Path = []): ShapeProblem[] {
  const problems: ShapeProblem[] = [];
  const document = applicationShape.check(value, at, problems);
  if (document) problems.push(...contradictions(document, at));
  return problems;
}

/** The document with nothing in it that is not known, or `ApplicationInvalid`. */
export function checkApplication(id: string, value: unknown): ApplicationDocument {
  if (!APPLICATION_ID.test(id)) {
    throw new ApplicationInvalid(`application ${JSON.stringify(id)}`, [{ path: ["id"], message: NAME_SAYS }]);
  }
  const problems = applicationProblems(value);
  if (problems.length > 0) throw new ApplicationInvalid(`application ${id}`, problems);
  const bytes = Buffer.byteLength(JSON.stringify(value));
  if (bytes > MAX_DOCUMENT_BYTES) {
    const message = `has ${bytes} bytes; at most ${MAX_DOCUMENT_BYTES} are allowed`;
    throw new ApplicationInvalid(`application ${id}`, [{ path: [], message }]);
  }
  return value as ApplicationDocument;
}

function contradictions(document: ApplicationDocument, at: Path): ShapeProblem[] {
  const problems: ShapeProblem[] = [];
  for (const [name, entry] of Object.entries(document.servers ?? {})) {
    problems.push(...serverProblems(entry, entry.prefix ?? name, [...at, "servers", name]));
  }
  for (const [prefix, route] of Object.entries(document.routes ?? {})) {
    if (Object.hasOwn(document.servers ?? {}, route.server)) continue;
    const known = Object.keys(document.servers ?? {}).join(", ") || "none";
    const message = `there is no server \`${route.server}\` in this application; known: ${known}`;
    problems.push({ path: [...at, "routes", prefix, "server"], message });
  }
  for (const [index, { id, module, call }] of (document.guardrails ?? []).entries()) {
    if ((module === undefined) !== (call === undefined)) continue;
    const message = `guardrail \`${id}\` needs either \`module\` or \`call\``;
    problems.push({ path: [...at, "guardrails", index], message });
  }
  return problems;
}

const CORE_SAYS = "names under core are reserved; choose another prefix, or route core to a Core server under routes";

function isCore(prefix: string): boolean {
  return prefix === "core" || prefix.startsWith("core.");
}

const LITERAL_SAYS = "holds a credential in clear; store it with `portcullis secret set` and write ${secret:NAME}";
const CREDENTIAL_HEADERS = new Set(["authorization", "proxy-authorization", "cookie", "x-api-key"]);

/** Parts of an address that are nothing else. What only looks like one is taken, and not shown. */
const IN_AN_ADDRESS =
  /^(url-password|url-user|(x-)?(api|access|auth|secret|private|subscription)?[-_]?(key|token)|(client[-_]?)?secret|password|passwd|pass|pwd)$/i;

function credentialsOf({ auth, headers = {} }: ServerEntry): { at: string[]; value: string }[] {
  const found: { at: string[]; value: string }[] = [];
  for (const field of ["token", "clientSecret", "privateKey"] as const) {
    const value = auth?.[field];
    if (value !== undefined) found.push({ at: ["auth", field], value });
  }
  for (const [name, value] of Object.entries(headers)) {
    if (CREDENTIAL_HEADERS.has(name.toLowerCase())) found.push({ at: ["headers", name], value });
  }
  return found;
}

/** At least the secret part is a reference, like `Bearer ${secret:TOKEN}`. */
function isReference(value: string): boolean {
  return /\$\{(secret|env):[^}]+\}/.test(value);
}

const OF_A_PROCESS = ["args", "env", "cwd", "sandbox"] as const;
const OF_AN_ADDRESS = ["transport", "headers", "auth", "openapi"] as const;

function serverProblems(entry: ServerEntry, prefix: string, path: Path): ShapeProblem[] {
  if ((entry.command === undefined) === (entry.url === undefined)) {
    return [{ path, message: "must have either `command` or `url`" }];
  }
  const foreign = entry.command === undefined ? OF_A_PROCESS : OF_AN_ADDRESS;
  const needs = entry.command === undefined ? "command" : "url";
  const problems: ShapeProblem[] = foreign
    .filter((field) => entry[field] !== undefined)
    .map((field) => ({ path: [...path, field], message: `belongs to a server with \`${needs}\``, atKey: true }));
  if (entry.registeredBy !== undefined && entry.command !== undefined) {
    problems.push({ path: [...path, "command"], message: "a server that a key registered cannot start a program" });
  }
  if (entry.registeredBy !== undefined && entry.prefix !== undefined) {
    problems.push({ path: [...path, "prefix"], message: "a server that a key registered has its name as prefix" });
  }
  if (entry.openapi !== undefined && entry.transport !== undefined) {
    problems.push({ path: [...path, "transport"], message: "an API with `openapi` is reached by HTTP: remove it" });
  }
  if (entry.auth?.type === "bearer" && entry.auth.token === undefined) {
    problems.push({ path: [...path, "auth"], message: "field `token` is missing" });
  }
  if (entry.auth) problems.push(...clientProblems(entry.auth, [...path, "auth"]));
  for (const { at, value } of credentialsOf(entry)) {
    if (!isReference(value)) problems.push({ path: [...path, ...at], message: LITERAL_SAYS });
  }
  if (credentialsInUrl(entry.url ?? "").some(({ name }) => IN_AN_ADDRESS.test(name))) {
    problems.push({ path: [...path, "url"], message: LITERAL_SAYS });
  }
  if (isCore(prefix)) problems.push({ path: [...path, "prefix"], message: CORE_SAYS });
  return problems;
}

/** What a stored document from before `issuer` was required lacks; undefined when nothing is missing. */
function missingIssuer({ clientId, clientSecret, privateKey, issuer }: ServerAuth): string | undefined {
  if (issuer !== undefined || (clientId ?? clientSecret ?? privateKey) === undefined) return undefined;
  return "field `issuer` is missing: name the authorization server that the client is registered with, such as https://login.example; its credentials are sent to no other";
}

function clientProblems(auth: ServerAuth, path: Path): ShapeProblem[] {
  const problems: ShapeProblem[] = [];
  const missing = missingIssuer(auth);
  if (missing !== undefined) problems.push({ path, message: missing });
  if (auth.clientId === undefined && (auth.clientSecret ?? auth.privateKey) !== undefined) {
    problems.push({
      path,
      message: "field `clientId` is missing: a secret or a private key belongs to a registered client",
    });
  }
  for (const field of ["issuer", "tokenEndpoint"] as const) {
    const value = auth[field];
    if (value === undefined || isReference(value) || isHttpAddress(value)) continue;
    problems.push({ path: [...path, field], message: "must be an https address without user, query and fragment" });
  }
  return problems;
}

function isHttpAddress(value: string): boolean {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  // Plain http is for loopback alone; the OAuth client sees to it.
  return url !== undefined && /^https?:$/.test(url.protocol) && `${url.username}${url.search}${url.hash}` === "";
}
