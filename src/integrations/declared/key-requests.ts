// What an API key is made of: its options, the application's declaration, and the note of the first one.

import type { KeyRequest } from "../../auth/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { LOCAL_APP, noApplication, type StoreOptions } from "../../runtime/store/open.js";
import type { ApplicationDocument, Storage } from "../../storage/index.js";
import { rateLimits } from "./apply.js";

export interface KeyOptions extends StoreOptions {
  name: string;
  agent?: string;
  allow?: string[];
  perMinute?: string;
  perHour?: string;
  expires?: string;
}

const MAX_NAMED = 20;

/** The first key ends local access for every application of the store, not only for its own. */
export async function firstKeyNote(storage: Storage): Promise<string> {
  const { items } = await storage.applications.list({ limit: MAX_NAMED + 1 });
  const names = items.slice(0, MAX_NAMED).map(({ id }) => id);
  const more = items.length > MAX_NAMED ? " and more" : "";
  return [
    `this is the first key: callers of ${names.join(", ")}${more} now need a key each (portcullis key add APP --name NAME)`,
    "clients send it as the header `Authorization: Bearer KEY`; `portcullis ls` and `call` read it from a variable that --key-env names",
    "clients that start the gateway themselves (stdio) need none",
  ].join("\n");
}

export async function keyRequest(storage: Storage, app: string, options: KeyOptions): Promise<KeyRequest> {
  const found = await storage.applications.get(app);
  if (!found && app !== LOCAL_APP) throw noApplication(app);
  const declared = found && entryOf(found.document, options.name);
  const permissions = options.allow ?? declared?.permissions;
  if (!permissions) {
    throw new CliError(
      `application \`${app}\` declares no permissions for keys named \`${options.name}\``,
      EXIT.usage,
      "name what the key may do: --allow 'invoke(*)' list",
    );
  }
  const agent = options.agent ?? declared?.agent;
  const given = { perMinute: count("--per-minute", options.perMinute), perHour: count("--per-hour", options.perHour) };
  const limits = rateLimits({
    perMinute: given.perMinute ?? declared?.perMinute,
    perHour: given.perHour ?? declared?.perHour,
  });
  const expiresAt = options.expires === undefined ? undefined : expiry(options.expires);
  return {
    app,
    name: options.name,
    permissions,
    limits,
    ...(agent === undefined ? {} : { agent }),
    ...(expiresAt === undefined ? {} : { expiresAt }),
  };
}

function entryOf({ keys = {} }: ApplicationDocument, name: string) {
  return Object.hasOwn(keys, name) ? keys[name] : undefined;
}

function count(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 1_000_000_000) return value;
  throw new CliError(`${option} is a whole number from 1`, EXIT.usage);
}

const UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

export function expiry(text: string, now = Date.now()): number {
  const [, amount, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const at = unit === undefined ? Date.parse(text) : now + Number(amount) * UNITS[unit as keyof typeof UNITS];
  if (Number.isFinite(at) && at > now) return at;
  throw new CliError(`\`${text}\` is not a time in the future`, EXIT.usage, "write 12h, 90d or 2027-01-31");
}
