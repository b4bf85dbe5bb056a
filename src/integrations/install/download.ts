// Fetching from a release server: HTTPS only (plain HTTP on this machine itself), sizes and times bounded.

import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { EnvHttpProxyAgent, fetch } from "undici";
import { CliError } from "../../lib/exit.js";

const QUIET_MS = 30_000;
const TOTAL_MS = 10 * 60_000;
const MAX_REDIRECTS = 5;
const MAX_ARCHIVE_BYTES = 256 * 1024 * 1024;

export function checkUrl(text: string, base?: string): URL {
  let url: URL;
  try {
    url = new URL(text, base);
  } catch {
    throw new CliError(`${text} is not a valid URL`);
  }
  const loopback = /^(127\.\d+\.\d+\.\d+|localhost|\[::1\])$/.test(url.hostname);
  if (url.protocol === "https:" || (url.protocol === "http:" && loopback)) return url;
  throw new CliError(`releases are fetched by https, not from ${url.protocol}//${url.host}`);
}

/** A small file, whole. */
export async function fetchBytes(url: URL, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  await stream(url, maxBytes, async (chunk) => {
    parts.push(chunk);
  });
  return Buffer.concat(parts);
}

/** Into a new file; answers its SHA-256. */
export async function fetchFile(url: URL, path: string, maxBytes = MAX_ARCHIVE_BYTES): Promise<string> {
  const hash = createHash("sha256");
  const file = await open(path, "wx", 0o600);
  try {
    await stream(url, maxBytes, async (chunk) => {
      hash.update(chunk);
      await file.writeFile(chunk);
    });
  } finally {
    await file.close();
  }
  return hash.digest("hex");
}

async function stream(url: URL, maxBytes: number, take: (chunk: Buffer) => Promise<void>): Promise<void> {
  const agent = new EnvHttpProxyAgent({
    headersTimeout: QUIET_MS,
    bodyTimeout: QUIET_MS,
    connect: { timeout: QUIET_MS },
  });
  try {
    const { body, headers } = await follow(url, agent);
    const announced = headers.get("content-length");
    let size = 0;
    for await (const chunk of body ?? []) {
      size += chunk.length;
      if (size > maxBytes) throw new CliError(`${url.href} is larger than ${maxBytes} bytes`);
      await take(Buffer.from(chunk));
    }
    if (announced !== null && !headers.has("content-encoding") && Number(announced) !== size) {
      throw new CliError(`${url.href} ended early: ${size} of ${announced} bytes`);
    }
  } catch (error) {
    if (error instanceof CliError) throw error;
    const { message, cause } = error as Error & { cause?: Error };
    throw new CliError(`cannot fetch ${url.href}: ${cause?.message || message}`);
  } finally {
    await agent.destroy();
  }
}

async function follow(from: URL, dispatcher: EnvHttpProxyAgent) {
  const signal = AbortSignal.timeout(TOTAL_MS);
  let url = from;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const response = await fetch(url, { dispatcher, signal, redirect: "manual" });
    const location = response.headers.get("location");
    if (response.status >= 300 && response.status < 400 && location !== null) {
      await response.body?.cancel();
      url = checkUrl(location, url.href);
      continue;
    }
    if (response.status !== 200) throw new CliError(`${url.href} answers ${response.status}`);
    return response;
  }
  throw new CliError(`${from.href} redirects more than ${MAX_REDIRECTS} times`);
}
