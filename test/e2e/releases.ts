// A release server on this machine, and what it may serve: good releases, broken ones, and forgeries.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import {
  makeKey,
  publicKeyText,
  releaseComment,
  type SigningKey,
  secretPem,
  signFile,
} from "../../scripts/release/signing.mjs";
import { tarGz } from "../../scripts/release/tar.mjs";
import { root } from "./serving.js";

const machine = `${process.platform}-${process.arch}`;

export interface Releases {
  readonly url: string;
  readonly keyFile: string;
  readonly key: SigningKey;
  /** Called with the path of each request; a promise holds the answer back. */
  onRequest: (path: string) => void | Promise<void>;
  /** Changes bytes on their way; the length that is announced stays that of the file. */
  tamper: (path: string, bytes: Buffer) => Buffer;
  file(...parts: string[]): string;
  /** From this repository, by the script that makes releases. */
  real(version: string, channel?: string): void;
  /** A package of one script, signed like any other. */
  small(version: string, script: string, options?: Forgery): void;
  /** Which version the channel offers. */
  offer(version: string, channel?: string, path?: string): void;
  stop(): Promise<void>;
}

export interface Forgery {
  readonly key?: SigningKey;
  readonly channel?: string;
  readonly comment?: string;
  readonly inside?: string;
  readonly entries?: Parameters<typeof tarGz>[0];
}

export async function startReleases(dir: string): Promise<Releases> {
  const key = makeKey();
  const keyFile = join(dir, "release.pub");
  const secretFile = join(dir, "release.pem");
  const served = join(dir, "served");
  mkdirSync(served, { recursive: true });
  writeFileSync(keyFile, publicKeyText(key));
  writeFileSync(secretFile, secretPem(key), { mode: 0o600 });
  const server = createServer(async (request, response) => {
    const path = (request.url as string).slice(1);
    try {
      await releases.onRequest(path);
      const bytes = readFileSync(join(served, path));
      response.writeHead(200, { "content-length": bytes.length });
      response.end(releases.tamper(path, bytes));
      if (releases.tamper(path, bytes).length < bytes.length) response.destroy();
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const offer = (version: string, channel = "stable", path?: string): void =>
    writeFileSync(join(served, `${channel}.json`), JSON.stringify({ version, path }));
  const releases: Releases = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    keyFile,
    key,
    onRequest: () => {},
    tamper: (_, bytes) => bytes,
    file: (...parts) => join(served, ...parts),
    real(version, channel = "stable") {
      const script = join(root, "scripts", "release.mjs");
      const args = [
        "--no-build",
        "--secret-key",
        secretFile,
        "--out",
        served,
        "--version",
        version,
        "--channel",
        channel,
      ];
      const env = { ...process.env, PORTCULLIS_GZIP_LEVEL: "1" };
      execFileSync(process.execPath, [script, ...args], { env, stdio: ["ignore", "ignore", "pipe"] });
    },
    small(version, script, forgery = {}) {
      const top = `portcullis-${version}`;
      const manifest = { name: "portcullis", version: forgery.inside ?? version, type: "module" };
      const archive = tarGz([
        { name: `${top}/package.json`, bytes: Buffer.from(JSON.stringify(manifest)) },
        { name: `${top}/dist/cli/main.js`, bytes: Buffer.from(script) },
        ...(forgery.entries ?? []),
      ]);
      const name = `${top}-${machine}.tar.gz`;
      const sums = Buffer.from(`${createHash("sha256").update(archive).digest("hex")}  ${name}\n`);
      const channel = forgery.channel ?? "stable";
      const comment = forgery.comment ?? releaseComment(version, channel, 1_800_000_000);
      mkdirSync(join(served, version), { recursive: true });
      writeFileSync(join(served, version, name), archive);
      writeFileSync(join(served, version, "SHA256SUMS"), sums);
      writeFileSync(join(served, version, "SHA256SUMS.minisig"), signFile(sums, forgery.key ?? key, comment));
      offer(version);
    },
    offer,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return releases;
}

/** Answers like a host of this version: `deny` says whether it refuses what its policy does not allow. */
export function stub(version: string, deny = true): string {
  return `
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
if (process.argv[2] === "--version") { console.log("${version}"); process.exit(0); }
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  const answer = method === "initialize" ? { result: { serverInfo: { name: "stub", version: "${version}" } } }
    : ${deny} && params.path.endsWith("policy.yaml") ? { error: { code: -1, message: "no", data: { code: "POLICY_DENY" } } }
    : { result: { data: readFileSync(params.path, "utf8") } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
});
`;
}
