import { describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import { FORMAT_REFUSED, formatExamples, isKnownFormat } from "./strings.js";

const ENFORCED = [
  "date-time",
  "date",
  "time",
  "duration",
  "email",
  "hostname",
  "ipv4",
  "ipv6",
  "uri",
  "uri-reference",
  "uri-template",
  "uuid",
  "json-pointer",
  "relative-json-pointer",
  "regex",
  "byte",
];

describe("known formats", () => {
  it.each(ENFORCED)(
    "%s takes one of its examples and refuses one of the strings that stand for all formats",
    (name) => {
      const check = ajvValidator()({ type: "string", format: name });
      expect(isKnownFormat(name)).toBe(true);
      expect(formatExamples(name, 30).some(check)).toBe(true);
      // Otherwise a validator that enforces the format would be taken for one that does not.
      expect(FORMAT_REFUSED.every(check)).toBe(false);
    },
  );
});
