// The nearest right name for a wrong one, so that an error can say "did you mean".

/** Longer names are not compared: the table below is quadratic. */
const MAX_COMPARED_CHARS = 64;

export function nearest(wrong: string, known: Iterable<string>): string | undefined {
  if (wrong.length > MAX_COMPARED_CHARS) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(wrong.length / 2)) + 1;
  for (const name of known) {
    const d = distance(wrong.toLowerCase(), name.toLowerCase());
    if (d < bestDistance) {
      best = name;
      bestDistance = d;
    }
  }
  return best;
}

/** Edits between two names: a letter more, less, changed, or two neighbours exchanged. */
function distance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isExchange = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const exchanged = isExchange ? (beforeLast[j - 2] ?? 0) + 1 : changed;
      row.push(Math.min(changed, exchanged, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}
