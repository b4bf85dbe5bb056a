// What `connect` does to a client's file: Portcullis goes in, the servers that are behind it now come out. Beside the store
// is kept what the file was, so that `disconnect` can put it back.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { isJsonObject, type JsonObject } from "../../protocol/index.js";
import type { ServerEntry } from "../../storage/index.js";
import { CliError } from "../exit.js";
import { writePrivately } from "../host-config/swap.js";
import type { Converted } from "./convert.js";
import { type Edit, edited } from "./edit.js";
import type { ClientName } from "./places.js";
import { parseConfig, readConfigText } from "./read.js";

/** What was done to a file, kept where only its owner can read it: the old text may hold credentials. */
interface Connection {
  readonly file: string;
  /** The file as it was; null when there was none. */
  readonly before: string | null;
  /** SHA-256 of what was written. */
  readonly after: string;
  readonly put: readonly string[];
  readonly taken: readonly (readonly string[])[];
}

export interface ConnectPlan {
  readonly file: string;
  readonly text: string;
  readonly isEmpty: boolean;
  /** Servers that come out. */
  readonly taken: readonly string[];
  /** Servers that stay and so are reached around the gate. */
  readonly around: readonly string[];
  carryOut(): void;
}

export interface ConnectRequest {
  readonly stateDir: string;
  readonly client: ClientName;
  readonly file: string;
  /** Our own entry. */
  readonly entry: JsonObject;
  /** The file's servers as an application would have them. */
  readonly servers: readonly Converted[];
  /** The application's servers. */
  readonly behind: Readonly<Record<string, ServerEntry>>;
}

export const OUR_NAME = "portcullis";

export function planConnect(request: ConnectRequest): ConnectPlan {
  const { stateDir, client, servers, behind, entry } = request;
  const file = real(request.file);
  const isToml = client === "codex";
  const now = readConfigText(file);
  const key = isToml ? "mcp_servers" : client === "vscode" ? "servers" : "mcpServers";
  const put = [key, OUR_NAME];
  const own = servers.filter(({ found }) => real(found.file) === file);
  const isBehind = ({ name, entry: wanted, problems }: Converted): boolean =>
    problems.length === 0 && Object.hasOwn(behind, name) && isDeepStrictEqual(behind[name], wanted);
  const taken = own.filter(isBehind);
  const edits: Edit[] = [
    ...(isThere(now, file, isToml, put, entry) ? [] : [{ path: put, value: entry }]),
    ...taken.map(({ found }): Edit => ({ path: found.path, value: undefined })),
  ];
  const text = edited(now ?? "", file, isToml, edits);
  const record = recordFile(stateDir, client);
  return {
    file,
    text,
    isEmpty: edits.length === 0,
    taken: taken.map(({ found }) => found.name),
    around: own.filter((each) => !isBehind(each)).map(({ found }) => found.name),
    carryOut: () => {
      // Connected before: then what counts is what the file would be without us.
      const known = readRecord(record);
      const isSame = known !== undefined && known.file === file;
      if (known && !isSame) throw new CliError(`${client} is connected at ${known.file}; disconnect it first`);
      const paths = [...(isSame ? known.taken : []), ...taken.map(({ found }) => found.path)];
      const before = isSame ? restored(known, now ?? "", isToml) : (now ?? null);
      const connection: Connection = { file, before, after: digest(text), put, taken: paths };
      unchanged(file, now);
      // Kept before anything is changed: what cannot be put back is not taken.
      mkdirSync(join(stateDir, "connected"), { recursive: true, mode: 0o700 });
      writePrivately(record, JSON.stringify(connection), { replace: true });
      replace(file, text);
    },
  };
}

export interface DisconnectPlan {
  readonly file: string;
  /** Put back byte by byte; otherwise the file was changed since, and only our part of it is undone. */
  readonly isExact: boolean;
  carryOut(): void;
}

export function planDisconnect(stateDir: string, client: ClientName): DisconnectPlan | undefined {
  const record = recordFile(stateDir, client);
  const known = readRecord(record);
  if (!known) return undefined;
  const isToml = client === "codex";
  const now = readConfigText(known.file);
  const text = restored(known, now ?? "", isToml);
  return {
    file: known.file,
    isExact: digest(now ?? "") === known.after,
    carryOut: () => {
      unchanged(known.file, now);
      if (text === null) rmSync(known.file, { force: true });
      else replace(known.file, text);
      rmSync(record, { force: true });
    },
  };
}

/** What the file would be without us. */
function restored(known: Connection, now: string, isToml: boolean): string | null {
  if (digest(now) === known.after) return known.before;
  const old = parseConfig(known.before ?? "", known.file, isToml);
  const edits: Edit[] = [{ path: known.put, value: undefined }];
  for (const path of known.taken) {
    const value = at(old, path);
    // Somebody put another of that name there meanwhile; it is theirs.
    if (isJsonObject(value) && at(parseConfig(now, known.file, isToml), path) === undefined)
      edits.push({ path, value });
  }
  const before = at(old, known.put);
  if (isJsonObject(before)) edits.push({ path: known.put, value: before });
  return edited(now, known.file, isToml, edits);
}

function isThere(
  text: string | undefined,
  file: string,
  isToml: boolean,
  path: readonly string[],
  entry: JsonObject,
): boolean {
  if (text === undefined) return false;
  const found = at(parseConfig(text, file, isToml), path);
  return JSON.stringify(found) === JSON.stringify(entry);
}

function at(value: JsonObject, path: readonly string[]): unknown {
  let found: unknown = value;
  for (const key of path) found = isJsonObject(found) && Object.hasOwn(found, key) ? found[key] : undefined;
  return found;
}

function recordFile(stateDir: string, client: ClientName): string {
  return join(stateDir, "connected", `${client}.json`);
}

function readRecord(file: string): Connection | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Connection) : undefined;
}

/** A link stays a link: what it leads to is what is edited. */
function real(file: string): string {
  return existsSync(file) ? realpathSync(file) : file;
}

function unchanged(file: string, before: string | undefined): void {
  if (readConfigText(file) === before) return;
  throw new CliError(`${file} was changed by somebody else meanwhile`, undefined, "look at it, then try again");
}

function replace(file: string, text: string): void {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode;
  writePrivately(file, text, { replace: true, ...(mode === undefined ? {} : { mode: mode & 0o777 }) });
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
