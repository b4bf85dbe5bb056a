import { it } from "vitest";
import { boundHolds } from "./cost.contract.js";

const cases = Number(process.env.PATTERN_CASES ?? 1_000_000);

it(`on ${cases} random patterns and texts, no engine takes more steps than were promised`, () => {
  boundHolds(cases);
});
