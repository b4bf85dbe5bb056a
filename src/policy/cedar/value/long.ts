// Cedar's 64-bit integers. A Long is a JavaScript number while that is exact and a bigint past 2^53,
// so every value has exactly one form and `===` compares.

export type Long = number | bigint;

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;

export function isLong(value: unknown): value is Long {
  return typeof value === "number" || typeof value === "bigint";
}

/** Undefined when the value does not fit 64 bits. */
export function longFrom(value: bigint): Long | undefined {
  if (value < MIN || value > MAX) return undefined;
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export function add(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const sum = a + b;
    if (Number.isSafeInteger(sum)) return sum;
  }
  return longFrom(BigInt(a) + BigInt(b));
}

export function subtract(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const difference = a - b;
    if (Number.isSafeInteger(difference)) return difference;
  }
  return longFrom(BigInt(a) - BigInt(b));
}

export function multiply(a: Long, b: Long): Long | undefined {
  if (typeof a === "number" && typeof b === "number") {
    const product = a * b;
    if (Number.isSafeInteger(product)) return product;
  }
  return longFrom(BigInt(a) * BigInt(b));
}

/** Towards zero, as Cedar rounds. */
export function divide(a: Long, by: number): Long {
  return typeof a === "number" ? Math.trunc(a / by) : (longFrom(a / BigInt(by)) ?? 0);
}

/** The remainder that is never negative. */
export function modulo(a: Long, by: number): number {
  const remainder = typeof a === "number" ? a % by : Number(a % BigInt(by));
  return remainder < 0 ? remainder + by : remainder;
}
