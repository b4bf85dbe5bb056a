import { describe } from "vitest";
import { describeLaws } from "../fixtures/laws.js";

describe("lattice laws on generated capability sets", () => describeLaws(4));
