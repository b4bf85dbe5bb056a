// From the arguments of a tool to the HTTP request of its operation, by the styles of OpenAPI's parameters.

import { Fault, isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { ApiOperation, Parameter } from "./operations.js";

export interface HttpRequestParts {
  readonly url: URL;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

/** Throws a Fault where an argument would lead to another path than the operation's. */
export async function operationRequest(
  operation: ApiOperation,
  base: URL,
  args: JsonObject,
): Promise<HttpRequestParts> {
  const headers: Record<string, string> = { accept: "application/json, */*;q=0.5" };
  const query: string[] = [];
  const cookies: string[] = [];
  const inPath = new Map<string, string>();
  for (const parameter of operation.parameters) {
    const value = args[parameter.property];
    if (value === undefined) continue;
    switch (parameter.in) {
      case "path":
        inPath.set(parameter.name, pathText(parameter, value));
        break;
      case "query":
        query.push(...pairsOf(parameter, value));
        break;
      case "header":
        headers[parameter.name.toLowerCase()] = headerText(parameter, value);
        break;
      case "cookie":
        cookies.push(...pairsOf(parameter, value));
    }
  }
  if (cookies.length > 0) headers.cookie = cookies.join("; ");
  // Some documents tell operations of one path apart by a fragment, which is never sent.
  const path = operation.path.replace(/#.*$/, "").replace(/\{([^{}]+)\}/g, (_, name: string) => inPath.get(name) ?? "");
  const url = new URL(base);
  url.pathname = `${base.pathname.replace(/\/$/, "")}${path}`;
  // Several values in one segment can be a dot segment together.
  if (path.split("/").some((segment) => DOTS.test(segment))) {
    throw new Fault("ValidationError", "the arguments lead to another path than the operation's", {
      extra: { delivered: false },
    });
  }
  url.search = query.join("&");
  const { text, type } = await bodyOf(operation.body, args.body);
  if (type !== undefined) headers["content-type"] = type;
  return { url, method: operation.method.toUpperCase(), headers, body: text };
}

/** It would be taken out of the address, and its neighbour with it. */
const DOTS = /^(\.|%2e){1,2}$/i;

function plain(value: JsonValue): string {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}

function pathText(parameter: Parameter, value: JsonValue): string {
  const text = parameter.isJson
    ? encodeURIComponent(JSON.stringify(value))
    : simple(value, parameter.explode, encodeURIComponent);
  if (text === "" || DOTS.test(text)) {
    throw new Fault("ValidationError", `\`${parameter.property}\` cannot be empty or a dot segment in a path`, {
      field: parameter.property,
      extra: { delivered: false },
    });
  }
  return text;
}

function headerText(parameter: Parameter, value: JsonValue): string {
  const text = parameter.isJson ? JSON.stringify(value) : simple(value, parameter.explode, (part) => part);
  if (/^[\x20-\x7e\t]*$/.test(text)) return text;
  throw new Fault("ValidationError", `\`${parameter.property}\` has characters that a header cannot hold`, {
    field: parameter.property,
    extra: { delivered: false },
  });
}

function simple(value: JsonValue, explode: boolean, encode: (text: string) => string): string {
  if (Array.isArray(value)) return value.map((each) => encode(plain(each))).join(",");
  if (!isJsonObject(value)) return encode(plain(value));
  return Object.entries(value)
    .map(([key, each]) => `${encode(key)}${explode ? "=" : ","}${encode(plain(each))}`)
    .join(",");
}

const SEPARATORS: Readonly<Record<string, string>> = { spaceDelimited: "%20", pipeDelimited: "%7C", form: "," };

function pairsOf({ name, style, explode, isJson }: Parameter, value: JsonValue): string[] {
  const pair = (key: string, text: string): string => `${encodeURIComponent(key)}=${text}`;
  const encoded = (each: JsonValue): string => encodeURIComponent(plain(each));
  if (isJson) return [pair(name, encodeURIComponent(JSON.stringify(value)))];
  if (Array.isArray(value)) {
    if (explode) return value.map((each) => pair(name, encoded(each)));
    return [pair(name, value.map(encoded).join(SEPARATORS[style] ?? ","))];
  }
  if (!isJsonObject(value)) return [pair(name, encoded(value))];
  const entries = Object.entries(value);
  if (style === "deepObject") return entries.map(([key, each]) => pair(`${name}[${key}]`, encoded(each)));
  if (explode) return entries.map(([key, each]) => pair(key, encoded(each)));
  return [pair(name, entries.map(([key, each]) => `${encodeURIComponent(key)},${encoded(each)}`).join(","))];
}

async function bodyOf(
  type: string | undefined,
  value: JsonValue | undefined,
): Promise<{ readonly text?: string; readonly type?: string }> {
  if (type === undefined || value === undefined) return {};
  if (type.startsWith("application/x-www-form-urlencoded")) {
    return { text: new URLSearchParams(fieldsOf(value)).toString(), type };
  }
  if (type.startsWith("multipart/form-data")) {
    const form = new FormData();
    for (const [key, text] of fieldsOf(value)) form.append(key, text);
    const written = new Response(form);
    return { text: await written.text(), type: written.headers.get("content-type") ?? type };
  }
  return { text: type.startsWith("text/") && typeof value === "string" ? value : JSON.stringify(value), type };
}

function fieldsOf(value: JsonValue): [string, string][] {
  return Object.entries(isJsonObject(value) ? value : {}).flatMap(([key, each]): [string, string][] =>
    Array.isArray(each) ? each.map((item) => [key, plain(item)]) : [[key, plain(each)]],
  );
}
