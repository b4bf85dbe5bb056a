import { expect, test } from "vitest";
import { REDACTION_NAMES, redactionPattern } from "./annotations.js";
import { loadPolicy } from "./load.js";
import { PolicyInvalid } from "./types.js";

function problem(annotations: string, rule = "permit (principal, action, resource);"): string {
  try {
    loadPolicy([{ file: "p.cedar", text: `\n${annotations}\n${rule}` }], []);
    return "";
  } catch (error) {
    if (!(error instanceof PolicyInvalid)) throw error;
    return error.message;
  }
}

const FORBID = "forbid (principal, action, resource);";
const CHALLENGE = "forbid (principal, action, resource) unless { context.approved };";

test("rejects unknown annotations and suggests the nearest known one", () => {
  expect(problem('@outcom("challenge")', CHALLENGE)).toBe(
    "p.cedar:2:1: @outcom is not an annotation here (did you mean @outcome?)",
  );
  expect(problem('@description("x")')).toContain("known are @id, @reason, @outcome");
  expect(problem('@reason("fine")\n  @redcat("x")')).toContain("p.cedar:3:3: @redcat");
});

test.each([
  ['@id("")', "", "@id must be"],
  ["@id", "", "@id must be"],
  ['@id("two words")', "", "@id must be"],
  ['@reason("")', "", "@reason must be"],
  ['@reason("two\\nlines")', "", "@reason must be"],
  [`@reason("${"x".repeat(501)}")`, "", "@reason must be"],
  ['@outcome("ask")', FORBID, '@outcome cannot be "ask"'],
  ['@outcome("challenge")', "", "@outcome belongs on a forbid"],
  ['@approvers("a")', FORBID, '@approvers needs @outcome("challenge")'],
  ['@outcome("challenge") @approvers("a,,b")', CHALLENGE, "@approvers must be group names"],
  ['@outcome("challenge") @approvers("")', CHALLENGE, "@approvers must be group names"],
  ['@redact("")', "", "@redact names nothing"],
  ['@redact("email")', "", '@redact has the item "email"'],
  ['@redact("name:emial")', "", "@redact does not know the name"],
  ['@redact("/(/")', "", "@redact has a pattern that is not valid"],
  ['@redact("/a/x")', "", "neither field:NAME"],
  ['@redact("/a b/")', "", "write \\s for a space"],
  ['@redact("field:a")', FORBID, "@redact belongs on a permit"],
  ['@cap("0")', "", "@cap must be a number of bytes"],
  ['@cap("64k")', "", "@cap must be a number of bytes"],
  ['@cap("99999999999999999999")', "", "@cap must be a number of bytes"],
])("%s is refused", (annotations, rule, message) => {
  expect(problem(annotations, rule === "" ? undefined : rule)).toContain(message);
});

test("the ones that are right load", () => {
  expect(problem('@id("a/b-1") @reason("ok") @redact("field:x name:email /a\\\\sb?/gi") @cap("1")')).toBe("");
  expect(problem('@outcome("challenge") @approvers("ops, security")', CHALLENGE)).toBe("");
  expect(problem('@outcome("challenge")', CHALLENGE)).toBe("");
});

test("a challenge has to read context.approved, and nothing else may", () => {
  expect(problem('@outcome("challenge")', FORBID)).toContain("a challenge that does not read context.approved");
  expect(problem("", CHALLENGE)).toContain("context.approved is only ever true for a challenge");
  expect(problem("", "permit (principal, action, resource)\nwhen { context.approved };")).toContain(
    "p.cedar:4:8: context.approved",
  );
  expect(problem("", "permit (principal, action, resource) when { [context].isEmpty() };")).toContain(
    "context is used as a whole",
  );
});

test("named patterns find what they name and leave the rest", () => {
  const found = (name: string, text: string): string[] =>
    text.match(redactionPattern({ kind: "redact", name }) as RegExp) ?? [];
  expect(REDACTION_NAMES).toEqual(["email", "creditcard", "ipv4", "jwt", "privatekey", "secret"]);
  expect(found("email", "write to a.b+c@mail.example.org, not to a@b")).toEqual(["a.b+c@mail.example.org"]);
  expect(found("creditcard", "4111 1111 1111 1111 and 12345")).toEqual(["4111 1111 1111 1111"]);
  expect(found("ipv4", "from 10.0.0.1 port 8080")).toEqual(["10.0.0.1"]);
  expect(found("jwt", "x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl y")).toHaveLength(1);
  expect(
    found("privatekey", "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nb"),
  ).toHaveLength(1);
  expect(found("secret", "key AKIAIOSFODNN7EXAMPLE, password: hunter2hunter2, token=abc")).toEqual([
    "AKIAIOSFODNN7EXAMPLE",
    "password: hunter2hunter2",
  ]);
  expect(redactionPattern({ kind: "redact", pattern: "/a\\/b/i" })).toEqual(/a\/b/gi);
  expect(redactionPattern({ kind: "redact", field: "x" })).toBeUndefined();
  expect(redactionPattern({ kind: "cap", maxBytes: 1 })).toBeUndefined();
});

// A pattern that goes over text twice would be at this for hours.
test("named patterns come to an end on text made to slow them down", () => {
  for (const [name, piece] of [
    ["email", "a.a@"],
    ["jwt", "eyJ-"],
    ["privatekey", "-----BEGIN PRIVATE KEY-----"],
    ["creditcard", "1 "],
    ["secret", "token=Bearer "],
    ["ipv4", "1."],
  ] as const) {
    const text = piece.repeat(200_000);
    const pattern = redactionPattern({ kind: "redact", name }) as RegExp;
    expect(text.replace(pattern, "").length, name).toBeLessThanOrEqual(text.length);
  }
});
