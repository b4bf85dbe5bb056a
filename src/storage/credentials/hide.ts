// Credentials that stand in a document in clear: taken out before anything of it is shown or written to a file.

import { isJsonObject, type JsonValue, pathText } from "../../mcp/index.js";
import { isCredentialName } from "./looks.js";
import {
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  replaceSpans,
  type CredentialSpan,
} from "./spans.js";

type Path = readonly string[];

/** What stands there instead: told where, and what it goes by. */
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

/** Where they stand, for a person who should move them to the store. */
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
