// Names by pattern, as operators write them.

/** `*` stands for anything; a pattern without one is a name. */
export function matcher(patterns: readonly string[]): (name: string) => boolean {
  const names = new Set(patterns.filter((pattern) => !pattern.includes("*")));
  const parts = patterns.filter((pattern) => pattern.includes("*")).map((pattern) => pattern.split("*"));
  return (name) => names.has(name) || parts.some((pieces) => matches(pieces, name));
}

function matches(pieces: readonly string[], name: string): boolean {
  const last = pieces.length - 1;
  let at = 0;
  for (const [i, piece] of pieces.entries()) {
    if (i === last) return name.length - piece.length >= at && name.endsWith(piece);
    const found = i === 0 ? (name.startsWith(piece) ? 0 : -1) : name.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return true;
}
