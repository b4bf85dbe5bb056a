import { describe, expect, it } from "vitest";
import { connect } from "../mcp/client/index.js";
import { listenMemory } from "../mcp/transports/index.js";
import { applyObligations, applyToText, cutText } from "../policy/index.js";
import { createServer } from "../server.js";

describe("obligations", () => {
  const result = {
    content: [
      { type: "text", text: 'mail bob@example.com, {"password":"x"}' },
      { type: "text", text: '{"password":"hunter2","user":"bob"}' },
    ],
    structuredContent: { password: "hunter2", list: [{ password: "y", note: "bob@example.com" }] },
    _meta: { note: "bob@example.com" },
  };

  it("redact a field wherever it stands, structured or as JSON in a text", () => {
    const shown = applyObligations([{ kind: "redact", field: "password" }], result);
    expect(shown.structuredContent).toEqual({
      password: "[redacted]",
      list: [{ password: "[redacted]", note: "bob@example.com" }],
    });
    expect(JSON.stringify(shown)).not.toContain("hunter2");
  });

  it("redact a pattern in content, structured content and _meta alike", () => {
    const shown = JSON.stringify(applyObligations([{ kind: "redact", name: "email" }], result));
    expect(shown).not.toContain("bob@example.com");
    expect(shown.match(/\[redacted\]/g)).toHaveLength(3);
    expect(applyToText([{ kind: "redact", pattern: "/bo+b/i" }], "BOOB and bob")).toBe("[redacted] and [redacted]");
  });

  it("redact numbers, booleans and keys by their JSON text, and leave JSON in a text JSON", () => {
    const card = { card: 4111111111111111, ok: true, list: [4222222222222222, 7], "4333333333333333": "key" };
    const structured = { card: "[redacted]", ok: true, list: ["[redacted]", 7], "[redacted]": "key" };
    const shown = applyObligations([{ kind: "redact", pattern: "/\\d{16}/" }], {
      content: [{ type: "text", text: JSON.stringify(card, null, 2) }],
      structuredContent: card,
    });
    expect(shown.structuredContent).toEqual(structured);
    expect(JSON.parse((shown.content as { text: string }[])[0]?.text ?? "")).toEqual(structured);
    // Digits that a parser would round are matched as they were written.
    const rounded = { content: [{ type: "text", text: '{"n":4111111111111111222222}' }] };
    expect(JSON.stringify(applyObligations([{ kind: "redact", pattern: "/\\d{22}/" }], rounded))).not.toContain("4111");
  });

  it("redact a value that matches only beside its name, in a text and in structured content alike", () => {
    const login = { password: "hunter2hunter2", user: "bob" };
    const shown = applyObligations([{ kind: "redact", name: "secret" }], {
      content: [{ type: "text", text: JSON.stringify(login) }],
      structuredContent: login,
    });
    expect(shown).toEqual({
      content: [{ type: "text", text: '{"password":"[redacted]","user":"bob"}' }],
      structuredContent: { password: "[redacted]", user: "bob" },
    });
  });

  it("obligations leave the protocol's own words alone, however broad a pattern is", () => {
    const broad = { content: [{ type: "text", text: "true text" }], isError: true };
    expect(applyObligations([{ kind: "redact", pattern: "/true|text/" }], broad)).toMatchObject({
      isError: true,
      content: [{ type: "text" }],
    });
  });

  it("cap an answer, say that it was cut, and keep structured content whole or not at all", () => {
    const big = { content: [{ type: "text", text: "é".repeat(1_000) }], structuredContent: { big: "x".repeat(1_000) } };
    const shown = applyObligations([{ kind: "cap", maxBytes: 300 }], big);
    expect(shown.structuredContent).toBeUndefined();
    expect(JSON.stringify(shown)).toContain("cut to 300 bytes by policy");
    expect(Buffer.byteLength((shown.content as { text: string }[])[0]?.text ?? "")).toBeLessThanOrEqual(300);
    expect(applyObligations([{ kind: "cap", maxBytes: 1_000_000 }], big)).toBe(big);
  });

  it("never cut inside a character", () => {
    for (let bytes = 0; bytes < 12; bytes++)
      expect(cutText("aé€😀", bytes)).toBe(
        ["", "a", "a", "aé", "aé", "aé", "aé€", "aé€", "aé€", "aé€"][bytes] ?? "aé€😀",
      );
  });

  it("obligations withhold the answer when a redaction is unknown", () => {
    expect(() => applyObligations([{ kind: "redact", name: "not-defined" }], result)).toThrow("unknown redaction");
  });

  it("obligations hold for what a tool asks the client in the middle of a call", async () => {
    const policy = '@redact("name:email") permit (principal, action, resource);';
    const server = createServer("asks", { policy });
    const none = { type: "object", properties: {} } as const;
    server.tool(
      "ask",
      "asks",
      none,
      async (_args, context) => {
        await context.elicit("q", { message: "is bob@example.com right?", requestedSchema: none });
        return "asked";
      },
      { noGuardrailRequired: true },
    );
    const asked: string[] = [];
    const { url } = await server.listen({ transport: "http", port: 0 });
    const client = await connect(url, {
      revision: "2025-11-25",
      handlers: {
        elicitation: (params) => {
          asked.push(String(params.message));
          return { action: "decline" };
        },
      },
    });
    await client.callTool("ask", {});
    expect(asked).toEqual(["is [redacted] right?"]);
    await client.close();
    await server.close();
  });

  it("obligations hold for a whole call: results, errors, progress and logs", async () => {
    const policy = '@redact("name:email field:token") permit (principal, action, resource);';
    const server = createServer("leaky", { policy });
    const open = { noGuardrailRequired: true };
    const none = { type: "object", properties: {} } as const;
    server
      .tool(
        "tell",
        "tells",
        none,
        async (_args, context) => {
          context.progress(1, 2, "progress of bob@example.com");
          context.log("error", { who: "bob@example.com" });
          await context.write("part bob@example.com ");
          return { content: [{ type: "text", text: "rest bob@example.com" }], structuredContent: { token: "t0p" } };
        },
        open,
      )
      .tool(
        "fail",
        "fails",
        none,
        () => {
          throw new Error("no such user bob@example.com");
        },
        open,
      );
    const { connect } = await import("../mcp/client/index.js");
    const heard: unknown[] = [];
    const client = await connect(await listenMemory(server.handler), {
      revision: "2025-11-25",
      onNotification: (message) => heard.push(message),
    });
    const told = await client.callTool("tell", {}, { onProgress: (progress) => heard.push(progress) });
    const failed = await client.callTool("fail", {}).catch((error: Error) => error.message);
    const everything = JSON.stringify([told, failed, heard]);
    expect(everything).not.toContain("bob@example.com");
    expect(everything).not.toContain("t0p");
    expect(heard.length).toBeGreaterThan(0);
    expect(told.content).toEqual([
      { type: "text", text: "part [redacted] " },
      { type: "text", text: "rest [redacted]" },
    ]);
    await client.close();
    await server.close();
  });

  it("obligations take numbers out of a whole call, and withhold structured content that no longer fits its schema", async () => {
    const policy = '@redact("/\\\\d{16}/") permit (principal, action, resource);';
    const server = createServer("cards", { policy });
    const none = { type: "object", properties: {} } as const;
    const card = 4111111111111111;
    const open = { noGuardrailRequired: true };
    server
      .tool("free", "no schema", none, () => ({ structuredContent: { card } }), open)
      .tool("strict", "a number by its schema", none, () => ({ structuredContent: { card } }), {
        ...open,
        output: { type: "object", properties: { card: { type: "number" } }, required: ["card"] } as const,
      })
      .tool(
        "log",
        "logs",
        none,
        (_args, context) => {
          context.log("error", { i: 0, card });
          context.progress(card);
          return "logged";
        },
        open,
      );
    const heard: unknown[] = [];
    const client = await connect(await listenMemory(server.handler), {
      logLevel: "debug",
      onLog: ({ data }) => heard.push(data),
    });
    const free = await client.callTool("free", {});
    expect(free.structuredContent).toEqual({ card: "[redacted]" });
    const strict = await client.callTool("strict", {}).catch((error: unknown) => error);
    const logged = await client.callTool("log", {}, { onProgress: (progress) => heard.push(progress) });
    expect(JSON.stringify([free, strict, logged, heard])).not.toContain("411111");
    expect(strict).toMatchObject({ isError: true, content: [{ text: '{"card":"[redacted]"}' }, { type: "text" }] });
    expect(strict).not.toHaveProperty("structuredContent");
    expect(heard).toEqual([{ i: 0, card: "[redacted]" }]);
    await client.close();
    await server.close();
  });
});
