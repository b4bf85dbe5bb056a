import { describe } from "vitest";
import { describeLaws } from "../fixtures/laws.js";

const RUNS = Number(process.env.LATTICE_LAWS ?? 1_000);

describe(`lattice laws, ${RUNS} generated capability sets each`, () => describeLaws(RUNS));
