import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { asFault, ERRORS, errorData, Fault, wireError } from "./errors.js";

const page = readFileSync(join(import.meta.dirname, "../../docs/errors.md"), "utf8");

describe("the table of errors", () => {
  it.each(Object.entries(ERRORS))("%s is documented with its codes and status [G4]", (type, row) => {
    const section = page.split(/^## /m).find((part) => part.startsWith(`${row.code}\n`));
    expect(section).toContain(`\`${type}\``);
    expect(section).toContain(`JSON-RPC ${row.legacy} (2026-07-28: ${row.modern}), HTTP ${row.http}`);
  });

  it("the table of errors keeps our own codes out of the range that 2026-07-28 reserves", () => {
    const spoken = new Set([-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022]);
    for (const row of Object.values(ERRORS)) {
      const reserved = row.modern >= -32768 && row.modern <= -32000;
      expect(!reserved || spoken.has(row.modern), row.code).toBe(true);
    }
  });

  it("names the error families that a caller can tell apart [U6]", () => {
    expect(new Set(Object.values(ERRORS).map((row) => row.family))).toEqual(
      new Set(["protocol", "tool", "policy", "audit"]),
    );
  });

  it("the table of errors has the names of the host document [M8]", () => {
    const codes = new Set<string>(Object.values(ERRORS).map((row) => row.code));
    for (const code of ["POLICY_DENY", "INVALID_ARGS", "TIMEOUT", "OUTPUT_TRUNCATED", "IO_ERROR", "INTERNAL"]) {
      expect(codes.has(code), code).toBe(true);
    }
  });
});

describe("an error object", () => {
  const fault = new Fault("PolicyDeny", "outside the roots", {
    rule: "roots",
    field: "path",
    suggestions: ["Use a path under ~/code"],
    extra: { path: "/etc/passwd" },
  });

  it("says what, why, by which rule, and what to do [G4 M8]", () => {
    expect(errorData(fault, "t1")).toEqual({
      code: "POLICY_DENY",
      error_type: "PolicyDeny",
      reason: "outside the roots",
      rule: "roots",
      field: "path",
      trace_id: "t1",
      retryable: false,
      suggestions: ["Use a path under ~/code"],
      documentation_url: "/docs/errors#policy_deny",
      path: "/etc/passwd",
    });
  });

  it("an error object has the code of the revision that is spoken", () => {
    expect(wireError(fault, "legacy", "t").code).toBe(-32005);
    expect(wireError(fault, "modern", "t").code).toBe(-31005);
    expect(wireError(new Fault("ResourceNotFound", "x"), "legacy", "t").code).toBe(-32002);
    expect(wireError(new Fault("ResourceNotFound", "x"), "modern", "t").code).toBe(-32602);
  });

  it("shows nothing of our insides when something unexpected was thrown [G4]", () => {
    const shown = JSON.stringify(errorData(asFault(new Error("secret path /home/x")), "t"));
    expect(shown).not.toContain("secret");
    expect(asFault(fault)).toBe(fault);
  });
});
