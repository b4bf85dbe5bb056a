// `portcullis connect` and `disconnect`.

import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import type { JsonObject } from "../../protocol/index.js";
import type { Storage } from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";
import { CliError, EXIT } from "../exit.js";
import { launchWith } from "../host-config/client-snippet.js";
import { outFor, shared } from "../options.js";
import { paint } from "../print.js";
import { STORE_FILE, statePaths } from "../state.js";
import { agreed } from "../store/ask.js";
import { addressOf, noApplication, operator, type StoreOptions, withStore } from "../store/open.js";
import { type Collected, collect, here } from "./collect.js";
import { type Around, type ConnectPlan, OUR_NAME, planConnect, planDisconnect } from "./connect-plan.js";
import { CLIENTS, type ClientName, isClient, placesOf } from "./places.js";
import { readConfigText } from "./read.js";

export interface ConnectOptions extends StoreOptions {
  app: string;
  url?: string;
  keyEnv?: string;
  project?: boolean;
  yes?: boolean;
  dryRun?: boolean;
}

export async function connectClient(command: Command, name: string, options: ConnectOptions): Promise<void> {
  const client = knownClient(name);
  const out = outFor(command);
  const { dir } = statePaths(shared(command).dir);
  const file = fileOf(client, options.project === true);
  const entry = entryFor(client, dir, options);
  const connect = async (storage: Storage | undefined): Promise<void> => {
    const application = await storage?.applications.get(options.app);
    // What a gateway at a URL serves is its own affair: it may be the demonstration, or on another machine.
    if (!application && options.url === undefined) throw noApplication(options.app);
    const behind = application?.document.servers ?? {};
    const { servers, shadowed, elsewhere } = await serversOf(client);
    const also = options.project === true ? [] : projectFiles(client);
    const plan = planConnect({ stateDir: dir, client, file, also, entry, servers, shadowed, behind });
    const isShort = !application || application.document.names === "short";
    if (!out.json) out.data(plan, () => planText(plan, elsewhere, options.app, isShort));
    const mayChange = !(plan.isEmpty && isShort) && options.dryRun !== true;
    if (mayChange) {
      await agreed("Make these changes?", options.yes);
      if (storage && !isShort) await useShortNames(storage, options.app);
      if (!plan.isEmpty) plan.carryOut();
    }
    if (out.json) {
      const { taken, around, others } = plan;
      const facts = { client, file: plan.file, applied: mayChange, added: OUR_NAME, removed: taken };
      const left = around.map(({ name, file: at, wasHidden }) => ({ name, file: at, was_hidden: wasHidden }));
      out.data({ ...facts, others, around: left, elsewhere }, () => "");
    }
    if (mayChange)
      out.note(`${paint.green("done")}\nRestart ${client}. \`portcullis disconnect ${client}\` undoes it.`);
  };
  const hasStore = addressOf(options) !== undefined || existsSync(join(dir, STORE_FILE));
  if (options.url !== undefined && !hasStore) return connect(undefined);
  await withStore(command, options, connect);
}

export async function disconnectClient(command: Command, name: string, options: { yes?: boolean }): Promise<void> {
  const client = knownClient(name);
  const out = outFor(command);
  const { dir } = statePaths(shared(command).dir);
  const plan = planDisconnect(dir, client);
  if (!plan) throw new CliError(`${client} is not connected by ${dir}`);
  const how = (isExact: boolean): string =>
    isExact
      ? "is put back as it was"
      : "was changed since: Portcullis comes out, its servers go back in, the rest stays";
  if (!out.json) out.data(plan, () => plan.files.map(({ file, isExact }) => `${file} ${how(isExact)}`).join("\n"));
  await agreed("Make this change?", options.yes);
  plan.carryOut();
  const exact = plan.files.every(({ isExact }) => isExact);
  if (out.json) out.data({ client, file: plan.files[0]?.file, exact, files: plan.files }, () => "");
  else out.note(paint.green("done"));
}

function knownClient(name: string): ClientName {
  if (isClient(name)) return name;
  throw new CliError(`nothing is known of the client \`${name}\``, EXIT.usage, `one of ${CLIENTS.join(", ")}`);
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

/** Those that cannot be read as they are, for want of a variable say, simply stay where they are. */
async function serversOf(client: ClientName): Promise<Pick<Collected, "servers" | "shadowed" | "elsewhere">> {
  const isNone = placesOf(client, here()).every(({ file }) => readConfigText(file) === undefined);
  return isNone ? { servers: [], shadowed: [], elsewhere: [] } : await collect({ from: client, mayAsk: false });
}

function entryFor(client: ClientName, dir: string, { app, url, keyEnv, storage, sealKey }: ConnectOptions): JsonObject {
  if (url === undefined) {
    if (storage?.startsWith("postgres")) {
      const help = "start the gateway yourself and connect with --url: its address may hold a password";
      throw new CliError("a client is not told where a shared store is", EXIT.usage, help);
    }
    const store = [
      ...(storage === undefined ? [] : ["--storage", storage]),
      ...(sealKey === undefined ? [] : ["--seal-key", sealKey]),
    ];
    const { command, args } = launchWith(["--dir", resolve(dir), "serve", "--stdio", "--app", app, ...store]);
    return { ...(client === "vscode" ? { type: "stdio" } : {}), command, args: [...args] };
  }
  switch (client) {
    case "claude-desktop":
      throw new CliError("Claude Desktop only starts programs", EXIT.usage, "leave --url out");
    case "codex":
      return { url, ...(keyEnv === undefined ? {} : { bearer_token_env_var: keyEnv }) };
    default: {
      const variable = client === "claude-code" ? `\${${keyEnv}}` : `\${env:${keyEnv}}`;
      const headers: JsonObject = keyEnv === undefined ? {} : { headers: { Authorization: `Bearer ${variable}` } };
      return { ...(client === "cursor" ? {} : { type: "http" }), url, ...headers };
    }
  }
}

const MAX_TRIES = 5;

/** Clients hand the names on to models, and those take no dots. */
async function useShortNames(storage: Storage, app: string): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const now = await storage.applications.get(app);
    if (!now) throw noApplication(app);
    if (await storage.applications.put(app, { ...now.document, names: "short" }, operator(), now.revision)) return;
  }
  throw new CliError(`application \`${app}\` keeps being changed by somebody else; try again`);
}

function planText(plan: ConnectPlan, elsewhere: Collected["elsewhere"], app: string, isShort: boolean): string {
  const out = (name: string): string => `  - ${visible(name)}, which is behind the gate now`;
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
    ...elsewhere.map(
      ({ project, names }) =>
        `  ! the project ${visible(project)} has servers of its own (${names.map(visible).join(", ")}), reached around the gate: import and connect in its folder`,
    ),
    ...(isShort ? [] : [`~ application ${app}: names are shown short, without dots, as models take them`]),
  ].join("\n");
}

function aroundText({ name, file, isBehind, wasHidden }: Around): string {
  const what = `  ! ${visible(name)} stays in ${visible(file)}, and is reached around the gate`;
  if (isBehind) return `${what}: connect without --project takes it out there`;
  return wasHidden
    ? `${what}: another of its name hid it; take it out, or give it another name there and import it`
    : `${what}: import it first`;
}
