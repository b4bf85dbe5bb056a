// Versions as releases carry them: three numbers and perhaps a pre-release, ordered as semver orders them.

const SHAPE = /^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?$/;
const MAX_LENGTH = 64;

export function isVersion(text: unknown): text is string {
  return typeof text === "string" && text.length <= MAX_LENGTH && SHAPE.test(text);
}

/** Negative when `a` is older than `b`, 0 when they are the same. Both must be versions. */
export function compareVersions(a: string, b: string): number {
  const [, ...left] = SHAPE.exec(a) as unknown as string[];
  const [, ...right] = SHAPE.exec(b) as unknown as string[];
  for (let index = 0; index < 3; index += 1) {
    const difference = Number(left[index]) - Number(right[index]);
    if (difference !== 0) return difference;
  }
  return comparePre(left[3], right[3]);
}

function comparePre(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0;
  // What is not a pre-release comes after all of its pre-releases.
  if (a === undefined) return 1;
  if (b === undefined) return -1;
  const left = a.split(".");
  const right = b.split(".");
  for (let index = 0; index < Math.max(left.length, right.length); index += 1) {
    const difference = comparePart(left[index], right[index]);
    if (difference !== 0) return difference;
  }
  return 0;
}

function comparePart(a: string | undefined, b: string | undefined): number {
  if (a === b) return 0;
  if (a === undefined) return -1;
  if (b === undefined) return 1;
  const numeric = [a, b].map((part) => /^\d+$/.test(part));
  if (numeric[0] && numeric[1]) return Number(a) - Number(b);
  if (numeric[0] !== numeric[1]) return numeric[0] ? -1 : 1;
  return a < b ? -1 : 1;
}
