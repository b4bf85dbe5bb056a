import fc from "fast-check";
import { expect, it } from "vitest";
import { visible } from "../lib/visible.js";

it("leaves plain text unchanged", () => {
  expect(visible('{"path":"notes/été — 日本.txt","n":1}')).toBe('{"path":"notes/été — 日本.txt","n":1}');
});

it.each([
  ["a bidirectional override", "\u202e", "\\u202e"],
  ["a bidirectional isolate", "\u2067", "\\u2067"],
  ["a zero-width space", "\u200b", "\\u200b"],
  ["a zero-width joiner", "\u200d", "\\u200d"],
  ["a byte-order mark", "\ufeff", "\\ufeff"],
  ["a line feed", "\n", "\\u000a"],
  ["an escape that begins a terminal sequence", "\u001b", "\\u001b"],
  ["a C1 control", "\u009b", "\\u009b"],
  ["delete", "\u007f", "\\u007f"],
  ["a line separator", "\u2028", "\\u2028"],
  ["a no-break space", "\u00a0", "\\u00a0"],
  ["a Hangul filler", "\u3164", "\\u3164"],
  ["a variation selector", "\ufe0f", "\\ufe0f"],
  ["a tag character", "\u{e0041}", "\\udb40\\udc41"],
  ["a selector of the supplement", "\u{e0100}", "\\udb40\\udd00"],
  ["a soft hyphen", "\u00ad", "\\u00ad"],
  ["a lone surrogate", "\ud800", "\\ud800"],
  ["a private code point", "\ue000", "\\ue000"],
])("%s becomes an escape", (_what, raw, escaped) => {
  expect(visible(`a${raw}b`)).toBe(`a${escaped}b`);
});

it("keeps a JSON text valid and its meaning unchanged", () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: "binary" }), (value) => {
      const text = JSON.stringify(value);
      const shown = visible(text);
      expect(JSON.parse(shown)).toEqual(JSON.parse(text));
      expect(shown).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    }),
    { numRuns: 2_000 },
  );
});
