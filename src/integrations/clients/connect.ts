// `portcullis connect` and `disconnect`.

import { resolve } from "node:path";
import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { paint } from "../../lib/print.js";
import type { JsonObject } from "../../mcp/index.js";
import { statePaths } from "../../runtime/data-directory.js";
import { requireFile, servedFiles } from "../../runtime/host/config/files.js";
import { launchWith } from "../../runtime/host/config/paths.js";
import { HOST_APP } from "../../runtime/host/starter-policy.js";
import { agreed, hostDirectory, outFor, shared } from "../../runtime/options.js";
import {
  isForKeysOnly,
  LOCAL_APP,
  noApplication,
  operator,
  type StoreOptions,
  withStore,
} from "../../runtime/store/open.js";
import type { Storage } from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";
import { type CollectedServers, collectServers, here } from "./collect.js";
import {
  type Around,
  type ConnectPlan,
  noteShortNames,
  OUR_NAME,
  planConnect,
  planDisconnect,
} from "./connect-plan.js";
import { type ClientName, CONNECTABLE, isClient, isConnectable, placesOf } from "./places.js";
import { readConfigText } from "./read.js";

export interface ConnectClientOptions extends StoreOptions {
  app: string;
  url?: string;
  keyEnv?: string;
  project?: boolean;
  yes?: boolean;
  dryRun?: boolean;
}

export interface DisconnectOptions extends StoreOptions {
  yes?: boolean;
}

export async function connectClient(command: Command, name: string, options: ConnectClientOptions): Promise<void> {
  const client = knownClient(name);
  const { url } = options;
  if (url !== undefined && !(URL.canParse(url) && /^https?:/.test(new URL(url).protocol)))
    throw new CliError(`invalid URL \`${url}\``, EXIT.usage, "write it like http://127.0.0.1:7420/mcp");
  const out = outFor(command);
  const { dir } = statePaths(shared(command).dir);
  const file = fileOf(client, options.project === true);
  const connect = async (storage: Storage): Promise<void> => {
    const isDemonstration = options.app === LOCAL_APP && (await servesDemonstration(storage));
    const application = isDemonstration ? undefined : await storage.applications.get(options.app);
    const isHost = !application && options.app === HOST_APP && options.url === undefined;
    const entry = isHost ? started(client, hostWords(command)) : entryFor(client, dir, options, isDemonstration);
    // What a gateway at a URL serves is its own affair: it may be the demonstration, or on another machine.
    if (!application && options.url === undefined && !isDemonstration && !isHost) throw noApplication(options.app);
    const behind = application?.document.servers ?? {};
    const { servers, shadowed, otherProjects } = await serversOf(client);
    const also = options.project === true ? [] : projectFiles(client);
    const plan = planConnect({ stateDir: dir, client, file, also, entry, servers, shadowed, behind });
    const isShort = !application || (application.document.names ?? "full") !== "full";
    if (!out.json) out.data(plan, () => planText(plan, otherProjects, options.app, isShort));
    const mayChange = !(plan.isEmpty && isShort) && options.dryRun !== true;
    if (mayChange) {
      await agreed("Make these changes?", options.yes);
      if (!isShort) await setNames(storage, options.app, "short");
      if (!plan.isEmpty) plan.carryOut();
      if (!isShort) noteShortNames(dir, client, options.app);
    }
    if (out.json) {
      const { taken, around, others } = plan;
      const facts = { client, file: plan.file, applied: mayChange, added: OUR_NAME, removed: taken };
      const left = around.map(({ name, file: at, wasHidden }) => ({ name, file: at, was_hidden: wasHidden }));
      out.data({ ...facts, others, around: left, elsewhere: otherProjects }, () => "");
    }
    if (mayChange)
      out.note(`${paint.green("done")}\nRestart ${client}. \`portcullis disconnect ${client}\` undoes it.`);
  };
  await withStore(command, options, connect);
}

export async function disconnectClient(command: Command, name: string, options: DisconnectOptions): Promise<void> {
  const client = knownClient(name);
  const out = outFor(command);
  const { dir } = statePaths(shared(command).dir);
  const plan = planDisconnect(dir, client);
  if (!plan) throw new CliError(`${client} is not connected by ${dir}`);
  const how = (isExact: boolean): string =>
    isExact
      ? "is put back as it was"
      : "was changed since: Portcullis comes out, its servers go back in, the rest stays";
  const { wholeNames } = plan;
  const names = wholeNames === undefined ? [] : [`application ${wholeNames}: names are shown whole again`];
  if (!out.json) {
    out.data(plan, () => [...plan.files.map(({ file, isExact }) => `${file} ${how(isExact)}`), ...names].join("\n"));
  }
  await agreed("Make this change?", options.yes);
  plan.carryOut();
  if (wholeNames !== undefined) {
    await withStore(command, options, (storage) => setNames(storage, wholeNames, undefined));
  }
  const exact = plan.files.every(({ isExact }) => isExact);
  if (out.json) out.data({ client, file: plan.files[0]?.file, exact, files: plan.files }, () => "");
  else out.note(paint.green("done"));
}

function knownClient(name: string): ClientName {
  if (isConnectable(name)) return name;
  if (isClient(name)) {
    const help = "add `portcullis serve --stdio` to its mcpServers by hand";
    throw new CliError(`the configuration of ${name} is YAML, which connect does not edit`, EXIT.usage, help);
  }
  throw new CliError(`unknown client \`${name}\``, EXIT.usage, `one of ${CONNECTABLE.join(", ")}`);
}

