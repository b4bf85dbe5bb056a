// Labels of information flow to begin with, guessed from names, schemas and the operator's own word. An operator reviews
// them; where nothing can be guessed, the stricter label stands.

import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { ToolSummary } from "../cedar/types.js";
import type { FlowEffect, FlowLabel, FlowLabels } from "./labels.js";

const READS = new Set(
  "get list read search find show view describe query count fetch check lookup browse download".split(" "),
);
const SENDS = new Set(
  "send post email mail share upload publish invite notify forward push reply comment tweet pay transfer fetch browse navigate open download webhook".split(
    " ",
  ),
);
const CHANGES = new Set(
  "create update delete remove write set move rename add cancel schedule reschedule pay transfer execute exec run insert reset append edit drop merge commit put patch approve close archive book reserve".split(
    " ",
  ),
);
/** Results that no outsider can write to. */
const OWN = /^(get_)?(current|today|now|time|date|clock|balance|whoami|me|version|status|iban|contacts?)(_|$)/;
const PRIVATE =
  /\b(e?mails?|inbox|messages?|contacts?|calendar|events?|files?|documents?|drive|accounts?|users?|customers?|secrets?|balance|transactions?|notes?|records?)\b/;
const DESTINATION =
  /^(to|cc|bcc|recipients?|participants?|e?mails?|address(es)?|ur[li]s?|host|endpoint|webhook|channel|user(_?name)?|account|iban|target|dest(ination)?|path|file(_?name)?|repo(sitory)?|owner|branch|phone|key|password|.*[_-]?ids?)$/i;
const PAYLOAD =
  /^(body|content|contents|text|message|subject|title|description|data|payload|attachments?|comment|note|summary|caption|html|markdown|code|query|sql|command|value|location|street|city)$/i;

/** `suggestFlow` proposes a label for each tool. */
export function suggestFlow(tools: readonly ToolSummary[]): FlowLabels {
  return { tools: Object.fromEntries(tools.map((tool) => [tool.name, suggested(tool)])) };
}

function suggested({ name, inputSchema, readOnly }: ToolSummary): FlowLabel {
  const words = wordsOf(name);
  const does = effectsOf(words, argumentsOf(inputSchema), readOnly ?? false);
  const carries = carriedBy(words);
  if (does.length === 0) return { carries, does };
  const names = argumentsOf(inputSchema);
  const destination = names.filter((each) => DESTINATION.test(each));
  const payload = names.filter((each) => !DESTINATION.test(each) && PAYLOAD.test(each));
  // Where no name says what is sent, every argument is a destination, which is what a label without either list means.
  if (destination.length === 0 && payload.length === 0) return { carries, does };
  return { carries, does, destination, payload };
}

/** Of the last part of the name: `mail.sendMessage` is `send`, `message`. */
function wordsOf(name: string): string[] {
  const own = name.slice(name.lastIndexOf(".") + 1);
  return own
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
}

function effectsOf(words: readonly string[], args: readonly string[], readOnly: boolean): FlowEffect[] {
  const opensUrls = args.some((each) => /^(ur[li]s?|endpoint|webhook|host)$/i.test(each));
  const sends = opensUrls || words.some((word) => SENDS.has(word) && !(readOnly && READS.has(word)));
  if (readOnly) return opensUrls ? ["sends-outside"] : [];
  const changes = words.some((word) => CHANGES.has(word));
  const reads = OWN.test(words.join("_")) || words.some((word) => READS.has(word));
  if (sends || changes)
    return [...(sends ? ["sends-outside" as const] : []), ...(changes ? ["changes-state" as const] : [])];
  return reads ? [] : ["sends-outside", "changes-state"];
}

function carriedBy(words: readonly string[]): string[] {
  const isOwn = OWN.test(words.join("_"));
  const topic = PRIVATE.exec(words.join(" "))?.[1]?.replace(/s$/, "");
  return [isOwn ? "trusted" : "untrusted", ...(topic === undefined ? [] : [`private(${topic})`])];
}

function argumentsOf(schema: JsonObject | boolean): string[] {
  return isJsonObject(schema) && isJsonObject(schema.properties) ? Object.keys(schema.properties) : [];
}
