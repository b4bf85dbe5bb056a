// Variables in a client's configuration, put in their places. What is not set is a problem with its name, never a text
// with a hole in it.

import { basename, sep } from "node:path";
import type { JsonObject } from "../../mcp/index.js";

interface VariableSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly workspace: string;
  readonly inputs: readonly JsonObject[];
  /** Answers to VS Code's inputs, by id. */
  readonly answers: ReadonlyMap<string, string>;
}

export interface Expanded {
  readonly text: string;
  /** A part of it is known to be secret: an input that is typed unseen, or a variable that is named like a credential. */
  readonly isSecret: boolean;
}

const VARIABLE = /\$\{([^{}]{1,256})\}/g;
const PLAIN = /^([A-Za-z_][A-Za-z0-9_]*)(?::-([\s\S]*))?$/;

export class Variables {
  /** What is not set, with what to do about it. */
  readonly missing = new Set<string>();
  readonly #sources: VariableSources;
  readonly #isCredential: (name: string) => boolean;

  constructor(sources: VariableSources, isCredential: (name: string) => boolean) {
    this.#sources = sources;
    this.#isCredential = isCredential;
  }

  expand(text: string): Expanded {
    let isSecret = false;
    const expanded = text.replace(VARIABLE, (whole, inside: string) => {
      const value = this.#valueOf(inside);
      if (value === undefined) return whole;
      isSecret ||= value.isSecret;
      return value.text;
    });
    return { text: expanded, isSecret };
  }

  /** One variable of the environment. */
  named(name: string): Expanded | undefined {
    const text = this.#sources.env[name];
    if (text !== undefined) return { text, isSecret: this.#isCredential(name) };
    this.missing.add(`the variable ${name} is not set; set it and import again`);
    return undefined;
  }

  #valueOf(inside: string): Expanded | undefined {
    const [kind, rest = ""] = split(inside);
    switch (kind) {
      case "env":
        return this.named(rest);
      case "input":
        return this.#input(rest);
      case "secret":
        // INVARIANT: a client's configuration never refers to a stored secret.
        this.missing.add(`\${${inside}} refers to a secret of Portcullis; a client's configuration cannot`);
        return undefined;
    }
    const { workspace, home } = this.#sources;
    const known: Readonly<Record<string, string>> = {
      workspaceFolder: workspace,
      workspaceRoot: workspace,
      workspaceFolderBasename: basename(workspace),
      userHome: home,
      cwd: workspace,
      pathSeparator: sep,
      "/": sep,
    };
    if (Object.hasOwn(known, inside)) return { text: known[inside] as string, isSecret: false };
    const [, name, fallback] = PLAIN.exec(inside) ?? [];
    if (name === undefined) {
      this.missing.add(`unknown variable \${${inside}}: write its value`);
      return undefined;
    }
    const isUnset = (this.#sources.env[name] ?? "") === "";
    if (fallback !== undefined && isUnset) return { text: fallback, isSecret: this.#isCredential(name) };
    return this.named(name);
  }

  #input(id: string): Expanded | undefined {
    const { inputs, answers, env } = this.#sources;
    const input = inputs.find((each) => each.id === id);
    const variable = inputVariable(id);
    const text = answers.get(id) ?? env[variable] ?? (typeof input?.default === "string" ? input.default : undefined);
    if (text !== undefined) return { text, isSecret: input?.password === true || this.#isCredential(id) };
    this.missing.add(`the input ${id} has no value; set ${variable} and import again`);
    return undefined;
  }
}

/** The variable with the value of an input, for imports without a terminal. */
export function inputVariable(id: string): string {
  return `PORTCULLIS_INPUT_${id.toUpperCase().replace(/[^A-Z0-9]+/g, "_")}`;
}

function split(inside: string): [string, string?] {
  const colon = inside.indexOf(":");
  const kind = inside.slice(0, colon);
  return colon > 0 && ["env", "input", "secret"].includes(kind) ? [kind, inside.slice(colon + 1)] : [inside];
}
