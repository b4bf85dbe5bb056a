import { describe, expect, it } from "vitest";
import { checkWorkflows, loadChecker } from "../fixtures/check-workflows.js";

describe("workflow analysis", () => {
  it("equals brute force on generated workflows, circles and narrowing included, before and after changes", async () => {
    const done = checkWorkflows(150, await loadChecker());
    expect(done.violations).toBeGreaterThan(150);
  });
});
