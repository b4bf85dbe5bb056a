// Text of strangers that goes into comments: nothing in it can end the comment, hide, or turn the reading direction.

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
