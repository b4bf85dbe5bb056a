// Client of the admin ports of running gateways, with the operator's credential.

import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Command } from "commander";
import { readOperatorToken } from "../admin/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { otherDirectoriesHelp, statePaths } from "./data-directory.js";
import { hostDirectory, shared } from "./options.js";

const DEFAULT_ADMIN = "http://127.0.0.1:7421";
const TIMEOUT_MS = 10_000;

export function withAdmin(command: Command): Command {
  return command.option(
    "--admin <url>",
    `URL of the admin port (default: of the running gateway, or ${DEFAULT_ADMIN})`,
  );
}

/** An admin port, and the data directory whose operator credential it takes. */
export interface AdminPlace {
  readonly url: string;
  readonly dir: string;
}

/**
 * The admin ports that know different approvals: that of the data directory and that of the host beside it. Every process
 * on one data directory has every approval, so the one that started last is asked, unless another is named.
 */
export function adminPlaces(command: Command, admin: string | undefined): AdminPlace[] {
  const own = statePaths(shared(command).dir).dir;
  const host = hostDirectory(command);
  const ofHost = knownAdmins(host);
  if (admin !== undefined) return [{ url: admin, dir: ofHost.includes(admin) ? host : own }];
  const running = [own, host].flatMap((dir) =>
    knownAdmins(dir)
      .slice(0, 1)
      .map((url) => ({ url, dir })),
  );
  return running.length > 0 ? running : [{ url: DEFAULT_ADMIN, dir: own }];
}

/** Sends a request to one admin port after the other until one knows the resource. */
export async function askAdmin(
  command: Command,
  admin: string | undefined,
  path: string,
  body?: object,
  /** Further statuses whose body is an answer. */
  answers: readonly number[] = [],
): Promise<unknown> {
  const places = adminPlaces(command, admin);
  for (const place of places.slice(0, -1)) {
    try {
      return await askPlace(place, path, body, answers);
    } catch (error) {
      if (!(error instanceof UnknownThere)) throw error;
    }
  }
  return askPlace(places.at(-1) as AdminPlace, path, body, answers);
}

class UnknownThere extends CliError {}

export async function askPlace(
  { url, dir: place }: AdminPlace,
  path: string,
  body?: object,
  answers: readonly number[] = [],
): Promise<unknown> {
  const { dir, operatorToken } = statePaths(place);
  let token: string;
  try {
    token = readOperatorToken(operatorToken);
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === "ENOENT";
    throw new CliError(
      missing ? `no operator credential at ${operatorToken}` : (error as Error).message,
      EXIT.auth,
      missing ? `start a gateway with \`portcullis serve\`, or ${otherDirectoriesHelp(dir)}` : undefined,
    );
  }
  const response = await exchange(new URL(path, url), token, body).catch((error: Error) => {
    throw new CliError(
      `cannot reach the admin port at ${url}: ${error.message}`,
      EXIT.error,
      "start it with `portcullis serve`, or name its admin port with --admin",
    );
  });
  const answer = JSON.parse(response.text) as { error?: { reason: string; suggestions?: string[] } };
  if (response.status < 400 || answers.includes(response.status)) return answer;
  const exit = response.status === 401 ? EXIT.auth : EXIT.error;
  throw new (response.status === 404 ? UnknownThere : CliError)(
    answer.error?.reason ?? `HTTP ${response.status}`,
    exit,
    answer.error?.suggestions?.join("\n") || undefined,
  );
}

/** `exchange` sends one request and reads the whole answer. It fails when the peer is silent for `TIMEOUT_MS`. */
function exchange(url: URL, token: string, body: object | undefined): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const send = url.protocol === "https:" ? httpsRequest : httpRequest;
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const request = send(url, { method: body ? "POST" : "GET", headers, agent: false, timeout: TIMEOUT_MS });
    request.on("timeout", () => request.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)));
    request.on("error", reject);
    request.on("response", (response) => {
      text(response).then((read) => resolve({ status: response.statusCode ?? 0, text: read }), reject);
    });
    request.end(body && JSON.stringify(body));
  });
}

const DIRECTORY = "admin";
const MAX_KNOWN = 64;

/** Gives back what ends the announcement. */
export function announceAdmin(stateDir: string, url: string): () => void {
  const directory = join(stateDir, DIRECTORY);
  const file = join(directory, String(process.pid));
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  // A wildcard address is reached by loopback.
  writeFileSync(file, url.replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//127.0.0.1:"), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

/** Admin ports of live processes, the newest first: a port of an ended process may belong to another one, which must not get a credential. */
export function knownAdmins(stateDir: string): string[] {
  const directory = join(stateDir, DIRECTORY);
  let names: string[];
  try {
    names = readdirSync(directory).filter((name) => /^\d{1,10}$/.test(name) && isAlive(Number(name)));
  } catch {
    return [];
  }
  const urls = names
    .map((name) => ({
      file: join(directory, name),
      at: statSync(join(directory, name), { throwIfNoEntry: false })?.mtimeMs,
    }))
    .filter(({ at }) => at !== undefined)
    .sort((a, b) => (b.at as number) - (a.at as number))
    .slice(0, MAX_KNOWN)
    .map(({ file }) => readFileSync(file, "utf8"));
  // Workers share one.
  return [...new Set(urls)];
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
