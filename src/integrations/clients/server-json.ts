// `server.json` of the MCP registry: which package or address a server is, and what it has to be given.

import { CliError } from "../../lib/exit.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { ReadConfig } from "./read.js";

/** The servers of a `server.json`, or of a registry's answer that holds one; undefined for any other document. */
export function readServerJson(document: JsonObject, file: string): ReadConfig | undefined {
  const server = isJsonObject(document.server) ? document.server : document;
  const { name, packages, remotes } = server;
  if (typeof name !== "string" || !(Array.isArray(packages) || Array.isArray(remotes))) return undefined;
  const reader = new ServerJson(file);
  const fields = reader.fields(objects(packages), objects(remotes));
  const own = name.slice(name.lastIndexOf("/") + 1);
  const found = { name: own, fields, dialect: "bundle", file, path: [own], project: undefined } as const;
  return { servers: [found], inputs: reader.inputs, otherProjects: [], warnings: [] };
}

/** Ranges and tags name another package tomorrow. */
const EXACT = /^v?\d+(\.\d+)*([-+.][0-9A-Za-z.+-]+)?$/;
const NPM = "https://registry.npmjs.org";
const PYPI = "https://pypi.org";

class ServerJson {
  readonly inputs: JsonObject[] = [];
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  fields(packages: readonly JsonObject[], remotes: readonly JsonObject[]): JsonObject {
    // The document is not the user's, and such a text would name a variable of the user.
    if (JSON.stringify([packages, remotes]).includes("${")) {
      throw new CliError(`${this.#file} contains \`\${\`, which stands for a variable of the user`);
    }
    const isStdio = ({ transport }: JsonObject): boolean => !isJsonObject(transport) || transport.type === "stdio";
    const found = packages.find((each) => isStdio(each) && ["npm", "pypi", "oci"].includes(String(each.registryType)));
    if (found !== undefined) return this.#package(found);
    const remote = remotes.find(
      ({ type, url }) => typeof url === "string" && (type === "sse" || type === "streamable-http"),
    );
    if (remote !== undefined) return this.#remote(remote);
    const kinds = [...packages.map((each) => each.registryType), ...remotes.map((each) => each.type)].join(", ");
    throw new CliError(
      `${this.#file} names no package or address that can be imported (${kinds || "it is empty"})`,
      undefined,
      "packages of npm, PyPI and OCI with stdio, and addresses of streamable-http and sse can be",
    );
  }

  #package(found: JsonObject): JsonObject {
    const { registryType, identifier, version, registryBaseUrl } = found;
    const name = String(identifier);
    const env = this.#values(found.environmentVariables, "env");
    const before = this.#arguments(found.runtimeArguments);
    const after = this.#arguments(found.packageArguments);
    if (registryType === "oci") {
      const image = typeof version === "string" && !/[:@][^/]+$/.test(name) ? `${name}:${version}` : name;
      const passed = Object.keys(env).flatMap((each) => ["-e", each]);
      return { command: "docker", args: ["run", "-i", "--rm", ...passed, ...before, image, ...after], env };
    }
    if (typeof version !== "string" || !EXACT.test(version)) {
      throw new CliError(`${this.#file}: \`${String(version)}\` of ${name} is not an exact version`);
    }
    const usual = registryType === "npm" ? NPM : PYPI;
    if (typeof registryBaseUrl === "string" && registryBaseUrl.replace(/\/+$/, "") !== usual) {
      throw new CliError(`${this.#file}: ${name} comes from ${registryBaseUrl}, and only ${usual} is supported`);
    }
    return registryType === "npm"
      ? { command: "npx", args: ["-y", ...before, `${name}@${version}`, ...after], env }
      : { command: "uvx", args: [...before, `${name}==${version}`, ...after], env };
  }

  #remote({ type, url, headers }: JsonObject): JsonObject {
    return { url: url as string, type: type === "sse" ? "sse" : "http", headers: this.#values(headers, "header") };
  }

  #values(given: JsonValue | undefined, kind: string): Record<string, string> {
    const out: Record<string, string> = {};
    for (const each of objects(given)) {
      const name = String(each.name);
      const text = this.#text(each, kind === "env" ? name : `${kind}-${name}`);
      if (text !== undefined) out[name] = text;
    }
    return out;
  }

  #arguments(given: JsonValue | undefined): string[] {
    return objects(given).flatMap((each, i) => {
      const name = typeof each.name === "string" ? each.name : undefined;
      const id = (name ?? String(each.valueHint ?? `argument-${i + 1}`)).replace(/^-+/, "");
      const text = this.#text(each, id);
      if (each.type !== "named" || name === undefined) return text === undefined ? [] : [text];
      const isFlag = text === undefined && each.isRequired === true;
      return text === undefined ? (isFlag ? [name] : []) : [name, text];
    });
  }

  /** Undefined for what may be left out. What has no value is asked for, as an input. */
  #text(input: JsonObject, id: string): string | undefined {
    const { value, default: usual, isRequired, variables } = input;
    if (typeof value === "string") {
      const known = isJsonObject(variables) ? variables : {};
      return value.replaceAll(/\{([A-Za-z0-9_-]{1,64})\}/g, (whole, name: string) => {
        const variable = known[name];
        return isJsonObject(variable) ? this.#ask(variable, `${id}-${name}`) : whole;
      });
    }
    if (isRequired === true) return this.#ask(input, id);
    return typeof usual === "string" ? usual : undefined;
  }

  #ask({ description, isSecret, default: usual }: JsonObject, id: string): string {
    this.inputs.push({
      id,
      password: isSecret === true,
      ...(typeof description === "string" ? { description } : {}),
      ...(typeof usual === "string" ? { default: usual } : {}),
    });
    return `\${input:${id}}`;
  }
}

function objects(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isJsonObject) : [];
}
