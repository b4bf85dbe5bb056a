// The lines in which two texts differ, as a unified diff shows them.

const CONTEXT = 3;
const MAX_CELLS = 4_000_000;

interface Line {
  readonly sign: " " | "-" | "+";
  readonly text: string;
}

/** Lines with `-`, `+` or a blank in front, three unchanged ones around each difference, `…` for those left out. */
export function lineDiff(before: string, after: string): string[] {
  const lines = compared(linesOf(before), linesOf(after));
  const isNear = lines.map((_line, i) =>
    lines.slice(Math.max(0, i - CONTEXT), i + CONTEXT + 1).some(({ sign }) => sign !== " "),
  );
  const shown: string[] = [];
  for (const [i, { sign, text }] of lines.entries()) {
    if (isNear[i]) shown.push(`${sign} ${text}`);
    else if (i === 0 || isNear[i - 1]) shown.push("  …");
  }
  return shown;
}

function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

function compared(before: readonly string[], after: readonly string[]): Line[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (
    end < before.length - start &&
    end < after.length - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  )
    end++;
  const same = (lines: readonly string[]): Line[] => lines.map((text) => ({ sign: " ", text }));
  return [
    ...same(before.slice(0, start)),
    ...changedPart(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...same(before.slice(before.length - end)),
  ];
}

/** By the longest common subsequence; of texts too long for that, everything is removed and added. */
function changedPart(before: readonly string[], after: readonly string[]): Line[] {
  const removed = (text: string): Line => ({ sign: "-", text });
  const added = (text: string): Line => ({ sign: "+", text });
  if (before.length * after.length > MAX_CELLS) return [...before.map(removed), ...after.map(added)];
  const width = after.length + 1;
  const common = new Uint16Array((before.length + 1) * width);
  const at = (i: number, j: number): number => common[i * width + j] as number;
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i * width + j] = before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) {
      lines.push({ sign: " ", text: before[i] as string });
      i++;
      j++;
    } else if (at(i + 1, j) >= at(i, j + 1)) lines.push(removed(before[i++] as string));
    else lines.push(added(after[j++] as string));
  }
  return [...lines, ...before.slice(i).map(removed), ...after.slice(j).map(added)];
}
