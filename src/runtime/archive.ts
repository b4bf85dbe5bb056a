// Where copies of the ledger go: a directory, or a bucket of S3-compatible storage. Credentials come from the
// environment, where other S3 programs look for them too, and never from the command line.

import { type Archive, directoryArchive } from "../ledger/index.js";
import { takeVariable } from "./environment.js";
import { CliError, EXIT } from "../lib/exit.js";

export interface OpenedArchive {
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
