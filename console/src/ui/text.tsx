// Text from callers, servers and users, shown inert: everything that would not show, or would change how other text reads, is
// written as a marked escape. Long values are folded and never cut.

import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import { visible } from "../../../src/lib/visible.js";

const ESCAPE = /(\\u[0-9a-f]{4})+/g;
const NAMES: Readonly<Record<string, string>> = {
  "\\u0000": "null",
  "\\u0009": "tab",
  "\\u000a": "line feed",
  "\\u000d": "carriage return",
  "\\u001b": "escape (starts a terminal sequence)",
  "\\u00a0": "no-break space",
  "\\u00ad": "soft hyphen",
  "\\u200b": "zero width space",
  "\\u200c": "zero width non-joiner",
  "\\u200d": "zero width joiner",
  "\\u200e": "left-to-right mark",
  "\\u200f": "right-to-left mark",
  "\\u202a": "left-to-right embedding",
  "\\u202b": "right-to-left embedding",
  "\\u202c": "end of directional formatting",
  "\\u202d": "left-to-right override",
  "\\u202e": "right-to-left override",
  "\\u2028": "line separator",
  "\\u2060": "word joiner",
  "\\u2066": "left-to-right isolate",
  "\\u2067": "right-to-left isolate",
  "\\u2069": "end of isolate",
  "\\ufeff": "byte order mark",
};

/** The text with every escape marked. */
export function marked(text: string): ComponentChildren {
  const shown = visible(text);
  if (!shown.includes("\\u")) return shown;
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const match of shown.matchAll(ESCAPE)) {
    parts.push(shown.slice(at, match.index));
    parts.push(
      <mark class="unseen" title={NAMES[match[0]] ?? "a character that does not show"}>
        {match[0]}
      </mark>,
    );
    at = match.index + match[0].length;
  }
  return [...parts, shown.slice(at)];
}

const FOLD_AT = 500;
const FOLDED_CHARS = 240;

export function Text({ children }: { children: string }) {
  return <bdi>{marked(children)}</bdi>;
}

/** A long text, folded until it is opened. */
export function Folded({ text, at = FOLD_AT }: { text: string; at?: number }) {
  const [isOpen, open] = useState(false);
  if (text.length <= at || isOpen) return <Text>{text}</Text>;
  const rest = text.length - FOLDED_CHARS;
  return (
    <>
      <Text>{text.slice(0, FOLDED_CHARS)}</Text>
      <button type="button" class="fold" onClick={() => open(true)}>
        Show {rest.toLocaleString("en")} more characters
      </button>
    </>
  );
}

/** Several lines, such as a description or the end of stderr. */
export function Lines({ text }: { text: string }) {
  return (
    <>
      {text.split("\n").map((line, i) => (
        <div key={i} class="line">
          <Folded text={line} />
        </div>
      ))}
    </>
  );
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^{}[\],:"\s]+/g;
const MAX_TOKENS = 20_000;
const MAX_INDENT = 24;

/** One line of a JSON text that is laid out. */
interface JsonLine {
  readonly depth: number;
  readonly tokens: readonly { readonly kind: "key" | "string" | "other" | "sign"; readonly text: string }[];
}

/**
 * Lays a JSON text out by its brackets. It is not parsed: escapes of characters that do not show would become those
 * characters, and numbers could change. Undefined where it has too many parts to be laid out.
 */
export function jsonLines(text: string): JsonLine[] | undefined {
  const tokens = text.match(TOKEN) ?? [];
  if (tokens.length > MAX_TOKENS) return undefined;
  const lines: JsonLine[] = [];
  let depth = 0;
  let line: JsonLine["tokens"][number][] = [];
  const end = (): void => {
    if (line.length > 0) lines.push({ depth: Math.min(lineDepth, MAX_INDENT), tokens: line });
    line = [];
    lineDepth = depth;
  };
  let lineDepth = 0;
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] as string;
    const next = tokens[i + 1];
    if (token === "{" || token === "[") {
      line.push({ kind: "sign", text: token });
      depth++;
      if (next !== "}" && next !== "]") end();
    } else if (token === "}" || token === "]") {
      depth--;
      const before = tokens[i - 1];
      if (before !== "{" && before !== "[") end();
      line.push({ kind: "sign", text: token });
    } else if (token === ",") {
      line.push({ kind: "sign", text: "," });
      end();
    } else if (token === ":") line.push({ kind: "sign", text: ": " });
    else if (token.startsWith('"')) line.push({ kind: next === ":" ? "key" : "string", text: token });
    else line.push({ kind: "other", text: token });
  }
  end();
  return lines;
}

/** The same as one text, to compare line by line. */
export function laidOut(text: string): string {
  const lines = jsonLines(text);
  if (!lines) return text;
  return lines.map(({ depth, tokens }) => "  ".repeat(depth) + tokens.map((token) => token.text).join("")).join("\n");
}

/** A canonical JSON text in full. */
export function Json({ text, label }: { text: string; label: string }): VNode {
  const lines = jsonLines(text);
  return (
    <div class="code json" role="group" aria-label={label} tabIndex={0}>
      {lines ? (
        lines.map(({ depth, tokens }, i) => (
          <div key={i} class={`line indent-${depth}`}>
            {tokens.map(({ kind, text: part }, j) =>
              kind === "sign" ? (
                part
              ) : (
                <span key={j} class={`json-${kind}`}>
                  <Folded text={part} />
                </span>
              ),
            )}
          </div>
        ))
      ) : (
        <Folded text={text} />
      )}
    </div>
  );
}

const CEDAR =
  /(\/\/[^\n]*)|("(?:[^"\\]|\\.)*")|(@\w+)|\b(permit|forbid|when|unless|if|then|else|in|like|has|is|true|false|principal|action|resource|context)\b|([^"@/a-z]+|\b\w+\b|.)/gs;
const CEDAR_KINDS = ["comment", "string", "annotation", "keyword"] as const;

/** The text of a rule. */
export function Cedar({ text, label }: { text: string; label: string }) {
  return (
    <pre class="code" role="group" aria-label={label} tabIndex={0}>
      {[...text.matchAll(CEDAR)].map((match, i) => {
        const kind = CEDAR_KINDS.find((_kind, group) => match[group + 1] !== undefined);
        const shown = match[0].split("\n").flatMap((line, j) => (j === 0 ? [marked(line)] : ["\n", marked(line)]));
        return kind ? (
          <span key={i} class={`cedar-${kind}`}>
            {shown}
          </span>
        ) : (
          shown
        );
      })}
    </pre>
  );
}
