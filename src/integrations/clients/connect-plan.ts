// What `connect` does to a client's file: Portcullis goes in, the servers that are behind it now come out. Beside the store
// is kept what the file was, so that `disconnect` can put it back.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { CliError } from "../../lib/exit.js";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { writePrivately } from "../../runtime/host/config/swap.js";
import type { ServerEntry } from "../../storage/index.js";
import type { Converted } from "./convert.js";
import { type ConfigEdit, edited } from "./edit.js";
import { type ClientName, CONNECTABLE } from "./places.js";
import { keyOf, parseConfig, readConfigText } from "./read.js";
import { isSameServer } from "./sandbox.js";

/** What was done to a file, kept where only its owner can read it: the old text may hold credentials. */
interface ChangedFile {
  readonly file: string;
  /** The file as it was; null when there was none. */
  readonly before: string | null;
  /** SHA-256 of what was written. */
  readonly after: string;
  /** Where we are in it, where we are. */
  readonly put?: readonly string[];
  readonly taken: readonly (readonly string[])[];
}

interface Connection extends ChangedFile {
  /** Files of projects, which servers came out of too. */
  readonly others?: readonly ChangedFile[];
  /** The application whose names became short because of connected clients. */
  readonly shortNames?: string;
}

export interface ConnectPlan {
  readonly file: string;
  readonly text: string;
  readonly isEmpty: boolean;
  /** We go into the file; otherwise we are there. */
  readonly isPut: boolean;
  /** Servers that come out of the file. */
  readonly taken: readonly string[];
  /** Other files that servers come out of. */
  readonly others: readonly { readonly file: string; readonly taken: readonly string[] }[];
  /** Servers that stay and so are called without Portcullis. */
  readonly around: readonly Around[];
  carryOut(): void;
}

export interface Around {
  readonly name: string;
  readonly file: string;
  /** Behind the gate as well, and in a file that is left alone. */
  readonly isBehind: boolean;
  /** Another of its name came before it, and comes out. */
  readonly wasHidden: boolean;
}

interface ConnectRequest {
  readonly stateDir: string;
  readonly client: ClientName;
  readonly file: string;
  /** Files of the project, edited as well: what stays in them would be called without Portcullis. */
  readonly also?: readonly string[];
  /** Our own entry. */
  readonly entry: JsonObject;
  /** The client's servers as an application would have them. */
  readonly servers: readonly Converted[];
  /** Those that do not count, because of another of their name. */
  readonly shadowed?: readonly Converted[];
  /** The application's servers. */
  readonly behind: Readonly<Record<string, ServerEntry>>;
}

export const OUR_NAME = "portcullis";

/** One file as it is, and as it would be. */
interface FileEdit {
  readonly file: string;
  readonly now: string | undefined;
  readonly text: string;
  readonly put?: readonly string[];
  readonly taken: readonly Converted[];
  readonly isEmpty: boolean;
}

export function planConnect(request: ConnectRequest): ConnectPlan {
  const { stateDir, client, servers, shadowed = [], behind, entry } = request;
  const isToml = client === "codex";
  const key = keyOf(client === "codex" || client === "zed" ? client : client === "vscode" ? "servers" : "mcpServers");
  const put = [key, OUR_NAME];
  const isBehind = ({ name, entry: wanted, problems }: Converted): boolean =>
    problems.length === 0 && Object.hasOwn(behind, name) && isSameServer(behind[name], wanted);
  const all = [...servers, ...shadowed];
  const editOf = (file: string, ours: boolean): FileEdit => {
    const now = readConfigText(file);
    const taken = all.filter((each) => real(each.found.file) === file && isBehind(each));
    const edits: ConfigEdit[] = [
      ...(!ours || isThere(now, file, isToml, put, entry) ? [] : [{ path: put, value: entry }]),
      ...taken.map(({ found }): ConfigEdit => ({ path: found.path, value: undefined })),
    ];
    const text = edited(now ?? "", file, isToml, edits);
    return { file, now, text, taken, isEmpty: edits.length === 0, ...(ours ? { put } : {}) };
  };
  const file = real(request.file);
  const main = editOf(file, true);
  const also = [...new Set((request.also ?? []).map(real))].filter((each) => each !== file && existsSync(each));
  const others = also.map((each) => editOf(each, false)).filter(({ isEmpty }) => !isEmpty);
  return {
    file,
    text: main.text,
    isEmpty: main.isEmpty && others.length === 0,
    taken: main.taken.map(({ found }) => found.name),
    others: others.map((each) => ({ file: each.file, taken: each.taken.map(({ found }) => found.name) })),
    isPut: !isThere(main.now, file, isToml, put, entry),
    around: all
      .filter((each) => ![main, ...others].some(({ taken }) => taken.includes(each)))
      .map((each) => ({
        name: each.found.name,
        file: each.found.file,
        isBehind: isBehind(each),
        wasHidden: shadowed.includes(each),
      })),
    carryOut: () => carryOut(stateDir, client, main, others),
  };
}

