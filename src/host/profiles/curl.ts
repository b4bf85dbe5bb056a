// curl: http and https only, nothing read from or written to files, no config, no proxy, no other address than the
// one shown. Needs `network: true` in the catalog entry.

import { BlockList, isIP } from "node:net";
import {
  type ArgumentProblem,
  type Arranged,
  argumentWords,
  flagLetters,
  type OptionTable,
  type Profile,
  parse,
  READING,
  ruled,
} from "./grammar.js";

const noFile = (value: string): string | undefined =>
  value.startsWith("@") ? "values that begin with @ read a file" : undefined;
const header = (value: string): string | undefined =>
  /^[A-Za-z0-9!#$%&'*+.^_`|~-]+[:;]/.test(value) ? undefined : "must look like `Name: value`";

export const CURL: OptionTable = {
  longValues: "word",
  flags: [
    ...flagLetters("sSfLIiGgv46"),
    ...argumentWords(`
      --silent --show-error --fail --fail-with-body --location --head --include --get --compressed
      --verbose --ipv4 --ipv6 --http1.1 --http2 --tlsv1.2 --tlsv1.3`),
  ],
  values: {
    "-H": header,
    "--header": header,
    ...ruled(noFile, "-d --data --json -A --user-agent"),
    ...ruled("text", "--data-raw -e --referer --url"),
    ...ruled("number", "-m --max-time --connect-timeout"),
    "-X": (v: string) => (/^[A-Z]{1,20}$/.test(v) ? undefined : "must be a method in capitals"),
    "--request": (v: string) => (/^[A-Z]{1,20}$/.test(v) ? undefined : "must be a method in capitals"),
    "--data-urlencode": (v: string) => (/^[^=]*@/.test(v) ? "an @ before any = reads a file" : undefined),
    "--max-redirs": (v: string) => (/^[0-9]$/.test(v) ? undefined : "must be below 10"),
    "--retry": (v: string) => (/^[0-9]$/.test(v) ? undefined : "must be below 10"),
  },
};

export const curl: Profile = {
  ...READING,
  name: "curl",
  env: {
    CURL_HOME: "/nonexistent",
    http_proxy: "",
    https_proxy: "",
    HTTPS_PROXY: "",
    ALL_PROXY: "",
    NO_PROXY: "*",
    no_proxy: "*",
  },
  readOnly: false,
  arrange,
};

function arrange(args: readonly string[]): Arranged | ArgumentProblem {
  const parsed = parse(args, CURL);
  if ("problem" in parsed) return parsed;
  const given = parsed.seen.get("--url");
  const urls = parsed.positionals.map((p) => ({ ...p }));
  if (given !== undefined) urls.push({ text: given, index: 0 });
  if (urls.length !== 1) return { index: 0, problem: "exactly one URL is needed" };
  const url = urls[0] ?? { text: "", index: 0 };
  const problem = checkUrl(url.text);
  if (problem !== undefined) return { index: url.index, problem };
  const options = parsed.given.filter(({ name }) => name !== "--url").flatMap(({ form }) => form);
  // -q must come first or .curlrc is read. A redirect is another's choice of address, so it must show a certificate for
  // it: what listens on this machine or beside it for plain http is not reached by way of another server's answer.
  const safe = ["-q", "--proto", "=http,https", "--proto-redir", "=https", "--globoff", "--noproxy", "*"];
  return { argv: [...safe, ...options, "--url", url.text], paths: [] };
}

const closed = new BlockList();
const V4 = ["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"].concat([
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/3",
]);
const V6 = ["::/96", "::ffff:0:0/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"];
for (const [net = "", prefix] of V4.map((range) => range.split("/"))) closed.addSubnet(net, Number(prefix), "ipv4");
for (const [net = "", prefix] of V6.map((range) => range.split("/"))) closed.addSubnet(net, Number(prefix), "ipv6");

/** Answered by this machine, its neighbours or a cloud's own services (`metadata.google.internal`). */
const LOCAL_NAMES = /\.(localhost|localdomain|local|internal|home\.arpa|lan|intranet)$/;

/** Addresses of this machine and its neighbourhood; a name that resolves to one is the network's business, not ours. */
function checkUrl(text: string): string | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return "is not a URL; it must begin with http:// or https://";
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return "only http and https URLs are allowed";
  if (url.username !== "" || url.password !== "") return "credentials in a URL are not allowed";
  const host = url.hostname
    .replace(/^\[|\]$/g, "")
    .replace(/\.$/, "")
    .toLowerCase();
  const family = isIP(host);
  if (family === 0 && (!host.includes(".") || LOCAL_NAMES.test(host)))
    return "names of the local network are not targets";
  if (family !== 0 && closed.check(host, family === 4 ? "ipv4" : "ipv6"))
    return "private and local addresses are not targets";
  // curl and URL() do not read every odd spelling alike, so only the spelling that both read alike passes.
  if (!text.toLowerCase().startsWith(`${url.protocol}//`)) return "must begin with http:// or https://";
  const shown =
    text
      .slice(text.indexOf("//") + 2)
      .split(/[/?#]/)[0]
      ?.toLowerCase() ?? "";
  if (shown !== url.host && shown !== `${url.host}:${url.protocol === "http:" ? 80 : 443}`)
    return "the host is spelled in an unusual way";
  return undefined;
}
