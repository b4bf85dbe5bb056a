// A gateway that keeps its ledger within bounds: closed files go to the archive, and those past their time or over the
// size are pruned once their copies were read back.

import {
  type Archive,
  archiveSegments,
  directoryArchive,
  keptFrom,
  type Ledger,
  type Retention,
} from "../ledger/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import type { Telemetry } from "../telemetry/index.js";
import { takeVariable } from "./environment.js";

const DAY_MS = 24 * 3_600_000;
const MIB = 1024 * 1024;
const EVERY_MS = 60_000;
const BY = "portcullis retention";

export interface RetentionFlags {
  readonly keepDays?: number | undefined;
  readonly keepSize?: number | undefined;
}

export function retentionOf({ keepDays: days, keepSize: mib }: RetentionFlags): Retention {
  return {
    keepMs: days === undefined ? undefined : days * DAY_MS,
    keepBytes: mib === undefined ? undefined : mib * MIB,
  };
}

export interface RetentionOptions extends Retention {
  readonly archive: Archive;
  close(): Promise<void>;
}

/** One turn: archives what was closed since record `from`, then prunes what need not be kept. Returns the next `from`. */
async function retain(ledger: Ledger, options: RetentionOptions, from: number, signal: AbortSignal): Promise<number> {
  const { archive, keepMs, keepBytes } = options;
  await ledger.checkpoint();
  const { to } = await archiveSegments(ledger.dir, archive, { from, signal });
  if (signal.aborted || (keepMs === undefined && keepBytes === undefined)) return to;
  const before = Math.min(to, await keptFrom(ledger.dir, { keepMs, keepBytes }));
  if (before > 0) await ledger.prune({ archive, before, by: BY });
  return to;
}

interface RunningRetention {
  /** Why the last turn failed; undefined after one that succeeded. */
  readonly problem: string | undefined;
  close(): Promise<void>;
}

/** Retains now and every minute. A failure is logged and tried again; the ledger keeps everything meanwhile. */
export function startRetention(
  ledger: Ledger,
  options: RetentionOptions,
  { log }: Pick<Telemetry, "log">,
  everyMs = EVERY_MS,
): RunningRetention {
  const stop = new AbortController();
  let problem: string | undefined;
  let from = 0;
  let running: Promise<void> | undefined;
  const turn = (): void => {
    running ??= retain(ledger, options, from, stop.signal)
      .then((next) => {
        if (problem !== undefined) log.notice("archiving the ledger recovered");
        problem = undefined;
        from = next;
      })
      .catch((error: Error) => {
        if (stop.signal.aborted) return;
        // What was taken for archived may not be: look at all of it again.
        from = 0;
        problem = error.message;
        log.error("the ledger could not be archived or pruned", { problem });
      })
      .finally(() => {
        running = undefined;
      });
  };
  turn();
  const timer = setInterval(turn, everyMs);
  timer.unref();
  return {
    get problem() {
      return problem;
    },
    async close() {
      clearInterval(timer);
      stop.abort();
      await Promise.race([running, new Promise((resolve) => setTimeout(resolve, 1_000).unref())]);
      await options.close();
    },
  };
}

interface OpenedArchive {
  readonly archive: Archive;
  close(): Promise<void>;
}

export const LOCATION_HELP = "a directory or s3://BUCKET/PREFIX";
const PREFIX = /^[A-Za-z0-9._/-]{0,512}$/;

export async function openArchive(location: string): Promise<OpenedArchive> {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(location)) {
    return { archive: directoryArchive(location), close: async () => {} };
  }
  const url = URL.canParse(location) ? new URL(location) : undefined;
  const prefix = (url?.pathname ?? "").replace(/^\/+|\/+$/g, "");
  const isPlain =
    url?.search === "" && url.hash === "" && url.username === "" && url.password === "" && url.port === "";
  if (url?.protocol !== "s3:" || !isPlain || !PREFIX.test(prefix)) {
    const remedy = `name ${LOCATION_HELP}; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY`;
    throw new CliError(`invalid archive \`${location.replace(/\/\/[^/@]*@/, "//…@")}\``, EXIT.usage, remedy);
  }
  const region = process.env.AWS_REGION ?? process.env.AWS_DEFAULT_REGION ?? "us-east-1";
  const bucket = url.host;
  const { createS3Client } = await import("../upstream/index.js");
  const client = createS3Client({
    endpoint: process.env.AWS_ENDPOINT_URL_S3 ?? process.env.AWS_ENDPOINT_URL ?? `https://s3.${region}.amazonaws.com`,
    region,
    bucket,
    accessKeyId: needed("AWS_ACCESS_KEY_ID"),
    secretAccessKey: needed("AWS_SECRET_ACCESS_KEY"),
    sessionToken: takeVariable("AWS_SESSION_TOKEN"),
  });
  const keyOf = (name: string): string => (prefix === "" ? name : `${prefix}/${name}`);
  return {
    archive: {
      location: prefix === "" ? `s3://${bucket}` : `s3://${bucket}/${prefix}`,
      put: (name, bytes) => client.put(keyOf(name), bytes),
      get: (name, maxBytes) => client.get(keyOf(name), maxBytes),
      size: (name) => client.head(keyOf(name)),
      list: async (directory) => {
        const start = keyOf(`${directory}/`);
        return (await client.list(start)).map((key) => key.slice(start.length));
      },
    },
    close: () => client.close(),
  };
}

function needed(name: string): string {
  const value = takeVariable(name);
  if (value) return value;
  throw new CliError(`an S3 archive needs ${name}`, EXIT.usage, "set it in the environment");
}
