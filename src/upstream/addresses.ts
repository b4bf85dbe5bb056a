// Which addresses are the public internet, and which are internal. What is not known to be public counts as internal.

import { isIP } from "node:net";

/** Sixteen bytes; IPv4 as `::ffff:a.b.c.d`, which is also how such an address counts when it is written so. */
type Address = Uint8Array;

export interface Range {
  readonly base: Address;
  /** Of 128 bits. */
  readonly bits: number;
}

export type AddressKind =
  | "public"
  /** Private networks: reachable where the operator names the host. */
  | "private"
  | "loopback"
  /** Link-local (cloud metadata lives there), multicast, unspecified, reserved: only by naming the address itself. */
  | "special";

export function parseAddress(text: string): Address | undefined {
  const plain = text.replace(/^\[|\]$/g, "").split("%", 1)[0] as string;
  switch (isIP(plain)) {
    case 4:
      return mapped(plain.split(".").map(Number));
    case 6:
      return parseV6(plain);
    default:
      return undefined;
  }
}

function mapped(octets: readonly number[]): Address {
  return Uint8Array.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...octets]);
}

/** INVARIANT: `isIP` accepts the text. */
function parseV6(text: string): Address {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text);
  const hex = dotted ? `${dotted[1]}${pair(dotted[2], dotted[3])}:${pair(dotted[4], dotted[5])}` : text;
  const [left = "", right] = hex.split("::");
  const head = groups(left);
  const tail = right === undefined ? [] : groups(right);
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => 0);
  const all = [...head, ...zeros, ...tail];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 255]));
}

function pair(high: string | undefined, low: string | undefined): string {
  return (Number(high) * 256 + Number(low)).toString(16);
}

function groups(text: string): number[] {
  return text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
}

/** `10.0.0.0/8`, `fd00::/8`, or a single address. Undefined when it is none of these. */
export function parseRange(text: string): Range | undefined {
  const [address = "", size, ...more] = text.split("/");
  const base = parseAddress(address);
  if (base === undefined || more.length > 0 || (size !== undefined && !/^\d{1,3}$/.test(size))) return undefined;
  const isV4 = isIP(address.replace(/^\[|\]$/g, "")) === 4;
  const bits = size === undefined ? 128 : Number(size) + (isV4 ? 96 : 0);
  return bits > 128 ? undefined : { base, bits };
}

export function inRange(address: Address, range: Range): boolean {
  const whole = range.bits >> 3;
  for (let i = 0; i < whole; i++) if (address[i] !== range.base[i]) return false;
  const rest = range.bits & 7;
  if (rest === 0) return true;
  const mask = 0xff & (0xff << (8 - rest));
  return ((address[whole] as number) & mask) === ((range.base[whole] as number) & mask);
}

function ranges(texts: readonly string[]): readonly Range[] {
  return texts.map((text) => parseRange(text) as Range);
}

const LOOPBACK = ranges(["127.0.0.0/8", "::1"]);
const PRIVATE = ranges([
  "10.0.0.0/8",
  "172.16.0.0/12",
  "192.168.0.0/16",
  "100.64.0.0/10",
  "fc00::/7",
  // For documentation and benchmarks: in use in laboratories, where an operator can name what is there.
  "192.0.2.0/24",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
]);
/** IANA's special-purpose registries; fd00:ec2::254 is a metadata address inside a private range. */
const SPECIAL = ranges([
  "0.0.0.0/8",
  "169.254.0.0/16",
  "192.0.0.0/24",
  "192.88.99.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  "168.63.129.16",
  "100.100.100.200",
  "192.0.0.192",
  "fd00:ec2::254",
]);
const V4_MAPPED = parseRange("::ffff:0:0/96") as Range;
const GLOBAL_V6 = parseRange("2000::/3") as Range;
const SPECIAL_V6 = ranges(["2001:db8::/32", "2001:10::/28", "2001:20::/28", "3fff::/20", "5f00::/16"]);
/** Ways to write an IPv4 address inside an IPv6 one, and where it stands: the inner one counts. */
const CARRIERS: readonly (readonly [Range, number])[] = [
  [parseRange("64:ff9b::/96") as Range, 12],
  [parseRange("64:ff9b:1::/48") as Range, 12],
  [parseRange("2002::/16") as Range, 2],
];
/** Teredo and IPv4-compatible addresses belong to no server. */
const NEVER_V6 = ranges(["2001::/32", "::/96"]);

export function addressKindOf(address: Address): AddressKind {
  const within = (list: readonly Range[]): boolean => list.some((range) => inRange(address, range));
  if (within(SPECIAL)) return "special";
  if (within(LOOPBACK)) return "loopback";
  if (within(PRIVATE)) return "private";
  if (inRange(address, V4_MAPPED)) return "public";
  for (const [range, at] of CARRIERS) {
    if (inRange(address, range)) return addressKindOf(mapped(Array.from(address.subarray(at, at + 4))));
  }
  if (within(NEVER_V6) || within(SPECIAL_V6)) return "special";
  return inRange(address, GLOBAL_V6) ? "public" : "special";
}
