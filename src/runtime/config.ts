// The settings of a gateway process. One table gives the flags of `serve`, the variables of the environment, the section
// `gateway` of portcullis.yaml with its JSON Schema, and docs/reference/configuration.md.

import { type Command, InvalidArgumentError, Option } from "commander";
import type { GatewayLimits } from "../gateway/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import {
  flag as booleanShape,
  list as listShape,
  object,
  oneOf,
  optional,
  type Shape,
  type ShapeProblem,
  textShape,
} from "../mcp/index.js";

/** `Kind` describes the values of a setting. */
interface Kind<T> {
  /** What follows the flag; absent for a switch. */
  readonly placeholder?: string;
  readonly allowed: string;
  /** The value that a text of a flag or variable stands for, as portcullis.yaml would have it. */
  read(text: string): unknown;
  shape(says: string): Shape<T>;
  readonly choices?: readonly string[];
  /** A list whose flag takes several words. */
  readonly isVariadic?: boolean;
}

interface Setting<T> {
  readonly kind: Kind<T>;
  readonly says: string;
  readonly default?: T;
  /** What applies where nothing is set and `default` is not ours to apply. */
  readonly usual?: string;
  /** Another name than that of the setting. */
  readonly env?: string;
}

interface DefaultedSetting<T> extends Setting<T> {
  readonly default: T;
}

const readNumber = (text: string): unknown => (text.trim() === "" ? text : Number(text));

function number(placeholder: string, min: number, max: number, { isWhole = true } = {}): Kind<number> {
  const allowed = `a ${isWhole ? "whole " : ""}number from ${min} to ${max}`;
  return {
    placeholder: `<${placeholder}>`,
    allowed,
    read: readNumber,
    shape: (says) => ({
      schema: { type: isWhole ? "integer" : "number", description: says, minimum: min, maximum: max },
      check(value, path, problems) {
        const isRight =
          typeof value === "number" && value >= min && value <= max && (!isWhole || Number.isInteger(value));
        if (isRight) return value;
        problems.push({ path, message: `must be ${allowed}` });
        return undefined;
      },
    }),
  };
}

function text(placeholder: string, pattern?: string, allowed = "text"): Kind<string> {
  const rule = pattern === undefined ? {} : { pattern, patternSays: `must be ${allowed}` };
  return {
    placeholder: `<${placeholder}>`,
    allowed,
    read: (given) => given,
    shape: (says) => textShape(says, { min: 1, max: 4_096, ...rule }),
  };
}

function choice<const T extends string>(placeholder: string, choices: readonly T[]): Kind<T> {
  const shape = (says: string): Shape<T> => oneOf(says, choices);
  return { placeholder: `<${placeholder}>`, allowed: choices.join(", "), read: (given) => given, shape, choices };
}

/** A flag takes several words, or is given several times; a variable has commas. */
function list(placeholder: string): Kind<readonly string[]> {
  const item = textShape(placeholder, { min: 1, max: 4_096 });
  return {
    placeholder: `<${placeholder}...>`,
    allowed: "a list of texts",
    read: (given) => given.split(",").filter((each) => each !== ""),
    shape: (says) => listShape(says, item, { max: 1_000 }),
    isVariadic: true,
  };
}

const SWITCH: Kind<boolean> = {
  allowed: "true, false",
  read: (given) => (given === "true" ? true : given === "false" ? false : given),
  shape: booleanShape,
};

const PORT = number("number", 0, 65_535);
const SECONDS = number("seconds", 0, 3_600, { isWhole: false });
const COUNT = number("number", 1, 1_000_000);
const MIB = 1024 * 1024;
const WEB_URL = text("url", "^https?://[^\\s]+$", "a URL that begins with http:// or https://");

export const GATEWAY_LOG_LEVELS = ["debug", "info", "notice", "warning", "error", "critical"] as const;

