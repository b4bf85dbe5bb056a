// Is a number a multiple of another, in the decimals people write? Binary division says that 19.99 is no multiple
// of 0.01, so the digits decide.

export function isMultiple(value: number, divisor: number): boolean {
  if (value % divisor === 0) return true;
  if (Number.isInteger(value) && Number.isInteger(divisor)) return false;
  const a = decimal(value);
  const b = decimal(divisor);
  const exponent = Math.min(a.exponent, b.exponent);
  return scaled(a, exponent) % scaled(b, exponent) === 0n;
}

interface Decimal {
  digits: bigint;
  exponent: number;
}

/** The shortest decimal that reads back as this number, as digits × 10^exponent. */
function decimal(value: number): Decimal {
  const [mantissa = "0", power = "0"] = value.toExponential().split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}

/** INVARIANT: exponents of doubles differ by less than 700, so the power stays small. */
function scaled({ digits, exponent }: Decimal, to: number): bigint {
  return digits * 10n ** BigInt(exponent - to);
}
