// What a page of documentation holds besides prose: fenced snippets and links.

export interface Snippet {
  readonly page: string;
  /** Of the first line of its code, counted from one. */
  readonly line: number;
  readonly language: string;
  /** The second word after the fence: the name it is saved under for the commands that follow. */
  readonly file: string | undefined;
  readonly code: string;
  /** Why it is not run, when a comment before it says so. */
  readonly notRun: string | undefined;
}

const FENCE = /^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[ \t]*(\S*)/;
const NOT_RUN = /^\s*<!--\s*not run:\s*(\S.*?)\s*-->\s*$/;

export function snippetsOf(page: string, text: string): Snippet[] {
  const lines = text.split("\n");
  const found: Snippet[] = [];
  let before = "";
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] as string;
    const fence = FENCE.exec(line);
    if (!fence) {
      if (line.trim() !== "") before = line;
      continue;
    }
    const [, indent = "", mark = "", language = "", file = ""] = fence;
    const end = lines.findIndex((each, index) => index > at && each.trimStart().startsWith(mark));
    if (end < 0) throw new Error(`${page}:${at + 1}: this fence is never closed`);
    const body = lines.slice(at + 1, end).map((each) => (each.startsWith(indent) ? each.slice(indent.length) : each));
    found.push({
      page,
      line: at + 2,
      language,
      file: file === "" ? undefined : file,
      code: `${body.join("\n")}\n`,
      notRun: NOT_RUN.exec(before)?.[1],
    });
    before = "";
    at = end;
  }
  return found;
}

export interface Link {
  readonly line: number;
  readonly target: string;
}

/** Links to something beside the page: not to the web, not inside the page, not in code. */
export function relativeLinks(text: string): Link[] {
  let fenced = false;
  return text.split("\n").flatMap((line, index) => {
    if (/^\s*(```|~~~)/.test(line)) fenced = !fenced;
    if (fenced) return [];
    const prose = line.replaceAll(/`[^`]*`/g, "");
    return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = ""]) => ({ line: index + 1, target }))
      .filter(({ target }) => !/^([a-z]+:|#)/i.test(target));
  });
}

/** The names that links to a page's headings use, as GitHub makes them. */
export function anchors(text: string): Set<string> {
  const headings = [...text.matchAll(/^#{1,6}\s+(.+)$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
        .trim()
        .replaceAll(/\s/g, "-"),
    ),
  );
}
