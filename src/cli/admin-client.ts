// The admin port of a running gateway, asked as the operator.

import type { Command } from "commander";
import { request } from "undici";
import { readOperatorToken } from "../admin/index.js";
import { CliError, EXIT } from "./exit.js";
import { knownAdmins } from "./gateway/admin-places.js";
import { shared } from "./options.js";
import { statePaths } from "./state.js";

const DEFAULT_ADMIN = "http://127.0.0.1:7421";
const TIMEOUT_MS = 10_000;

export function withAdmin(command: Command): Command {
  return command.option("--admin <url>", `the admin port (default: of the running gateway, or ${DEFAULT_ADMIN})`);
}

/** Every gateway on this data directory has every approval; the one that started last is asked unless another is named. */
export function adminUrl(command: Command, admin: string | undefined): string {
  return admin ?? knownAdmins(statePaths(shared(command).dir).dir)[0] ?? DEFAULT_ADMIN;
}

export async function askAdmin(
  command: Command,
  admin: string | undefined,
  path: string,
  body?: object,
  /** Further statuses whose body is an answer. */
  answers: readonly number[] = [],
): Promise<unknown> {
  const { operatorToken } = statePaths(shared(command).dir);
  let token: string;
  try {
    token = readOperatorToken(operatorToken);
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === "ENOENT";
    throw new CliError(
      missing ? `there is no operator credential at ${operatorToken}` : (error as Error).message,
      EXIT.auth,
      missing ? "run this where the gateway runs, or name its working folder with --dir" : undefined,
    );
  }
  const url = adminUrl(command, admin);
  const response = await request(new URL(path, url), {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body ? JSON.stringify(body) : null,
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
  }).catch((error: Error) => {
    throw new CliError(
      `cannot reach the admin port at ${url}: ${error.message}`,
      EXIT.error,
      "is `portcullis serve` running?",
    );
  });
  const answer = (await response.body.json()) as { error?: { reason: string; suggestions?: string[] } };
  if (response.statusCode < 400 || answers.includes(response.statusCode)) return answer;
  const exit = response.statusCode === 401 ? EXIT.auth : EXIT.error;
  throw new CliError(
    answer.error?.reason ?? `HTTP ${response.statusCode}`,
    exit,
    answer.error?.suggestions?.join("\n"),
  );
}
