// What a restricted credential reaches of its application: the patterns of key permissions and of token scopes.

export interface GrantedReach {
  has(name: string): boolean;
  /** True when it has nothing, whatever the name. */
  readonly isEmpty: boolean;
}

export type GrantKind = "tool" | "resource" | "prompt";

const FORMS: Readonly<Record<GrantKind, string>> = {
  tool: "[A-Za-z0-9_*./-]{1,256}",
  resource: "[\\x21-\\x27\\x2a-\\x7e]{1,256}",
  prompt: "[\\x20-\\x27\\x2a-\\x7e]{1,256}",
};
/** `TOOL`, `tool:TOOL`, `resource:URI` or `prompt:NAME`; parentheses are written as `*`. */
export const GRANT_PATTERN = `^((tool:)?${FORMS.tool}|resource:${FORMS.resource}|prompt:${FORMS.prompt})$`;
const GRANT = new RegExp(GRANT_PATTERN);

/** Undefined when it is not a pattern. */
export function readGrant(text: string): { readonly kind: GrantKind; readonly pattern: string } | undefined {
  if (!GRANT.test(text)) return undefined;
  const [, kind = "tool", pattern = text] = /^(tool|resource|prompt):(.*)$/s.exec(text) ?? [];
  return { kind: kind as GrantKind, pattern };
}

/**
 * `Granted` is what a list of patterns opens. A bare `*` is everything of the application; every other pattern opens
 * what its kind says, so tools alone never bring resources or prompts with them.
 */
export class Granted {
  readonly tools: GrantedReach;
  readonly resources: GrantedReach;
  readonly prompts: GrantedReach;

  constructor(texts: readonly string[]) {
    const patterns: Record<GrantKind, string[]> = { tool: [], resource: [], prompt: [] };
    for (const text of texts) {
      const grant = text === "*" ? undefined : readGrant(text);
      if (grant) patterns[grant.kind].push(grant.pattern);
      else if (text === "*") for (const kind of Object.values(patterns)) kind.push("*");
    }
    this.tools = new PatternMatcher(patterns.tool);
    this.resources = new UriMatcher(patterns.resource);
    this.prompts = new PatternMatcher(patterns.prompt);
  }
}

/** A URI that leaves the directory it seems to be in is granted only by its exact text. */
class UriMatcher implements GrantedReach {
  readonly #exact: ReadonlySet<string>;
  readonly #patterns: PatternMatcher;
  readonly #all: boolean;

  constructor(patterns: readonly string[]) {
    this.#exact = new Set(patterns);
    this.#patterns = new PatternMatcher(patterns);
    this.#all = patterns.includes("*");
  }

  get isEmpty(): boolean {
    return this.#exact.size === 0;
  }

  has(uri: string): boolean {
    return this.#all || this.#exact.has(uri) || (this.#patterns.has(uri) && !mayClimb(uri));
  }
}

const MAX_DECODINGS = 3;

/** True for dot segments, also in percent-encoded form: the server may resolve what the pattern took literally. */
function mayClimb(uri: string): boolean {
  let text = uri;
  for (let i = 0; i <= MAX_DECODINGS; i++) {
    if (/(^|[/\\:])\.{1,2}($|[/\\?#;])|\0/.test(text)) return true;
    try {
      text = decodeURIComponent(text);
    } catch {
      // Text that was never percent-encoded: it is not clear how the server reads it.
      return i === 0;
    }
  }
  return false;
}

/** Names are looked up; patterns are tried one after the other, by parts and without going back. */
export class PatternMatcher {
  readonly #names = new Set<string>();
  readonly #patterns: readonly (readonly string[])[];
  readonly #all: boolean;

  constructor(patterns: readonly string[]) {
    this.#all = patterns.includes("*");
    const parts: string[][] = [];
    for (const each of new Set(patterns)) {
      if (each.includes("*")) parts.push(each.split("*"));
      else this.#names.add(each);
    }
    this.#patterns = parts;
  }

  get isEmpty(): boolean {
    return this.#names.size === 0 && this.#patterns.length === 0;
  }

  has(name: string): boolean {
    return this.#all || this.#names.has(name) || this.#patterns.some((parts) => matches(parts, name));
  }
}

/** `parts` are what stands between the stars: the first at the beginning, the last at the end, the others in order. */
function matches(parts: readonly string[], text: string): boolean {
  const first = parts[0] as string;
  const last = parts.at(-1) as string;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  const end = text.length - last.length;
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}
