// Cedar for the editor: highlighting, and completion from the tools of the application and the schemas of their arguments.

import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { HighlightStyle, StreamLanguage, type StringStream } from "@codemirror/language";
import { tags } from "@lezer/highlight";

const KEYWORDS = /^(permit|forbid|when|unless|if|then|else|in|like|has|is)\b/;
const ATOMS = /^(true|false)\b/;
const VARIABLES = /^(principal|action|resource|context)\b/;

export const cedar = StreamLanguage.define({
  name: "cedar",
  token(stream: StringStream): string | null {
    if (stream.eatSpace()) return null;
    if (stream.match(/^\/\/.*/)) return "comment";
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
    if (stream.match(/^@[A-Za-z_]\w*/)) return "meta";
    if (stream.match(KEYWORDS)) return "keyword";
    if (stream.match(ATOMS)) return "atom";
    if (stream.match(VARIABLES)) return "variableName";
    if (stream.match(/^\d+/)) return "number";
    if (stream.match(/^[A-Z]\w*(?=::)/)) return "typeName";
    if (stream.match(/^[A-Za-z_]\w*/)) return null;
    if (stream.match(/^(==|!=|<=|>=|&&|\|\||[<>+\-*!])/)) return "operator";
    stream.next();
    return null;
  },
  languageData: { commentTokens: { line: "//" }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
});

/** The colours follow the theme of the page: custom properties reach into the editor. */
export const cedarColours = HighlightStyle.define([
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: [tags.keyword, tags.atom], color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.meta, tags.number], color: "var(--code-meta)" },
  { tag: tags.variableName, color: "var(--accent)" },
  { tag: tags.typeName, color: "var(--code-keyword)" },
]);

/** A tool as completion needs it. */
export interface KnownTool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly input_schema: unknown;
}

const CONTEXT = ["approved", "arguments", "forwarded", "tool"];
const WORDS = ["permit", "forbid", "when", "unless", "principal", "action", "resource", "context", "has", "like", "in"];
const MAX_OPTIONS = 500;

/** What fits at this place. */
export function completionOf(tools: () => readonly KnownTool[]) {
  return (context: CompletionContext): CompletionResult | null => {
    const action = context.matchBefore(/Action::"[^"]*/);
    if (action) {
      const options = tools().map(({ name, description = "" }) => option(name, "function", description));
      return { from: action.from + 'Action::"'.length, options: options.slice(0, MAX_OPTIONS), validFor: /^[^"]*$/ };
    }
    const member = context.matchBefore(/context\.arguments\.\w*/);
    if (member) {
      const options = argumentsOf(tools(), context).map(([name, type]) => option(name, "property", type));
      return { from: member.from + "context.arguments.".length, options, validFor: /^\w*$/ };
    }
    const attribute = context.matchBefore(/context\.\w*/);
    if (attribute) {
      return {
        from: attribute.from + "context.".length,
        options: CONTEXT.map((name) => option(name, "property")),
        validFor: /^\w*$/,
      };
    }
    const annotation = context.matchBefore(/@\w*/);
    if (annotation) {
      const names = ['@id("")', '@outcome("challenge")', '@approvers("")', '@reason("")'];
      return { from: annotation.from, options: names.map((name) => option(name, "keyword")), validFor: /^@\w*$/ };
    }
    const word = context.matchBefore(/\w+/);
    if (!word && !context.explicit) return null;
    return {
      from: word?.from ?? context.pos,
      options: WORDS.map((name) => option(name, "keyword")),
      validFor: /^\w*$/,
    };
  };
}

function option(label: string, type: string, detail = ""): Completion {
  return { label, type, ...(detail === "" ? {} : { detail: detail.slice(0, 80) }) };
}

/** The arguments of the tool that the rule around this place names, otherwise of every tool. */
function argumentsOf(tools: readonly KnownTool[], { state, pos }: CompletionContext): [string, string][] {
  const before = state.sliceDoc(Math.max(0, pos - 4_000), pos);
  const rule = before.slice(Math.max(before.lastIndexOf("permit"), before.lastIndexOf("forbid"), 0));
  const named = new Set([...rule.matchAll(/Action::"([^"]+)"/g)].map(([, name]) => name));
  const found = new Map<string, string>();
  for (const { name, input_schema: schema } of tools) {
    if (named.size > 0 && !named.has(name)) continue;
    const properties = (schema as { properties?: Record<string, { type?: unknown }> } | null)?.properties ?? {};
    for (const [key, { type } = {}] of Object.entries(properties)) {
      if (found.size < MAX_OPTIONS) found.set(key, typeof type === "string" ? type : "");
    }
  }
  return [...found];
}