function fileOf(client: ClientName, isProject: boolean): string {
  const level = isProject ? "project" : "user";
  const place = placesOf(client, here()).find((each) => each.level === level);
  if (place) return place.file;
  throw new CliError(`${client} has no configuration for a project`, EXIT.usage, "leave --project out");
}

function projectFiles(client: ClientName): string[] {
  return placesOf(client, here()).flatMap(({ level, file }) => (level === "project" ? [file] : []));
}

/** Servers that cannot be converted, such as those with an unset variable, stay in the file. */
async function serversOf(
  client: ClientName,
): Promise<Pick<CollectedServers, "servers" | "shadowed" | "otherProjects">> {
  const isNone = placesOf(client, here()).every(({ file }) => readConfigText(file) === undefined);
  return isNone
    ? { servers: [], shadowed: [], otherProjects: [] }
    : await collectServers({ from: client, mayAsk: false });
}

/** A gateway of a store without applications serves the demonstration. */
async function servesDemonstration(storage: Storage): Promise<boolean> {
  const { items } = await storage.applications.list({ limit: 2 });
  return items.every(isForKeysOnly);
}

function entryFor(
  client: ClientName,
  dir: string,
  { app, url, keyEnv, storage, sealKey }: ConnectClientOptions,
  isDemonstration: boolean,
): JsonObject {
  if (url === undefined) {
    if (storage?.startsWith("postgres")) {
      const help = "start the gateway yourself and connect with --url: its address may hold a password";
      throw new CliError("a client cannot be given the address of a shared store", EXIT.usage, help);
    }
    const store = [
      ...(storage === undefined ? [] : ["--storage", storage]),
      ...(sealKey === undefined ? [] : ["--seal-key", sealKey]),
    ];
    const own = isDemonstration ? [] : ["--app", app];
    return started(client, ["--dir", resolve(dir), "serve", "--stdio", ...own, ...store]);
  }
  switch (client) {
    case "claude-desktop":
      throw new CliError("Claude Desktop only starts programs", EXIT.usage, "leave --url out");
    case "codex":
      return { url, ...(keyEnv === undefined ? {} : { bearer_token_env_var: keyEnv }) };
    case "gemini":
      return { httpUrl: url, ...bearerHeader(keyEnv, `\${${keyEnv}}`) };
    case "windsurf":
      return { serverUrl: url, ...bearerHeader(keyEnv, `\${env:${keyEnv}}`) };
    case "zed":
      if (keyEnv === undefined) return { url };
      throw new CliError("Zed does not read variables in headers", EXIT.usage, "leave --url out: Zed starts a gateway");
    default: {
      const variable = client === "claude-code" ? `\${${keyEnv}}` : `\${env:${keyEnv}}`;
      return { ...(client === "cursor" ? {} : { type: "http" }), url, ...bearerHeader(keyEnv, variable) };
    }
  }
}

function started(client: ClientName, words: readonly string[]): JsonObject {
  const { command, args } = launchWith(words);
  return { ...(client === "vscode" ? { type: "stdio" } : {}), command, args: [...args] };
}

/** The host serves on stdio alone: the client starts it. */
function hostWords(command: Command): string[] {
  const { config, state } = servedFiles(hostDirectory(command));
  requireFile(config);
  return ["host", "--config", config, "--state", state];
}

function bearerHeader(keyEnv: string | undefined, variable: string): JsonObject {
  return keyEnv === undefined ? {} : { headers: { Authorization: `Bearer ${variable}` } };
}

const MAX_TRIES = 5;

/** Clients hand the names on to models, and those take no dots. Running gateways follow at once. */
async function setNames(storage: Storage, app: string, names: "short" | undefined): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const now = await storage.applications.get(app);
    if (!now && names === undefined) return;
    if (!now) throw noApplication(app);
    const { names: _before, ...document } = now.document;
    const changed = names === undefined ? document : { ...document, names };
    if (await storage.applications.put(app, changed, operator(), now.revision)) return;
  }
  throw new CliError(`application \`${app}\` keeps being changed by another caller; try again`);
}

function planText(
  plan: ConnectPlan,
  otherProjects: CollectedServers["otherProjects"],
  app: string,
  isShort: boolean,
): string {
  const out = (name: string): string => `  - ${visible(name)}, which Portcullis serves from now on`;
  return [
    `${plan.isEmpty ? "=" : "~"} ${plan.file}`,
    ...(plan.isEmpty ? ["  is connected already"] : []),
    ...(plan.isPut ? [`  + ${OUR_NAME}`] : []),
    ...plan.taken.map(out),
    ...plan.others.flatMap(({ file, taken }) => [
      `~ ${file}, which belongs to the project and may be shared with others`,
      ...taken.map(out),
    ]),
    ...plan.around.map(aroundText),
    ...otherProjects.map(
      ({ project, names }) =>
        `  ! the project ${visible(project)} has servers of its own (${names.map(visible).join(", ")}), called without Portcullis: import and connect in its directory`,
    ),
    ...(isShort ? [] : [`~ application ${app}: names are shown short, without dots, as models take them`]),
  ].join("\n");
}

function aroundText({ name, file, isBehind, wasHidden }: Around): string {
  const what = `  ! ${visible(name)} stays in ${visible(file)}, and is called without Portcullis`;
  if (isBehind) return `${what}: connect without --project takes it out there`;
  return wasHidden
    ? `${what}: another of its name hid it; take it out, or give it another name there and import it`
    : `${what}: import it first`;
}
