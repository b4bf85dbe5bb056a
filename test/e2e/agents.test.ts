// Typed agents in front of a gateway as its user starts it.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ChallengeRequired, createAgent, PolicyViolation, toolset } from "../../src/mcp/client/index.js";
import { type Serving, serve } from "./serving.js";

interface DemoTools {
  "math.add": { args: { a: number; b: number }; result: { sum: number } };
  "notes.write": { args: { title: string; text: string }; result: { content: { text: string }[] } };
  "notes.delete": { args: { title: string }; result: unknown };
  "shell.run": { args: { command: string }; result: unknown };
}

let gateway: Serving;
beforeAll(async () => {
  gateway = await serve(["--ws-port", "0", "--challenge-wait", "0"]);
});
afterAll(() => gateway.stop());

const pass = (): undefined => undefined;

describe.each(["http:", "ws:"])("agents of a gateway over %s", (scheme) => {
  const url = (): string => gateway.urls.find((each) => each.startsWith(scheme)) as string;

  it("agents of a gateway call what they hold, within what its policy allows", async () => {
    const demo = toolset<DemoTools>()({
      names: ["math.add", "notes.write", "notes.delete"],
      noGuardrailRequired: ["math.add"],
    });
    const root = await createAgent("root", demo, { app: "local", guardrails: { "*": pass } }).connect(url());
    try {
      const sums = root.delegate("sums", ["math.add"]);
      expect(await sums.call("math.add", sums.unchecked("math.add", { a: 1, b: 2 }))).toEqual({ sum: 3 });
      await expect(sums.guard("notes.write" as never, {} as never)).rejects.toThrow(
        "`notes.write` is not within the capabilities of agent `sums`",
      );
      const fine = await root.guard("notes.write", { title: "demo/a", text: "x" });
      expect((await root.call("notes.write", fine)).content[0]?.text).toBe("wrote demo/a");
      // A token says that the guardrails passed; what the gateway says is another matter.
      const other = await root.guard("notes.write", { title: "a", text: "x" });
      await expect(root.call("notes.write", other)).rejects.toBeInstanceOf(PolicyViolation);
      const asked = await root.guard("notes.delete", { title: "demo/a" });
      await expect(root.call("notes.delete", asked)).rejects.toBeInstanceOf(ChallengeRequired);
    } finally {
      await root.close();
    }
  });

  it("agents that hold what the gateway never permits do not start", async () => {
    const shell = toolset<DemoTools>()({ names: ["math.add", "shell.run"] });
    await expect(createAgent("root", shell, { app: "local" }).connect(url())).rejects.toThrow(
      "agent `root` holds `shell.run`, which the server does not offer",
    );
  });
});
