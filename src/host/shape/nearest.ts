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

/** Levenshtein, one row at a time. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
