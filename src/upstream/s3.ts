// A small client for S3-compatible object storage, over the one outbound dialer. Requests are signed with AWS Signature
// Version 4, and the hash of what is sent is part of the signature, so the store refuses what was changed on the way.

import { createHash, createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Fault } from "../mcp/index.js";
import { allowanceFor, createDialer, createOutbound } from "./dialer.js";

export interface S3Options {
  /** Such as `https://s3.eu-central-1.amazonaws.com` or `http://minio:9000`. Buckets are addressed by path. */
  readonly endpoint: string;
  readonly region: string;
  readonly bucket: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
  /** One request with its answer. Default 300000. */
  readonly timeoutMs?: number;
  /** Objects in one page of a list. Default 1000, which is the most that S3 gives. */
  readonly pageSize?: number;
}

export interface S3Client {
  /** Resolves when the store has acknowledged the object. */
  put(key: string, bytes: Buffer): Promise<void>;
  /** The whole object, or undefined when there is none. */
  get(key: string, maxBytes: number): Promise<Buffer | undefined>;
  /** Size of an object, or undefined when there is none. */
  head(key: string): Promise<number | undefined>;
  /** Keys that begin with `prefix`. */
  list(prefix: string): Promise<string[]>;
  close(): Promise<void>;
}

const SAFE_KEY = /^[A-Za-z0-9._/-]{1,900}$/;
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const TRIES = 3;
const MAX_PAGES = 1_000;
const MAX_ANSWER_BYTES = 4 << 20;
const ALGORITHM = "AWS4-HMAC-SHA256";

const sha256 = (data: Buffer | string): Buffer => createHash("sha256").update(data).digest();
const hmac = (key: Buffer | string, text: string): Buffer => createHmac("sha256", key).update(text).digest();

interface Request {
  readonly method: "GET" | "HEAD" | "PUT";
  readonly key: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
}

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
}

export function createS3Client(options: S3Options): S3Client {
  const endpoint = new URL(options.endpoint);
  if (!BUCKET.test(options.bucket)) throw new Fault("InvalidParams", `\`${options.bucket}\` is not a bucket name`);
  const outbound = createOutbound(createDialer({ allow: [allowanceFor(endpoint)] }));

  async function once({ method, key, query = {}, body }: Request, maxBytes: number): Promise<Answer> {
    if (key !== "" && !SAFE_KEY.test(key)) {
      throw new Fault("InvalidParams", `\`${key}\` is not an object name: expected letters, digits and . _ - /`);
    }
    const path = `${endpoint.pathname.replace(/\/$/, "")}/${options.bucket}${key === "" ? "" : `/${key}`}`;
    const search = Object.keys(query)
      .sort()
      .map((name) => `${encode(name)}=${encode(query[name] as string)}`)
      .join("&");
    const url = new URL(`${endpoint.origin}${path}${search === "" ? "" : `?${search}`}`);
    const headers = signedHeaders(options, {
      method,
      host: url.host,
      path,
      search,
      body: body ?? Buffer.alloc(0),
      at: new Date(),
    });
    const signal = AbortSignal.timeout(options.timeoutMs ?? 300_000);
    const init: RequestInit = { method, headers, signal, redirect: "manual" };
    const response = await outbound.fetch(url, body === undefined ? init : { ...init, body: new Uint8Array(body) });
    return { status: response.status, headers: response.headers, bytes: await bounded(response, maxBytes) };
  }

  /** Tries again where the store or the network failed for a moment: every request can be repeated. */
  async function request(what: Request, maxBytes = MAX_ANSWER_BYTES): Promise<Answer> {
    for (let tried = 1; ; tried++) {
      try {
        const answer = await once(what, maxBytes);
        if (answer.status === 200 || answer.status === 404) return answer;
        if (tried === TRIES || answer.status < 500) throw refused(what, answer);
      } catch (error) {
        if (tried === TRIES || error instanceof Fault) throw error;
      }
      await sleep(tried * 250);
    }
  }

  function refused({ method, key }: Request, { status, bytes }: Answer): Fault {
    const code = /<Code>([A-Za-z0-9]{1,64})<\/Code>/.exec(bytes.toString("latin1"))?.[1];
    const reason = code === undefined ? String(status) : `${status} ${code}`;
    return new Fault("Unavailable", `${endpoint.origin} answered ${reason} to ${method} ${options.bucket}/${key}`);
  }

  return {
    async put(key, body) {
      const answer = await request({ method: "PUT", key, body });
      if (answer.status === 404) throw refused({ method: "PUT", key }, answer);
    },

    async get(key, maxBytes) {
      const { status, bytes } = await request({ method: "GET", key }, maxBytes);
      return status === 404 ? undefined : bytes;
    },

    async head(key) {
      const { status, headers } = await request({ method: "HEAD", key });
      return status === 404 ? undefined : Number(headers.get("content-length"));
    },

    async list(prefix) {
      const keys: string[] = [];
      for (let page = 0; page < MAX_PAGES; page++) {
        const marker = keys.at(-1);
        const size = String(options.pageSize ?? 1_000);
        const query = { prefix, "max-keys": size, ...(marker === undefined ? {} : { marker }) };
        const answer = await request({ method: "GET", key: "", query });
        if (answer.status === 404) throw refused({ method: "GET", key: "" }, answer);
        const text = answer.bytes.toString("utf8");
        for (const [, key] of text.matchAll(/<Key>([^<]*)<\/Key>/g)) keys.push(unescapeXml(key as string));
        if (!text.includes("<IsTruncated>true</IsTruncated>")) return keys;
        if (keys.at(-1) === marker) break;
      }
      throw new Fault("Unavailable", `${options.bucket}/${prefix} could not be listed in ${MAX_PAGES} pages`);
    },

    close: () => outbound.close(),
  };
}

