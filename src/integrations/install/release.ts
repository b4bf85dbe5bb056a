// What a release says of itself, once its signature holds: version and channel in the signed comment, and the SHA-256 of
// every archive. Nothing else that a release server says is believed; its index only tells where to look.

import { CHANNELS, type ReleaseChannel } from "./home.js";
import { type ReleaseKey, SignatureInvalid, verifySignature } from "./minisign.js";
import { isVersion } from "./version.js";

export interface Release {
  readonly version: string;
  readonly channel: ReleaseChannel;
  /** Unix seconds; says how old an offer is. */
  readonly published: number | undefined;
  /** Archive name → SHA-256 in hexadecimal. */
  readonly sums: ReadonlyMap<string, string>;
}

export const SUMS = "SHA256SUMS";
export const SIGNATURE = "SHA256SUMS.minisig";
export const MAX_SUMS_BYTES = 64 * 1024;
const SUM_LINE = /^([0-9a-f]{64}) [ *]([0-9A-Za-z][0-9A-Za-z._+-]{0,127})$/;

export function readRelease(sums: Buffer, signature: Buffer, key: ReleaseKey): Release {
  const facts = commentFacts(verifySignature(sums, signature, key));
  const version = facts.get("version");
  const channel = facts.get("channel") as ReleaseChannel | undefined;
  if (facts.get("name") !== "portcullis" || !isVersion(version) || !channel || !CHANNELS.includes(channel)) {
    throw new SignatureInvalid(
      `the signature is not of a Portcullis release: its comment names no version and channel`,
    );
  }
  const published = Number(facts.get("timestamp"));
  return { version, channel, published: Number.isSafeInteger(published) ? published : undefined, sums: sumsOf(sums) };
}

/** The comment is `key:value` pairs between tabs, as minisign writes its own. */
function commentFacts(comment: string): Map<string, string> {
  const facts = new Map<string, string>();
  for (const part of comment.split("\t")) {
    const colon = part.indexOf(":");
    const name = part.slice(0, colon);
    if (colon <= 0) continue;
    if (facts.has(name)) throw new SignatureInvalid(`the signed comment says \`${name}\` twice`);
    facts.set(name, part.slice(colon + 1));
  }
  return facts;
}

function sumsOf(text: Buffer): Map<string, string> {
  const sums = new Map<string, string>();
  for (const line of text.toString("latin1").split("\n")) {
    if (line === "") continue;
    const [, sum, name] = SUM_LINE.exec(line) ?? [];
    if (sum === undefined || name === undefined || sums.has(name)) {
      throw new SignatureInvalid(`${SUMS} has a line that is not \`<sha256>  <name>\`, or a name twice`);
    }
    sums.set(name, sum);
  }
  return sums;
}

/** One archive for each kind of machine, because one dependency is compiled. */
export function archiveName(version: string): string {
  return `portcullis-${version}-${machine()}.tar.gz`;
}

function machine(): string {
  // The report would otherwise look up the names of whatever is connected, which can take long.
  Object.assign(process.report, { excludeNetwork: true });
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const musl = process.platform === "linux" && header?.glibcVersionRuntime === undefined;
  return `${process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}
