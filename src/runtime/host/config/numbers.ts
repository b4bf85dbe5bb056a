import { InvalidArgumentError } from "commander";

/** Underscores as in the policy itself: 10_000_000. */
export function wholeNumber(text: string): number {
  if (!/^\d+(_\d+)*$/.test(text)) throw new InvalidArgumentError("it must be a whole number, like 10_000_000.");
  return Number(text.replaceAll("_", ""));
}
