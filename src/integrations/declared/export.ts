// `portcullis export`: applications as portcullis.yaml, without secrets, so that `app apply` makes the same of it.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import type { Command } from "commander";
import { stringify } from "yaml";
import { CliError } from "../../lib/exit.js";
import type { JsonObject } from "../../mcp/index.js";
import { outFor } from "../../runtime/options.js";
import { allPages, noApplication, pageAfter, type StoreOptions, withStore } from "../../runtime/store/open.js";
import { type Application, replaceCredentials } from "../../storage/index.js";

export interface DeclaredExportOptions extends StoreOptions {
  app?: string[];
  out?: string;
  force?: boolean;
}

interface Exported {
  readonly applications: JsonObject;
  /** Cedar by file name, as seen from portcullis.yaml. */
  readonly policies: ReadonlyMap<string, string>;
  /** Literals that were replaced by a reference. */
  readonly hidden: readonly string[];
}

export async function exportApplications(command: Command, options: DeclaredExportOptions): Promise<void> {
  const out = outFor(command);
  const found = await withStore(command, options, async (storage) => {
    const all = await allPages((after) => storage.applications.list(pageAfter(after)));
    const missing = options.app?.find((id) => !all.some((each) => each.id === id));
    if (missing !== undefined) throw noApplication(missing);
    return all.filter(({ id }) => options.app === undefined || options.app.includes(id));
  });
  const exported = exportOf(found);
  const { applications, policies, hidden } = exported;
  const yaml = stringify({ applications }, { lineWidth: 0 });
  if (options.out === undefined) {
    out.data({ applications }, () => yaml.trimEnd());
    if (policies.size > 0) out.note("the policies are texts of their own: --out DIRECTORY writes them beside it");
  } else {
    const files = new Map([["portcullis.yaml", yaml], ...policies]);
    const written = writeAll(resolve(options.out), files, options.force === true);
    out.data({ written }, () => written.map((file) => `wrote ${file}`).join("\n"));
  }
  for (const each of hidden) out.note(`a credential stood there in clear and is not exported: ${each}`);
}

function exportOf(found: readonly Application[]): Exported {
  const policies = new Map<string, string>();
  const hidden: string[] = [];
  const applications: [string, JsonObject][] = found.map(({ id, document }) => {
    const { policies: own = {}, ...rest } = document;
    const files = Object.entries(own).map(([name, text]) => {
      const file = fileFor(id, name, text, policies);
      policies.set(file, text);
      return file;
    });
    const shown = withoutCredentials(id, rest as JsonObject, hidden);
    return [id, files.length === 0 ? shown : { ...shown, policies: files }];
  });
  return { applications: Object.fromEntries(applications), policies, hidden };
}

/** Its own name, so that the application is the same when it is applied; another where two would meet or it leads out. */
function fileFor(app: string, name: string, text: string, taken: ReadonlyMap<string, string>): string {
  const isSafe = name.endsWith(".cedar") && !name.split("/").some((part) => part === "" || /^\.+$/.test(part));
  const wanted = isSafe ? name : `${name.replace(/[^A-Za-z0-9_-]+/g, "-")}.cedar`;
  return (taken.get(wanted) ?? text) === text ? wanted : `${app}/${wanted}`;
}

function withoutCredentials(app: string, document: JsonObject, hidden: string[]): JsonObject {
  const named = new Map<string, string>();
  return replaceCredentials(document, [], (path, name, value) => {
    // A field goes by its path; one among others in a text by what it is called there.
    const field = path.at(-1) === name ? path : [...path.slice(0, -1), name];
    const parts = field.slice(path[0] === "servers" ? 1 : 0).filter((part) => part !== "env" && part !== "headers");
    const wanted = parts.join(".").replace(/[^A-Za-z0-9_.-]+/g, "-");
    let free = wanted;
    for (let n = 2; (named.get(free) ?? value) !== value; n++) free = `${wanted}-${n}`;
    named.set(free, value);
    hidden.push(`${app} ${path.join(".")}; portcullis secret set ${app} ${free}`);
    return `\${secret:${free}}`;
  }) as JsonObject;
}

function writeAll(directory: string, files: ReadonlyMap<string, string>, force: boolean): string[] {
  const all = [...files].map(([name, text]) => ({ path: join(directory, name.split("/").join(sep)), text }));
  const other = all.find(({ path, text }) => existsSync(path) && readFileSync(path, "utf8") !== text);
  if (other && !force) throw new CliError(`${other.path} is there already; nothing was written`, undefined, "--force");
  for (const { path, text } of all) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return all.map(({ path }) => path);
}
