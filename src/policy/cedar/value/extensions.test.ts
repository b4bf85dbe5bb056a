import { expect, test } from "vitest";
import { withCedar } from "../cedar.js";
import { Random } from "../fixtures/generate.js";
import { DateTime, Decimal, Duration, IpAddress } from "./extensions.js";

/** Which of the texts Cedar accepts as an argument of `fn`: one rule a text, and one that Cedar reports as an error. */
function acceptedByCedar(fn: string, texts: readonly string[]): boolean[] {
  const policies = Object.fromEntries(
    texts.map((text, index) => [`p${index}`, `permit (principal, action, resource) when { ${fn}("${text}") == 1 };`]),
  );
  const answer = withCedar((cedar) =>
    cedar.isAuthorized({
      principal: { type: "A", id: "a" },
      action: { type: "Action", id: "a" },
      resource: { type: "A", id: "a" },
      context: {},
      entities: [],
      policies: { staticPolicies: policies },
    }),
  );
  if (answer.type === "failure") throw new Error(JSON.stringify(answer.errors));
  const failed = new Set(answer.response.diagnostics.errors.map((error) => error.policyId));
  return texts.map((_, index) => !failed.has(`p${index}`));
}

/** A good text with a few characters changed, so that about half of the results are still good. */
function mutate(random: Random, good: readonly string[], alphabet: string): string {
  let text = random.pick(good);
  for (let changes = random.below(3); changes > 0; changes--) {
    const at = random.below(text.length + 1);
    const removed = random.below(2);
    const added = random.chance(0.7) ? alphabet[random.below(alphabet.length)] : "";
    text = text.slice(0, at) + added + text.slice(at + removed);
  }
  return text;
}

test.each([
  ["decimal", Decimal.parse, ["1.0", "-12.3456", "922337203685477.5807", "00.10"], "0123456789.-"],
  [
    "ip",
    IpAddress.parse,
    ["10.0.0.1", "255.255.255.255/32", "::", "1:2:3:4:5:6:7:8", "fe80::1/64", "::1", "1::8/0"],
    "0123456789abF:./",
  ],
  [
    "datetime",
    DateTime.parse,
    ["2024-02-29", "1999-12-31T23:59:59Z", "2024-01-01T00:00:00.123+0130", "0000-01-01"],
    "0123456789-:TZ.+",
  ],
  [
    "duration",
    Duration.parse,
    ["1d2h3m4s5ms", "-1h", "9223372036854775807ms", "106751991167d", "0s"],
    "0123456789dhms-",
  ],
] as const)("%s takes exactly the texts that Cedar takes", (fn, parse, good, alphabet) => {
  const random = new Random(42);
  const texts = Array.from({ length: 400 }, () => mutate(random, good, alphabet));
  const theirs = acceptedByCedar(fn, texts);
  for (const [index, text] of texts.entries()) {
    expect(parse(text) !== undefined, `${fn}("${text}")`).toBe(theirs[index]);
  }
  expect(theirs.filter((accepted) => accepted).length).toBeGreaterThan(60);
  expect(theirs.filter((accepted) => !accepted).length).toBeGreaterThan(60);
});

test("a decimal reads back as it was written, to four digits", () => {
  for (const [value, text] of [
    [0, "0.0000"],
    [-0.5, "-0.5000"],
    [1.5, "1.5000"],
    [-12.3456, "-12.3456"],
    [900000000000000, "900000000000000.0000"],
  ] as const) {
    expect(Decimal.fromNumber(value)?.toString()).toBe(text);
  }
  expect(Decimal.fromNumber(0.1 + 0.2)).toBeUndefined();
  expect(Decimal.fromNumber(Number.NaN)).toBeUndefined();
  expect(Decimal.fromNumber(Number.POSITIVE_INFINITY)).toBeUndefined();
});

test("a caller's million digits are not multiplied out", () => {
  expect(Decimal.parse(`${"9".repeat(1_000_000)}.0`)).toBeUndefined();
  expect(Duration.parse(`${"9".repeat(1_000_000)}ms`)).toBeUndefined();
});
