// Texts in a form in which copies can be found: without case, layout, escapes and invisible characters, and with what is
// encoded in them (JSON, percent, HTML, hexadecimal, base64) decoded beside it.

/** A text as it is compared. `plain` keeps words apart, `squeezed` has letters and digits alone. */
export interface Comparable {
  readonly plain: string;
  readonly squeezed: string;
}

const MAX_DECODED_CHARS = 65_536;
const MAX_ENCODED_RUNS = 64;
const ENCODINGS_DEEP = 2;

export function comparableText(text: string): Comparable {
  const plain = simplify(withDecoded(unescapeJson(text), ENCODINGS_DEEP));
  return { plain, squeezed: squeeze(plain) };
}

/** Lower case, one form for each character, invisible characters removed, white space as one space. */
function simplify(text: string): string {
  return text
    .normalize("NFKC")
    .toLowerCase()
    .replace(/[\p{Cf}\p{Mn}]/gu, "")
    .replace(/[\s\p{Cc}]+/gu, " ");
}

export function squeeze(plain: string): string {
  return plain.replace(/[^\p{L}\p{N}]+/gu, "");
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  r: "\n",
  t: "\t",
  b: " ",
  f: " ",
  '"': '"',
  "/": "/",
  "\\": "\\",
};

/** Twice, because a result often is JSON inside a JSON string. */
function unescapeJson(text: string): string {
  let out = text;
  for (let i = 0; i < 2 && out.includes("\\"); i++) {
    out = out.replace(/\\(?:u([0-9a-fA-F]{4})|([nrtbf"/\\]))/g, (_, code?: string, short?: string) =>
      code === undefined ? (ESCAPES[short ?? ""] ?? "") : String.fromCharCode(Number.parseInt(code, 16)),
    );
  }
  return out;
}

function withDecoded(text: string, depth: number): string {
  if (depth === 0) return text;
  const found: string[] = [];
  const add = (decoded: string | undefined): void => {
    if (decoded !== undefined && decoded !== "")
      found.push(withDecoded(decoded.slice(0, MAX_DECODED_CHARS), depth - 1));
  };
  if (/%[0-9a-fA-F]{2}/.test(text)) add(percentDecoded(text));
  if (/&(?:#x?[0-9a-fA-F]+|amp|lt|gt|quot|apos);/.test(text)) add(entityDecoded(text));
  for (const [run] of limited(text.matchAll(/[A-Za-z0-9+/_-]{12,}={0,2}/g))) add(base64Decoded(run));
  for (const [run] of limited(text.matchAll(/(?:[0-9a-fA-F]{2}[ :]?){8,}/g))) add(hexDecoded(run));
  return found.length === 0 ? text : [text, ...found].join("\n");
}

function* limited<T>(matches: Iterable<T>): Iterable<T> {
  let left = MAX_ENCODED_RUNS;
  for (const match of matches) {
    if (left-- === 0) return;
    yield match;
  }
}

function percentDecoded(text: string): string {
  return text.replace(/(?:%[0-9a-fA-F]{2})+/g, (run) => Buffer.from(run.replaceAll("%", ""), "hex").toString("utf8"));
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function entityDecoded(text: string): string {
  return text.replace(
    /&(?:#x([0-9a-fA-F]{1,6})|#([0-9]{1,7})|([a-z]+));/g,
    (all, hex?: string, digits?: string, name?: string) => {
      const code = hex === undefined ? Number(digits) : Number.parseInt(hex, 16);
      if (name !== undefined) return ENTITIES[name] ?? all;
      return code <= 0x10ffff ? String.fromCodePoint(code) : all;
    },
  );
}

function base64Decoded(run: string): string | undefined {
  return readable(Buffer.from(run, "base64"));
}

function hexDecoded(run: string): string | undefined {
  return readable(Buffer.from(run.replace(/[ :]/g, ""), "hex"));
}

/** Undefined for bytes that are not text: most words are not base64. */
function readable(bytes: Buffer): string | undefined {
  if (bytes.length < 6) return undefined;
  for (const byte of bytes.subarray(0, 512)) if (byte < 9 || (byte > 13 && byte < 32)) return undefined;
  const text = bytes.toString("utf8");
  return text.includes("\ufffd") ? undefined : text;
}