const LISTEN = {
  host: { kind: text("address"), says: "address to listen on", default: "127.0.0.1" },
  // Kubernetes sets PORTCULLIS_PORT in every pod beside a service of the name portcullis.
  port: { kind: PORT, says: "HTTP port; 0 lets the system choose", default: 7420, env: "PORTCULLIS_HTTP_PORT" },
  tcpPort: { kind: PORT, says: "also serve newline-delimited JSON on this TCP port" },
  wsPort: { kind: PORT, says: "also serve WebSocket on this port" },
  stdio: { kind: SWITCH, says: "serve on stdin and stdout instead of HTTP" },
  allowHost: { kind: list("name"), says: "host names that the gateway answers to besides loopback" },
  allowOrigin: { kind: list("origin"), says: "web origins that may call it" },
  publicUrl: { kind: WEB_URL, says: "public URL of this gateway, for authorization servers" },
  addressConnections: { kind: COUNT, says: "connections of one remote address", usual: "5000" },
  maxConnections: { kind: COUNT, says: "connections of one listener", usual: "10000" },
  maxMessageBytes: {
    kind: number("bytes", 1_024, 64 * MIB),
    says: "size of one message of a caller",
    usual: "4194304",
  },
  workers: { kind: number("number", 1, 64), says: "processes that share the work on this machine", usual: "1" },
} as const satisfies Group;

const DECIDE = {
  policy: { kind: list("path"), says: "policy files or directories", usual: "those of the data directory" },
  observe: { kind: SWITCH, says: "decide and record, but do not enforce the policy" },
  readOnly: { kind: list("tool"), says: "tools whose decision need not be durable before they run" },
  modules: {
    kind: {
      ...list("names"),
      placeholder: "<names>",
      allowed: "built-in names and files such as ./mine.mjs, separated by commas",
      isVariadic: false,
    },
    says: "tool modules to load; an empty text loads none",
    usual: "all built-in modules",
  },
  app: { kind: text("name"), says: "application of local callers", usual: "local" },
  workflow: { kind: text("file"), says: "serve the agents of a workflow, each with what was delegated to it" },
  trustGateway: { kind: list("key"), says: "public keys of gateways whose delegations are accepted too" },
  allowPrivate: {
    kind: list("host"),
    says: "private hosts, HOST:PORT and ranges that may be reached besides those of servers",
  },
  documentationUrl: {
    kind: WEB_URL,
    says: "page that error objects refer to",
    usual: "/docs/errors of this gateway",
  },
} as const satisfies Group;

const IDENTIFY = {
  localAccess: {
    kind: SWITCH,
    says: "serve this machine's user without a credential; refused once a key or issuer was configured",
    usual: "on until a key or issuer is configured",
  },
  oauth: { kind: text("file"), says: "accept access tokens of the issuers in this file" },
} as const satisfies Group;

const APPROVE = {
  challengeWait: { kind: SECONDS, says: "how long a call waits for its approval before it is answered", default: 45 },
  approvalWebhook: {
    kind: WEB_URL,
    says: "URL that gets a signed request when a call waits for approval",
  },
  adminPort: {
    kind: PORT,
    says: "port for health, metrics and approvals",
    default: 7421,
    env: "PORTCULLIS_ADMIN_HTTP_PORT",
  },
  adminHost: { kind: text("address"), says: "address of the admin port", default: "127.0.0.1" },
  adminUrl: { kind: WEB_URL, says: "URL of the admin port for approvers, used in approval links" },
} as const satisfies Group;

const RECORD = {
  ledger: { kind: text("directory"), says: "directory of this process's ledger", usual: "in the data directory" },
  lockTimeout: {
    kind: SECONDS,
    says: "how long to wait for the lock of the ledger that --ledger names",
    usual: "0.5",
  },
  keepArguments: { kind: SWITCH, says: "keep arguments in the ledger, for `audit replay` and `policy suggest`" },
  outcomes: {
    kind: choice("durability", ["flush", "lazy"]),
    says: "whether an answer waits until its outcome is durable (flush) or not (lazy)",
    default: "lazy",
  },
  compressLedger: { kind: SWITCH, says: "compress closed files of the ledger", default: true },
  archive: { kind: text("location"), says: "copy closed files of the ledger to a directory or s3://BUCKET/PREFIX" },
  keepDays: {
    kind: number("days", 0.001, 100_000, { isWhole: false }),
    says: "prune archived files of the ledger when all records in them are older",
  },
  keepSize: {
    kind: number("mib", 0, 1024 * MIB, { isWhole: false }),
    says: "prune the oldest archived files of the ledger when all files have more MiB",
  },
  publish: { kind: text("file"), says: "also write signed checkpoints to this file" },
  logLevel: {
    kind: choice("level", GATEWAY_LOG_LEVELS),
    says: "least severe messages that are logged",
    default: "notice",
  },
} as const satisfies Group;

