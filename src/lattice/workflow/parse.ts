import { type Capability, capabilitiesFrom, toolsIn } from "../capability.js";
import { LatticeError } from "../errors.js";
import { isObject, type SchemaValue } from "../inclusion/document.js";
import { ANY_VALUE, typeOf, type ValueType } from "../inclusion/type.js";
import { type DelegationEntry, type Part, WorkflowDocument } from "./document.js";
import {
  type Delegation,
  findCycle,
  type RuleTerm,
  type Workflow,
  type WorkflowAgent,
  type WorkflowRule,
} from "./model.js";

export interface ParseOptions {
  /** Brings the manifest that a server names: what stood after `manifest:` in, the `tools/list` answer out. */
  readonly manifest?: (reference: string) => unknown;
}

/** Reads a workflow from YAML or JSON. Throws a LatticeError that names the line of the first problem. */
export function parseWorkflow(text: string, options: ParseOptions = {}): Workflow {
  const document = new WorkflowDocument(text);
  document.throwIfAny();
  const workflow = new Reader(document, options).read();
  document.throwIfAny();
  return workflow;
}

class Reader {
  readonly #d: WorkflowDocument;
  readonly #options: ParseOptions;
  readonly #capabilities = new Map<string, Capability>();
  readonly #servers = new Map<string, readonly string[]>();
  /** Servers of which not every tool could be read: a name of theirs that is not there is no second problem. */
  readonly #broken = new Set<string>();
  readonly #labels = new Map<string, readonly string[]>();
  readonly #servedAs = new Map<string, string>();
  readonly #prefixLines = new Map<string, number>();

  constructor(document: WorkflowDocument, options: ParseOptions) {
    this.#d = document;
    this.#options = options;
  }

  read(): Workflow {
    const d = this.#d;
    const top = d.fields(d.root, "the workflow", [
      "version",
      "cycles",
      "servers",
      "labels",
      "agents",
      "delegations",
      "rules",
    ]);
    for (const entry of d.entries(top.servers?.value, "`servers`")) this.#server(entry);
    this.#servedNames();
    for (const { key, value, line } of d.entries(top.labels?.value, "`labels`")) {
      this.#labelName(key, line);
      this.#labels.set(key, this.#capabilityNames(value, `the label \`${key}\``, line));
    }
    const agents = d.entries(top.agents?.value, "`agents`").map((entry) => this.#agent(entry));
    if (agents.length === 0) d.report("LATTICE_EMPTY", "the workflow has no agents", top.agents?.line ?? 1);
    const names = new Set(agents.map((agent) => agent.name));
    const delegations = d
      .items(top.delegations?.value, "`delegations`")
      .flatMap(({ value, line }) => this.#delegation(value, line, names));
    const rules = d
      .items(top.rules?.value, "`rules`")
      .map(({ value, line }, i) => this.#rule(value, line, `rule ${i + 1}`, names));
    this.#uniqueRules(rules);
    this.#cycles(top.cycles, delegations);
    return {
      capabilities: this.#capabilities,
      servedAs: this.#servedAs,
      agents: this.#roots(agents, delegations, top.agents?.line),
      delegations,
      rules,
    };
  }

  #server({ key, value, line }: DelegationEntry): void {
    const d = this.#d;
    if (!/^[^.*\s]+$/.test(key)) {
      d.report("LATTICE_SHAPE", `the server name \`${key}\` may not contain dots, stars or spaces`, line);
    }
    const { tools, manifest, prefix } = d.fields(value, `the server \`${key}\``, ["tools", "manifest", "prefix"]);
    const served = prefix === undefined ? undefined : d.text(prefix.value, `the prefix of \`${key}\``);
    if (tools !== undefined && manifest !== undefined) {
      d.report(
        "LATTICE_SHAPE",
        `the server \`${key}\` has both \`tools\` and a \`manifest\`; leave one of them out`,
        manifest.line,
      );
    }
    const capabilities = this.#tools(key, { tools, manifest, line });
    if (capabilities.size === 0 && !this.#broken.has(key)) {
      d.report("LATTICE_EMPTY", `the server \`${key}\` has no tools`, line);
    }
    for (const capability of capabilities.values()) this.#capabilities.set(`${key}.${capability.name}`, capability);
    if (served !== undefined) {
      for (const tool of capabilities.keys()) {
        this.#servedAs.set(`${key}.${tool}`, `${served}${tool}`);
        this.#prefixLines.set(`${key}.${tool}`, prefix?.line ?? line);
      }
    }
    this.#servers.set(
      key,
      [...capabilities.keys()].map((name) => `${key}.${name}`),
    );
  }

  /** What can be read of a server's tools; each of the others is told where it stands. */
  #tools(
    server: string,
    {
      tools,
      manifest,
      line,
    }: { tools: DelegationEntry | undefined; manifest: DelegationEntry | undefined; line: number },
  ): ReadonlyMap<string, Capability> {
    const report = (error: LatticeError, at: number): void => {
      // A name that is there twice is known all the same.
      if (error.code !== "LATTICE_DUPLICATE") this.#broken.add(server);
      this.#d.report(error.code, `the server \`${server}\`: ${error.text}`, at);
    };
    const inline = tools === undefined ? [] : this.#d.items(tools.value, `\`tools\` of the server \`${server}\``);
    if (tools !== undefined && !this.#d.isSeq(tools.value)) this.#broken.add(server);
    try {
      const list =
        tools === undefined
          ? toolsIn(this.#manifest(server, manifest, line))
          : inline.map(({ value }) => this.#d.value(value));
      return capabilitiesFrom(list, (error, i) => report(error, inline[i]?.line ?? manifest?.line ?? line));
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
      report(error, (tools ?? manifest)?.line ?? line);
      return new Map();
    }
  }

  /** A label that reads like something else would change what that means. */
  #labelName(label: string, line: number): void {
    if (this.#capabilities.has(label)) {
      this.#d.report(
        "LATTICE_DUPLICATE",
        `the label \`${label}\` has the name of a capability; give it another one`,
        line,
      );
    }
    if (label.includes("*")) {
      this.#d.report("LATTICE_SHAPE", `the label \`${label}\` may not contain stars: they stand for any text`, line);
    }
  }

  /** Two capabilities cannot be served by one name, whichever comes first in the file. */
  #servedNames(): void {
    const taken = new Map<string, string>();
    for (const capability of this.#capabilities.keys()) {
      const name = this.#servedAs.get(capability) ?? capability;
      const other = taken.get(name);
      if (other !== undefined) {
        const line = [capability, other].map((each) => this.#prefixLines.get(each)).find((each) => each !== undefined);
        this.#d.report(
          "LATTICE_DUPLICATE",
          `\`${capability}\` and \`${other}\` would both be served as \`${name}\``,
          line,
        );
      }
      taken.set(name, capability);
    }
  }