/** RFC 3986 as Signature Version 4 asks for it. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

function unescapeXml(text: string): string {
  const names: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
  return text.replace(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => names[name] as string);
}

interface ToSign {
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly search: string;
  readonly body: Buffer;
  readonly at: Date;
}

type Signing = Pick<S3Options, "region" | "accessKeyId" | "secretAccessKey" | "sessionToken">;

/** The headers of one request in AWS Signature Version 4. */
export function signedHeaders(
  options: Signing,
  { method, host, path, search, body, at }: ToSign,
): Record<string, string> {
  const { region, accessKeyId, secretAccessKey, sessionToken } = options;
  const time = at.toISOString().replace(/[-:]|\.\d+/g, "");
  const day = time.slice(0, 8);
  const bodyHash = sha256(body);
  const headers: Record<string, string> = {
    host,
    ...(method === "PUT" ? { "x-amz-checksum-sha256": bodyHash.toString("base64") } : {}),
    "x-amz-content-sha256": bodyHash.toString("hex"),
    "x-amz-date": time,
    ...(sessionToken === undefined ? {} : { "x-amz-security-token": sessionToken }),
  };
  const names = Object.keys(headers).sort();
  const lines = names.map((name) => `${name}:${headers[name]}\n`).join("");
  const canonical = [method, path, search, lines, names.join(";"), headers["x-amz-content-sha256"]].join("\n");
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = [ALGORITHM, time, scope, sha256(canonical).toString("hex")].join("\n");
  let key: Buffer | string = `AWS4${secretAccessKey}`;
  for (const part of scope.split("/")) key = hmac(key, part);
  const signature = hmac(key, text).toString("hex");
  const { host: _, ...sent } = headers;
  const credential = `Credential=${accessKeyId}/${scope}`;
  return {
    ...sent,
    authorization: `${ALGORITHM} ${credential}, SignedHeaders=${names.join(";")}, Signature=${signature}`,
  };
}

async function bounded(response: Response, maxBytes: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += part.length;
    if (size > maxBytes) throw new Fault("Unavailable", `the answer of the object store is over ${maxBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}
