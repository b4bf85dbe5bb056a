// What looks like a credential, by the name it goes by or by its form. One too many does no harm: it is sealed, and works
// as before. One too few would stand in the store in clear.

import { isJsonObject, type JsonValue, pathText } from "../../mcp/index.js";
import {
  type CredentialSpan,
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  replaceSpans,
} from "./spans.js";

const NAME =
  /api_?-?key|(^|[^a-z])(key|keys|pat|auth|pwd|pass|pin|otp|dsn)([^a-z]|$)|token|secret|passw|passphrase|credential|authorization|cookie|private|connection_?-?string|database_?-?url|webhook/i;
const CAMEL = /[a-z]Keys?$/;

/** Issuers mark their tokens so that they are found in any text. Matched where they stand, not only as the whole. */
const MARKED = [
  /(?<![A-Za-z0-9])sk-(?:ant|proj|or|svcacct|admin)-[A-Za-z0-9_-]{6,}/g,
  // With a digit in it: `sk-learn-models` is a directory.
  /(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{10,}/g,
  /gh[pousr]_[A-Za-z0-9]{10,}/g,
  /github_pat_[A-Za-z0-9_]+/g,
  /glpat-[A-Za-z0-9_.-]+/g,
  /xox[a-z]-[A-Za-z0-9-]+/g,
  /(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}/g,
  /AIza[A-Za-z0-9_-]{20,}/g,
  /(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_.-]+/g,
  /(?<![A-Za-z0-9])npm_[A-Za-z0-9]{20,}/g,
  /(?<![A-Za-z0-9])(?:hf|ntn|secret|lin_api|figd|shpat|dop_v1|sntrys)_(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{12,}/g,
  /(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/g,
  /(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)?/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|$)/g,
];

/** Too short or too common to be looked for inside of other texts. */
const WHOLE = [
  /^(sk|pk|rk)[-_][A-Za-z0-9_-]{10,}/,
  /^(ntn|secret|lin_api|figd|hf|pat|shpat|dop_v1|sntrys|r8|tvly|pplx|gsk|fc|re)[-_][A-Za-z0-9_-]{12,}/,
  /^(Bearer|Basic|Token) \S+/i,
  /^[a-z][a-z0-9+.-]*:\/\/[^\s/?#]*:[^\s/?#]+@/i,
];

/** A long text of random characters: not a path, a sentence, a version or a package. */
const RANDOM = /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{24,}$/;
const WORDS = /^[a-z]+([-_/][a-z0-9]+)+$/i;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The working directory, by the names that shells and npm have for it: `pwd` is a password in other names. */
const DIRECTORIES: ReadonlySet<string> = new Set(["PWD", "OLDPWD", "INIT_CWD"]);

export function isCredentialName(name: string): boolean {
  if (DIRECTORIES.has(name)) return false;
  return NAME.test(name) || CAMEL.test(name);
}

export function hasCredentialForm(text: string): boolean {
  if (WHOLE.some((form) => form.test(text)) || UUID.test(text)) return true;
  if (markedTokens(text).some(([start]) => start === 0)) return true;
  return RANDOM.test(text) && !WORDS.test(text) && !text.startsWith("/") && digitRuns(text) >= 2;
}

/** Where tokens with an issuer's mark begin and end. */
export function markedTokens(text: string): [start: number, end: number][] {
  return MARKED.flatMap((form) =>
    [...text.matchAll(form)].map(({ index, 0: token }): [number, number] => [index, index + token.length]),
  );
}

/** How often digits begin anew: many in what is random, one or two in a name with a version. */
function digitRuns(text: string): number {
  return text.match(/\d+/g)?.length ?? 0;
}

/** Headers that carry a credential whatever is in them. */
export function isCredentialHeader(name: string): boolean {
  return ["authorization", "proxy-authorization", "cookie", "x-api-key"].includes(name.toLowerCase());
}

type Path = readonly string[];

/** What stands in place of a credential: where it was and by which name it is referred to. */
type Replace = (path: Path, name: string, value: string) => string;

const SENSITIVE = /key|token|secret|passw|credential|authorization|cookie/i;
const REFERENCE = /\$\{(secret|env):[^}]+\}/;
/** Under these, names are chosen by the operator and values may be anything. */
const FREE_PLACES = new Set(["env", "headers", "config", "llm"]);

/** Credentials by their names, by their forms, and by where they stand in arguments and addresses; references stay. */
export function hideCredentials(value: JsonValue, path: Path = []): JsonValue {
  return replaceCredentials(value, path, () => "[hidden]");
}

export function replaceCredentials(value: JsonValue, path: Path, replace: Replace): JsonValue {
  if (typeof value === "string") return inText(value, path, replace);
  if (Array.isArray(value)) {
    return isServerField(path, "args")
      ? inArguments(value, path, replace)
      : value.map((each) => replaceCredentials(each, path, replace));
  }
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [
      name,
      replaceCredentials(each as JsonValue, [...path, name], replace),
    ]),
  );
}

const MAX_SAID = 20;

/** Where credentials stand, so that an operator can move them to the store. */
export function clearCredentials(app: string, document: JsonValue): string[] {
  const places = new Set<string>();
  replaceCredentials(document, [], (path) => {
    places.add(pathText(path));
    return "";
  });
  return [...places]
    .slice(0, MAX_SAID)
    .map(
      (place) =>
        `${place} holds what looks like a credential, in clear: portcullis secret set ${app} NAME, and write \${secret:NAME} there`,
    );
}

function inText(text: string, path: Path, replace: Replace): string {
  const name = path.at(-1) ?? "";
  const spanned = (spans: readonly CredentialSpan[]): string =>
    replaceSpans(text, spans, (span, value) => replace(path, span.name || name, value));
  if (path.some((part) => FREE_PLACES.has(part))) {
    const isNamed = SENSITIVE.test(name) || isCredentialName(name);
    if (isNamed) return text === "" || REFERENCE.test(text) ? text : replace(path, name, text);
    return spanned(credentialsInText(text));
  }
  if (isServerField(path, "url")) return spanned(credentialsInUrl(text));
  return isServerField(path, "command") ? spanned(credentialsInText(text)) : text;
}

function inArguments(values: readonly JsonValue[], path: Path, replace: Replace): JsonValue[] {
  const texts = values.map((each) => ({ text: typeof each === "string" ? each : "", isSecret: false }));
  const found = credentialsInArguments(texts);
  return values.map((each, i) =>
    typeof each === "string"
      ? replaceSpans(each, found[i] ?? [], ({ name }, value) => replace(path, name || `arg-${i + 1}`, value))
      : each,
  );
}

/** Of a server's entry, by itself or in its document. */
function isServerField(path: Path, field: string): boolean {
  return path.at(-1) === field && (path.length === 1 || path[0] === "servers");
}
