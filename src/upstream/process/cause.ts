// Why a server does not start, as far as the gateway knows: what its profile refused, and its last words.

import { destinationName } from "../../host/index.js";
import type { UpstreamHealth } from "../types.js";

const MAX_PLACES = 5;
const LAST_LINES = 3;
const LAST_CHARACTERS = 300;
/** Some runtimes write the message first, and then where it happened. */
const ERROR = /^\w*(Error|Exception)( \[\w+\])?: /;

/** For the operator alone; "" where nothing is known. */
export function causeOf({ sandbox, stderr }: Pick<UpstreamHealth, "sandbox" | "stderr">): string {
  const refused = (sandbox?.destinations ?? []).filter(({ allowed }) => !allowed).slice(0, MAX_PLACES);
  const said = lastWords(stderr);
  return [
    ...refused.map((each) => `refused ${destinationName(each)}: ${each.reason}`),
    ...(said === "" ? [] : [`stderr ends: ${said}`]),
  ].join("; ");
}

function lastWords(stderr: string): string {
  const lines = stderr.trim().split(/\s*\n\s*/);
  const last = lines.slice(-LAST_LINES);
  const error = lines.findLast((line) => ERROR.test(line));
  if (error !== undefined && !last.includes(error)) return error.slice(0, LAST_CHARACTERS);
  return last.join(" | ").slice(-LAST_CHARACTERS);
}
