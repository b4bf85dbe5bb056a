// Names: from whatever a server calls things to identifiers, always the same ones, never two alike.

const MAX_WORDS = 24;
const MAX_LENGTH = 120;

/** The words in a name. Characters outside ASCII are spelled as their code points, so that no two names become equal. */
function words(name: string): string[] {
  const spelled = Array.from(name.slice(0, 400))
    .map((char) => {
      const code = char.codePointAt(0) as number;
      if (code < 128) return char;
      return /[\p{L}\p{N}]/u.test(char) ? ` U${code.toString(16)} ` : " ";
    })
    .join("");
  return spelled
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .split(/[^A-Za-z0-9]+/)
    .filter((word) => word !== "")
    .slice(0, MAX_WORDS);
}

export function pascal(name: string | readonly string[], ifEmpty = "Unnamed"): string {
  const list = typeof name === "string" ? words(name) : name;
  const text = list.map((word) => word[0]?.toUpperCase() + word.slice(1).toLowerCase()).join("");
  return starting(text.slice(0, MAX_LENGTH) || ifEmpty, "N");
}

export function camel(name: string, ifEmpty = "unnamed"): string {
  const text = pascal(name, ifEmpty);
  return (text[0] as string).toLowerCase() + text.slice(1);
}

export function snake(name: string, ifEmpty = "unnamed"): string {
  const text = words(name).join("_").toLowerCase();
  return starting(text.slice(0, MAX_LENGTH) || ifEmpty, "n");
}

function starting(text: string, prefix: string): string {
  return /^[0-9]/.test(text) ? prefix + text : text;
}

/** Gives out identifiers of one scope. What is taken comes back with a number. */
export class Names {
  readonly #taken: Set<string>;
  readonly #fold: (name: string) => string;
  readonly #next = new Map<string, number>();

  /** `fold` says which names count as the same, where case alone does not tell them apart. */
  constructor(reserved: Iterable<string> = [], fold: (name: string) => string = (name) => name) {
    this.#fold = fold;
    this.#taken = new Set([...reserved].map(fold));
  }

  take(wanted: string, joint = ""): string {
    let name = wanted;
    const folded = this.#fold(wanted);
    for (let n = this.#next.get(folded) ?? 2; this.#taken.has(this.#fold(name)); n++) {
      name = `${wanted}${joint}${n}`;
      this.#next.set(folded, n + 1);
    }
    this.#taken.add(this.#fold(name));
    return name;
  }

  has(name: string): boolean {
    return this.#taken.has(this.#fold(name));
  }

  /** Gives back a name that turned out not to be needed. */
  release(name: string): void {
    this.#taken.delete(this.#fold(name));
  }
}

const MAX_LINES = 60;
const MAX_COLUMNS = 400;

/** Lines that are safe in a comment of any language; what would not be seen is spelled out. */
export function commentLines(text: string | undefined): string[] {
  if (text === undefined || text.trim() === "") return [];
  const lines = text
    .replaceAll(/\r\n?/g, "\n")
    .split("\n")
    .map((line) => spellHidden(line.replaceAll("\t", "  ")).trimEnd());
  while (lines.at(-1) === "") lines.pop();
  const kept = lines
    .slice(0, MAX_LINES)
    .map((line) => (line.length > MAX_COLUMNS ? `${line.slice(0, MAX_COLUMNS)}…` : line));
  return lines.length > MAX_LINES ? [...kept, "…"] : kept;
}

/** Control, format, private-use and unpaired characters as `<U+…>`. */
function spellHidden(line: string): string {
  return line.replaceAll(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => {
    return `<U+${(char.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** JSON in plain ASCII, which is a literal in TypeScript and C# too: nothing hidden, nothing that turns the reading direction. */
export function literal(value: unknown): string {
  return JSON.stringify(value).replaceAll(/[^\x20-\x7e]/g, (unit) => {
    return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}