function carryOut(stateDir: string, client: ClientName, main: FileEdit, others: readonly FileEdit[]): void {
  const record = recordFile(stateDir, client);
  const known = readRecord(record);
  if (known && known.file !== main.file)
    throw new CliError(`${client} is connected at ${known.file}; disconnect it first`);
  const isToml = client === "codex";
  const before = known ? [known, ...(known.others ?? [])] : [];
  const changed = (edit: FileEdit): ChangedFile => {
    const old = before.find(({ file }) => file === edit.file);
    return {
      file: edit.file,
      // Connected before: then what counts is what the file would be without us.
      before: old ? restored(old, edit.now ?? "", isToml) : (edit.now ?? null),
      after: digest(edit.text),
      taken: [...(old?.taken ?? []), ...edit.taken.map(({ found }) => found.path)],
      ...(edit.put ? { put: edit.put } : {}),
    };
  };
  // Other projects may have been connected from their own directories.
  const kept = (known?.others ?? []).filter(({ file }) => !others.some((each) => each.file === file));
  const { shortNames } = known ?? {};
  const connection: Connection = {
    ...changed(main),
    others: [...kept, ...others.map(changed)],
    ...(shortNames === undefined ? {} : { shortNames }),
  };
  const edits = [...others, main];
  for (const { file, now } of edits) unchanged(file, now);
  // Kept before anything is changed: what cannot be put back is not taken.
  mkdirSync(join(stateDir, "connected"), { recursive: true, mode: 0o700 });
  writePrivately(record, JSON.stringify(connection), { replace: true });
  for (const { file, text, now } of edits) if (text !== now) replace(file, text);
}

/** Notes that connecting this client made the names of an application short, so that `disconnect` undoes it. */
export function noteShortNames(stateDir: string, client: ClientName, app: string): void {
  const record = recordFile(stateDir, client);
  const known = readRecord(record);
  if (known) writePrivately(record, JSON.stringify({ ...known, shortNames: app }), { replace: true });
}

/** Another client that is connected, which needs short names as well. */
function otherConnected(stateDir: string, client: ClientName): ClientName | undefined {
  return CONNECTABLE.find((each) => each !== client && existsSync(recordFile(stateDir, each)));
}

interface DisconnectPlan {
  /** The application whose names are shown whole again. */
  readonly wholeNames: string | undefined;
  readonly files: readonly {
    readonly file: string;
    /** Put back byte by byte; otherwise the file was changed since, and only our part of it is undone. */
    readonly isExact: boolean;
  }[];
  carryOut(): void;
}

export function planDisconnect(stateDir: string, client: ClientName): DisconnectPlan | undefined {
  const record = recordFile(stateDir, client);
  const known = readRecord(record);
  if (!known) return undefined;
  const isToml = client === "codex";
  const parts = [known, ...(known.others ?? [])].flatMap((part) => {
    const now = readConfigText(part.file);
    // A project that is gone has nothing to put back.
    if (part !== known && now === undefined) return [];
    const isExact = digest(now ?? "") === part.after;
    return [{ file: part.file, now, isExact, text: restored(part, now ?? "", isToml) }];
  });
  const heir = otherConnected(stateDir, client);
  return {
    files: parts.map(({ file, isExact }) => ({ file, isExact })),
    wholeNames: heir === undefined ? known.shortNames : undefined,
    carryOut: () => {
      if (heir !== undefined && known.shortNames !== undefined) noteShortNames(stateDir, heir, known.shortNames);
      for (const { file, now } of parts) unchanged(file, now);
      for (const { file, text } of parts) {
        if (text === null) rmSync(file, { force: true });
        else replace(file, text);
      }
      rmSync(record, { force: true });
    },
  };
}

/** What the file would be without us. */
function restored(known: ChangedFile, now: string, isToml: boolean): string | null {
  if (digest(now) === known.after) return known.before;
  const old = parseConfig(known.before ?? "", known.file, isToml);
  const edits: ConfigEdit[] = known.put ? [{ path: known.put, value: undefined }] : [];
  for (const path of known.taken) {
    const value = at(old, path);
    // Another entry of that name was added since: it stays.
    if (isJsonObject(value) && at(parseConfig(now, known.file, isToml), path) === undefined)
      edits.push({ path, value });
  }
  const before = known.put && at(old, known.put);
  if (known.put && isJsonObject(before)) edits.push({ path: known.put, value: before });
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
  throw new CliError(`${file} was changed by another process meanwhile`, undefined, "look at it, then try again");
}

function replace(file: string, text: string): void {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode;
  writePrivately(file, text, { replace: true, ...(mode === undefined ? {} : { mode: mode & 0o777 }) });
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