  #manifest(server: string, manifest: DelegationEntry | undefined, line: number): unknown {
    const { manifest: load } = this.#options;
    if (manifest === undefined) {
      throw new LatticeError("LATTICE_SHAPE", "it needs `tools`, or a `manifest` to read them from", line);
    }
    const reference = this.#d.text(manifest.value, `the manifest of \`${server}\``) ?? "";
    if (load === undefined) {
      throw new LatticeError(
        "LATTICE_MANIFEST",
        `the manifest \`${reference}\` cannot be read here; write the tools inline`,
      );
    }
    try {
      return load(reference);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new LatticeError("LATTICE_MANIFEST", `the manifest \`${reference}\` cannot be read: ${reason}`);
    }
  }

  #agent({ key, value, line }: DelegationEntry): WorkflowAgent & { readonly root: boolean | undefined } {
    const d = this.#d;
    const what = `the agent \`${key}\``;
    const fields = d.fields(value, what, ["servers", "tools", "allow", "root"]);
    let isBroken = false;
    const offered = d.strings(fields.servers?.value, `\`servers\` of ${what}`).flatMap((server) => {
      const tools = this.#servers.get(server.text);
      isBroken ||= this.#broken.has(server.text);
      if (tools === undefined)
        d.report(
          "LATTICE_UNKNOWN_NAME",
          `${what} names the server \`${server.text}\`, which is not under \`servers\``,
          server.line,
        );
      return tools ?? [];
    });
    const chosen =
      fields.tools === undefined
        ? undefined
        : new Set(this.#capabilityNames(fields.tools.value, `\`tools\` of ${what}`, fields.tools.line));
    const holds = [...new Set(offered)].filter((name) => chosen === undefined || chosen.has(name));
    if (holds.length === 0 && !isBroken)
      d.report("LATTICE_EMPTY", `${what} has an empty capability set; give it a server, or take it out`, line);
    const allow = fields.allow === undefined ? undefined : this.#types(fields.allow, `\`allow\` of ${what}`);
    const root = fields.root === undefined ? undefined : d.boolean(fields.root.value, `\`root\` of ${what}`);
    return { name: key, holds, allow, isRoot: false, root, line };
  }

  /**
   * A list of names, or a mapping from names to the arguments that go with them. Where several entries speak of one
   * capability all of them hold, whatever their order: another entry can only narrow.
   */
  #types({ value, line }: DelegationEntry, what: string): ReadonlyMap<string, ValueType> {
    const d = this.#d;
    if (!d.isMap(value)) return new Map(this.#capabilityNames(value, what, line).map((name) => [name, ANY_VALUE]));
    const types = new Map<string, ValueType>();
    const entries = d.entries(value, what);
    for (const entry of entries) {
      const schema = d.value(entry.value);
      if (typeof schema !== "boolean" && !isObject(schema)) {
        d.report("LATTICE_SHAPE", `\`${entry.key}\` in ${what} must be true or a schema for the arguments`, entry.line);
        continue;
      }
      const type = schema === true ? ANY_VALUE : typeOf(schema as SchemaValue);
      for (const name of this.#expand(entry.key, what, entry.line)) types.set(name, both(types.get(name), type));
    }
    if (entries.length === 0) d.report("LATTICE_EMPTY", `${what} is empty`, line);
    return types;
  }

  #capabilityNames(node: Part | null, what: string, line: number): readonly string[] {
    const listed = this.#d.strings(node, what);
    if (listed.length === 0 && (node === null || this.#d.isSeq(node)))
      this.#d.report("LATTICE_EMPTY", `${what} is empty`, line);
    return [...new Set(listed.flatMap(({ text, line: at }) => this.#expand(text, what, at)))];
  }

  /** A capability, a label, or a name with stars for any text. */
  #expand(pattern: string, what: string, line: number): readonly string[] {
    const label = this.#labels.get(pattern);
    if (label !== undefined) return label;
    if (this.#capabilities.has(pattern)) return [pattern];
    const parts = pattern.split("*");
    const found = parts.length === 1 ? [] : [...this.#capabilities.keys()].filter((name) => matchesStars(name, parts));
    if (found.length === 0 && !this.#mayBeBroken(parts[0] ?? "", parts.length > 1)) {
      const near = [...this.#capabilities.keys()].find((name) => name.endsWith(`.${pattern}`));
      const hint = near === undefined ? "capabilities are written server.tool" : `did you mean \`${near}\`?`;
      this.#d.report("LATTICE_UNKNOWN_NAME", `${what} names \`${pattern}\`, which no server offers; ${hint}`, line);
    }
    return found;
  }

  /** Whether a name, or one that begins like this, may be among the tools that could not be read. */
  #mayBeBroken(start: string, hasMore: boolean): boolean {
    return [...this.#broken].some(
      (server) => start.startsWith(`${server}.`) || (hasMore && `${server}.`.startsWith(start)),
    );
  }

  #delegation(node: Part | null, line: number, agents: ReadonlySet<string>): Delegation[] {
    const d = this.#d;
    const fields = d.fields(node, "a delegation", ["from", "to", "tools", "arguments"]);
    const ends = (["from", "to"] as const).map((end) => {
      const entry = fields[end];
      if (entry === undefined) {
        d.report("LATTICE_SHAPE", `a delegation needs \`${end}\``, line);
        return undefined;
      }
      const name = d.text(entry.value, `\`${end}\` of a delegation`);
      if (name !== undefined && !agents.has(name)) {
        d.report("LATTICE_UNKNOWN_NAME", `there is no agent \`${name}\``, entry.line);
      }
      return name;
    });
    const [from, to] = ends;
    if (from === undefined || to === undefined) return [];
    const what = `the delegation from \`${from}\` to \`${to}\``;
    const only =
      fields.tools === undefined
        ? undefined
        : this.#capabilityNames(fields.tools.value, `\`tools\` of ${what}`, fields.tools.line);
    const types = fields.arguments === undefined ? undefined : this.#narrowing(fields.arguments, what);
    return [{ from, to, only, arguments: types, line }];
  }

  /** A list would be names without schemas, which narrow nothing. */
  #narrowing(entry: DelegationEntry, delegation: string): ReadonlyMap<string, ValueType> {
    const what = `\`arguments\` of ${delegation}`;
    if (this.#d.isMap(entry.value)) return this.#types(entry, what);
    const message = `${what} must be a mapping from names to schemas; name what is passed on under \`tools\``;
    this.#d.report("LATTICE_SHAPE", message, entry.line);
    return new Map();
  }

  #rule(node: Part | null, line: number, unnamed: string, agents: ReadonlySet<string>): WorkflowRule {
    const d = this.#d;
    const fields = d.fields(node, "a rule", ["name", "never", "agents", "except", "through-others"]);
    const name = fields.name === undefined ? unnamed : (d.text(fields.name.value, "`name` of a rule") ?? "");
    const what = `the rule \`${name}\``;
    const never = d
      .strings(fields.never?.value, `\`never\` of ${what}`)
      .map(({ text, line: at }): RuleTerm => ({ name: text, capabilities: this.#expand(text, what, at) }));
    if (never.length === 0)
      d.report("LATTICE_EMPTY", `${what} needs \`never\`, a list of what no agent may hold together`, line);
    const listed = (entry: DelegationEntry | undefined, field: string): string[] | undefined => {
      if (entry === undefined) return undefined;
      return d.strings(entry.value, `\`${field}\` of ${what}`).map(({ text, line: at }) => {
        if (!agents.has(text))
          d.report("LATTICE_UNKNOWN_NAME", `${what} names the agent \`${text}\`, which does not exist`, at);
        return text;
      });
    };
    const about = listed(fields.agents, "agents");
    if (about?.length === 0) {
      const message = `${what} is about no agent: \`agents\` is empty; leave it out for all of them`;
      d.report("LATTICE_EMPTY", message, fields.agents?.line);
    }
    const through = fields["through-others"];
    return {
      name,
      never,
      agents: about,
      except: listed(fields.except, "except") ?? [],
      throughOthers: through === undefined ? true : (d.boolean(through.value, `\`through-others\` of ${what}`) ?? true),
      line,
    };
  }

  #uniqueRules(rules: readonly WorkflowRule[]): void {
    const seen = new Map<string, number | undefined>();
    for (const { name, line } of rules) {
      if (seen.has(name))
        this.#d.report(
          "LATTICE_DUPLICATE",
          `the rule \`${name}\` is there twice, first on line ${seen.get(name)}`,
          line,
        );
      seen.set(name, line);
    }
  }

  #cycles(entry: DelegationEntry | undefined, delegations: readonly Delegation[]): void {
    if (entry === undefined) return;
    const setting = this.#d.text(entry.value, "`cycles`");
    if (setting !== "allow" && setting !== "forbid") {
      this.#d.report("LATTICE_SHAPE", "`cycles` must be allow or forbid", entry.line);
    }
    const cycle = setting === "forbid" ? findCycle(delegations) : undefined;
    if (cycle === undefined) return;
    const way = cycle.map(({ from }) => `\`${from}\``).join(" → ");
    this.#d.report("LATTICE_CYCLE", `delegations run in a circle: ${way} → \`${cycle[0]?.from}\``, cycle[0]?.line);
  }

  /** An agent without `root` that receives no delegation has its own authority: otherwise no agent would have any. */
  #roots(
    agents: readonly (WorkflowAgent & { readonly root: boolean | undefined })[],
    delegations: readonly Delegation[],
    line: number | undefined,
  ): WorkflowAgent[] {
    const delegated = new Set(delegations.map(({ to }) => to));
    const settled = agents.map(({ root, ...agent }) => ({ ...agent, isRoot: root ?? !delegated.has(agent.name) }));
    if (agents.length > 0 && !settled.some((agent) => agent.isRoot)) {
      const message =
        "no agent has authority of its own: every agent receives a delegation; mark one with `root: true`";
      this.#d.report("LATTICE_EMPTY", message, line);
    }
    return settled;
  }
}

/** What both accept. */
function both(before: ValueType | undefined, type: ValueType): ValueType {
  if (before === undefined || before === ANY_VALUE) return type;
  if (type === ANY_VALUE) return before;
  return { is: "all", of: [...(before.is === "all" ? before.of : [before]), type] };
}

/** Whether a name is the parts in this order with any text between them. */
function matchesStars(name: string, parts: readonly string[]): boolean {
  const [first = "", ...rest] = parts;
  const last = rest.pop() ?? "";
  if (!name.startsWith(first) || !name.endsWith(last) || name.length < first.length + last.length) return false;
  let at = first.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found === -1 || found + part.length > name.length - last.length) return false;
    at = found + part.length;
  }
  return true;
}