const STORE = {
  storage: {
    kind: text("address", "^(sqlite:|postgres(ql)?:\\/\\/)", "sqlite:FILE or postgres://…"),
    says: "store of the applications",
    usual: "a file in the data directory",
  },
  storageConnections: {
    kind: number("number", 2, 100),
    says: "connections to PostgreSQL, besides the one that listens for changes",
    usual: "4",
  },
  storageListen: {
    kind: text("address", "^(none$|postgres(ql)?:\\/\\/)", "a URL that begins with postgres://, or none for polling"),
    says: "where to listen for changes when --storage is a pooler such as PgBouncer",
  },
  sealKey: {
    kind: text("source"),
    says: "seal key: env:NAME, file:PATH or keyring:NAME",
    usual: "a file in the data directory",
    env: "PORTCULLIS_SEAL_KEY_SOURCE",
  },
  replica: { kind: text("name"), says: "name of this process among others on the same store" },
} as const satisfies Group;

const LIMITS = {
  memoryBudget: {
    kind: number("mib", 64, 1024 * MIB),
    says: "MiB that callers and servers may make the process keep",
    usual: "160",
  },
  maxCalls: { kind: COUNT, says: "calls in flight in this process", usual: "4096" },
  maxAppCalls: { kind: COUNT, says: "calls in flight of one application", usual: "2048" },
  maxAgentCalls: { kind: COUNT, says: "calls in flight of one agent", usual: "1024" },
  maxCallDepth: { kind: number("number", 1, 64), says: "how deep tools may call tools", usual: "8" },
  maxResultBytes: {
    kind: number("bytes", 1_024, 64 * MIB),
    says: "size of one result; longer text is cut, other content is refused",
    usual: "4194304",
  },
  maxSessions: { kind: COUNT, says: "sessions of all callers", usual: "10000" },
  sessionIdle: { kind: number("seconds", 1, 86_400), says: "end a session that was not used so long", usual: "1800" },
  pageSize: { kind: number("number", 1, 10_000), says: "entries in one page of a list", usual: "1000" },
  queueDeadline: { kind: number("ms", 1, 1_000_000), says: "refuse requests that waited longer", usual: "5000" },
  toolTimeout: { kind: SECONDS, says: "how long a tool may run, where it has no timeout of its own", usual: "30" },
  validationTimeout: {
    kind: SECONDS,
    says: "how long the validation of arguments of an upstream tool may take",
    usual: "5",
  },
  discoveryTimeout: {
    kind: SECONDS,
    says: "how long an upstream server may take to answer `server/discover`",
    usual: "5",
  },
  askTimeout: { kind: SECONDS, says: "how long a request to the client may stay open", usual: "300" },
  refusalsPerMinute: {
    kind: COUNT,
    says: "refused calls of one credential that are decided and recorded each",
    usual: "3000",
  },
  serverRequests: { kind: COUNT, says: "requests of one upstream server to clients in a minute", usual: "60" },
  idleStop: {
    kind: SECONDS,
    says: "stop the process of an upstream server that was not used so long; 0 for never",
    usual: "1800",
  },
  shutdownDelay: { kind: SECONDS, says: "continue to serve this long after /readyz fails at SIGTERM", default: 0 },
  shutdownTimeout: { kind: SECONDS, says: "time for calls in flight at SIGTERM", default: 30 },
} as const satisfies Group;

type Group = Readonly<Record<string, Setting<unknown> & { readonly kind: Kind<any> }>>;

