import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { contentId } from "./intent.js";

/** Decodes base32 the plain way, so that the check shares nothing with the encoder. */
function bytesOf(id: string): Buffer {
  let bits = "";
  for (const c of id.slice(1)) bits += "abcdefghijklmnopqrstuvwxyz234567".indexOf(c).toString(2).padStart(5, "0");
  const bytes: number[] = [];
  for (let i = 0; i + 8 <= bits.length; i += 8) bytes.push(Number.parseInt(bits.slice(i, i + 8), 2));
  return Buffer.from(bytes);
}

describe("a content id", () => {
  it("a content id is the CIDv1 that other tools compute for the same bytes [U8]", () => {
    // Computed with Python's hashlib and base64.
    expect(contentId("{}")).toBe("bagaaieraiqjw7i2vwntyuekgvulpp2det2kpwt6cd7tx5ayqybqpmhfk76fa");
    expect(contentId('{"a":1}')).toBe("bagaaieraafnl2724yv5c3wklowipaswybbbhhec64m7mltv6vzrco2ux7bra");
  });

  it("holds version, codec json and the sha2-256 of the text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        const bytes = bytesOf(contentId(text));
        expect(bytes.subarray(0, 5).toString("hex")).toBe("0180041220");
        expect(bytes.subarray(5)).toEqual(createHash("sha256").update(text).digest());
      }),
    );
  });
});
