// Two texts and where they differ: side by side where there is room, one after the other on a narrow screen.

import { lineDiff } from "../../../src/lib/line-diff.js";
import { Folded } from "./text.js";

interface Pair {
  readonly before?: string;
  readonly after?: string;
  readonly isSame: boolean;
}

/** Removed and added lines that belong together stand in one row. */
function pairs(lines: readonly string[]): Pair[] {
  const rows: Pair[] = [];
  for (let i = 0; i < lines.length; ) {
    const removed: string[] = [];
    const added: string[] = [];
    while (lines[i]?.startsWith("- ")) removed.push((lines[i++] as string).slice(2));
    while (lines[i]?.startsWith("+ ")) added.push((lines[i++] as string).slice(2));
    for (let j = 0; j < Math.max(removed.length, added.length); j++) {
      const [before, after] = [removed[j], added[j]];
      rows.push({
        isSame: false,
        ...(before === undefined ? {} : { before }),
        ...(after === undefined ? {} : { after }),
      });
    }
    if (removed.length === 0 && added.length === 0) {
      const text = (lines[i++] as string).slice(2);
      rows.push({ before: text, after: text, isSame: true });
    }
  }
  return rows;
}

export function Difference({ before, after, label }: { before: string; after: string; label: string }) {
  return <DifferenceLines lines={lineDiff(before, after)} label={label} />;
}

/** Lines of a unified difference, with `-`, `+` or a blank and a space in front. */
export function DifferenceLines({ lines, label }: { lines: readonly string[]; label: string }) {
  if (lines.every((line) => line.startsWith("  "))) return <p class="soft">There is no difference.</p>;
  return (
    <div class="difference code" role="group" aria-label={label} tabIndex={0}>
      {pairs(lines).map(({ before, after, isSame }, i) => (
        <div key={i} class={`difference-row${isSame ? " same" : ""}`}>
          <div class={before === undefined ? "absent" : isSame ? "" : "removed"}>
            {before !== undefined && <Side sign={isSame ? "" : "−"} word="removed" text={before} />}
          </div>
          <div class={after === undefined ? "absent" : isSame ? "" : "added"}>
            {after !== undefined && <Side sign={isSame ? "" : "+"} word="added" text={after} />}
          </div>
        </div>
      ))}
    </div>
  );
}

function Side({ sign, word, text }: { sign: string; word: string; text: string }) {
  return (
    <>
      <span class="sign" aria-hidden="true">
        {sign}
      </span>
      {sign && <span class="hidden">{word}: </span>}
      <span class="difference-text">
        <Folded text={text} />
      </span>
    </>
  );
}