const GROUPS = {
  "Listen:": LISTEN,
  "Decide:": DECIDE,
  "Identify callers:": IDENTIFY,
  "Approve:": APPROVE,
  "Record:": RECORD,
  "Store:": STORE,
  "Limits:": LIMITS,
};
const SETTINGS = { ...LISTEN, ...DECIDE, ...IDENTIFY, ...APPROVE, ...RECORD, ...STORE, ...LIMITS };

type Table = typeof SETTINGS;
type Name = keyof Table;
type ValueOf<S> = S extends { readonly kind: Kind<infer T> } ? T : never;

/** `Settings` is what a process runs with: flags before variables, these before portcullis.yaml, then the defaults. */
export type Settings = {
  readonly [K in Name as Table[K] extends DefaultedSetting<any> ? K : never]: ValueOf<Table[K]>;
} & { readonly [K in Name as Table[K] extends DefaultedSetting<any> ? never : K]?: ValueOf<Table[K]> };

const ALL = Object.entries(SETTINGS) as [Name, Setting<unknown>][];
const kebab = (name: string): string => name.replaceAll(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`);
const variableOf = (name: string, { env }: Setting<unknown>): string =>
  env ?? `PORTCULLIS_${kebab(name).replaceAll("-", "_").toUpperCase()}`;

function checked(setting: Setting<unknown>, value: unknown): { value: unknown } | { message: string } {
  const problems: ShapeProblem[] = [];
  const found = setting.kind.shape(setting.says).check(value, [], problems);
  const [first] = problems;
  return first ? { message: first.message } : { value: found };
}

/** The parser of a flag's text, for options of other commands with the same values. */
export function parserOf(name: Name): (given: string, before?: unknown) => any {
  const setting: Setting<unknown> = SETTINGS[name];
  const { isVariadic, read } = setting.kind;
  return (given, before) => {
    const result = checked(setting, isVariadic ? [given] : read(given));
    if ("message" in result) throw new InvalidArgumentError(result.message);
    return isVariadic && Array.isArray(before) ? [...before, given] : result.value;
  };
}

/** The options of `serve` for this setting. */
export function optionsFor(name: Name): Option[] {
  const setting: Setting<unknown> = SETTINGS[name];
  const { kind, says, usual } = setting;
  const flag = `--${kebab(name)}`;
  if (kind === SWITCH) {
    const on = new Option(flag, says);
    const off = new Option(
      `--no-${kebab(name)}`,
      setting.default === true ? `do not ${says}` : `switch ${flag} off for good`,
    );
    return setting.default === true ? [off] : name === "localAccess" ? [on, off] : [on];
  }
  const option = new Option(`${flag} ${kind.placeholder}`, usual === undefined ? says : `${says} (default: ${usual})`);
  if (setting.default !== undefined) option.default(setting.default);
  return [kind.choices ? option.choices(kind.choices) : option.argParser(parserOf(name))];
}

/** Adds the options of all settings, in groups. */
export function addSettings(command: Command): Command {
  for (const [heading, group] of Object.entries(GROUPS)) {
    for (const name of Object.keys(group)) {
      for (const option of optionsFor(name as Name)) command.addOption(option.helpGroup(heading));
    }
  }
  return command;
}

/** The settings that flags, the environment and the section `gateway` of portcullis.yaml give. */
export function settingsOf(command: Command, env: NodeJS.ProcessEnv, file: Partial<Settings> = {}): Settings {
  const values: Record<string, unknown> = {};
  for (const [name, setting] of ALL) {
    const isFlag = command.getOptionValueSource(name) === "cli";
    const variable = variableOf(name, setting);
    const text = env[variable];
    if (isFlag) values[name] = command.getOptionValue(name);
    else if (text !== undefined && (text !== "" || name === "modules")) {
      const result = checked(setting, setting.kind.read(text));
      if ("message" in result) throw new CliError(`${variable} ${result.message}`, EXIT.usage, `it is ${setting.says}`);
      values[name] = result.value;
    } else values[name] = file[name] ?? setting.default;
  }
  return values as unknown as Settings;
}

/** The section `gateway` of portcullis.yaml; where the store is stands beside it, for `app apply`. */
export const gatewayShape = object(
  "settings of the gateway process; flags and variables of the environment count before them",
  Object.fromEntries(
    ALL.filter(([name]) => name !== "storage" && name !== "sealKey").map(
      ([name, { kind, says, usual, default: given }]) => {
        const value = usual ?? (given === undefined ? undefined : JSON.stringify(given));
        return [name, optional(kind.shape(value === undefined ? says : `${says} (default: ${value})`))];
      },
    ),
  ),
) as unknown as Shape<Partial<Settings>>;

/** docs/reference/configuration.md. */
export function configurationPage(): string {
  const cell = (given: string): string => given.replaceAll("|", "\\|");
  const row = (name: string, setting: Setting<unknown>): string => {
    const given = setting.default === undefined ? (setting.usual ?? "–") : JSON.stringify(setting.default);
    const key = name === "storage" || name === "sealKey" ? `${name} (beside \`gateway\`)` : name;
    const flag = `--${setting.default === true ? "no-" : ""}${kebab(name)}`;
    const cells = [key, `\`${flag}\``, `\`${variableOf(name, setting)}\``, setting.says, setting.kind.allowed, given];
    return `| ${cells.map(cell).join(" | ")} |`;
  };
  const tables = Object.entries(GROUPS).map(([heading, group]) =>
    [
      `## ${heading.slice(0, -1)}`,
      "",
      "| portcullis.yaml | flag | variable | meaning | allowed | default |",
      "|---|---|---|---|---|---|",
      ...Object.entries(group).map(([name, setting]) => row(name, setting)),
    ].join("\n"),
  );
  return `${PAGE_HEAD}\n${tables.join("\n\n")}\n`;
}

const PAGE_HEAD = `# Configuration

After this page you can set every bound and address of a gateway, by flag, by variable or in a file.

A flag of \`portcullis serve\` counts before the variable, the variable before the section \`gateway\` of portcullis.yaml,
and that before the default. \`serve\` reads the file that \`--config\` or \`PORTCULLIS_CONFIG\` names, otherwise
\`portcullis.yaml\` in the data directory. A value that is not allowed stops the start and names the allowed ones. In a
variable, a list has commas.

\`\`\`yaml
gateway:
  port: 8080
  logLevel: info
  toolTimeout: 60 # seconds
  maxResultBytes: 1048576
\`\`\`

This page and portcullis.schema.json are generated from src/runtime/config.ts (\`UPDATE_SCHEMA=1\`).
`;

/** The object without the properties that are undefined: a spread of it overrides only what is set. */
export function defined<T extends object>(given: T): T {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as T;
}

const ms = (seconds: number | undefined): number | undefined => seconds && seconds * 1_000;

/** An application may use two fifths of the memory budget, an agent one fifth, as by default. */
export function limitsOf(settings: Partial<Settings>): Partial<GatewayLimits> {
  const { memoryBudget, maxCalls, maxAppCalls, maxAgentCalls, maxCallDepth, maxResultBytes, maxSessions } = settings;
  const { pageSize, refusalsPerMinute, serverRequests: serverRequestsPerMinute, challengeWait } = settings;
  const bytes = memoryBudget === undefined ? undefined : memoryBudget * MIB;
  return defined({
    maxRetainedBytes: bytes,
    maxAppRetainedBytes: bytes && Math.floor(bytes * 0.4),
    maxAgentRetainedBytes: bytes && Math.floor(bytes * 0.2),
    ...{ maxCalls, maxAppCalls, maxAgentCalls, maxCallDepth, maxResultBytes, maxSessions },
    ...{ pageSize, refusalsPerMinute, serverRequestsPerMinute },
    challengeWaitMs: challengeWait === undefined ? undefined : challengeWait * 1_000,
    sessionIdleMs: ms(settings.sessionIdle),
    queueDeadlineMs: settings.queueDeadline,
    toolTimeoutMs: ms(settings.toolTimeout),
    validationTimeoutMs: ms(settings.validationTimeout),
    askTimeoutMs: ms(settings.askTimeout),
  }) as Partial<GatewayLimits>;
}
