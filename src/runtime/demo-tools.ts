// The demonstration tools: small, harmless, and enough to see a permit, a deny and a challenge.

import { ServerBuilder } from "../mcp/server/index.js";

const MAX_NOTES = 1_000;

export interface DemoServer {
  readonly server: ServerBuilder;
  /** What the tools really did, for whoever wants to check that a denied call did nothing. */
  readonly notes: ReadonlyMap<string, string>;
}

export function demoServer(version: string): DemoServer {
  const notes = new Map<string, string>();
  const server = new ServerBuilder({
    name: "portcullis-demo",
    version,
    title: "Portcullis demonstration",
    instructions: "Notes that live in memory, a clock and a sum. Deleting a note needs a person's approval.",
  });
  const open = { noGuardrailRequired: true, tags: ["demo"] };
  server
    .tool("clock.now", "The time, in UTC.", { type: "object", properties: {} }, () => new Date().toISOString(), {
      ...open,
      annotations: { readOnlyHint: true },
    })
    .tool(
      "math.add",
      "Adds two integers.",
      {
        type: "object",
        properties: { a: { type: "integer" }, b: { type: "integer" } },
        required: ["a", "b"],
        additionalProperties: false,
      },
      ({ a, b }) => ({ structuredContent: { sum: a + b } }),
      { ...open, output: { type: "object", properties: { sum: { type: "integer" } }, required: ["sum"] } },
    )
    .tool(
      "notes.write",
      "Writes a note. The policy allows titles that begin with demo/.",
      {
        type: "object",
        properties: {
          title: { type: "string", minLength: 1, maxLength: 80 },
          text: { type: "string", maxLength: 4_000 },
        },
        required: ["title", "text"],
        additionalProperties: false,
      },
      ({ title, text }) => {
        if (notes.size >= MAX_NOTES && !notes.has(title)) throw new Error(`there are ${MAX_NOTES} notes already`);
        notes.set(title, text);
        return `wrote ${title}`;
      },
      open,
    )
    .tool(
      "notes.list",
      "Lists the titles of all notes.",
      { type: "object", properties: {} },
      () => [...notes.keys()].join("\n") || "no notes yet",
      open,
    )
    .tool(
      "notes.delete",
      "Deletes a note. A person has to approve it.",
      { type: "object", properties: { title: { type: "string" } }, required: ["title"], additionalProperties: false },
      ({ title }) => (notes.delete(title) ? `deleted ${title}` : `there is no note ${title}`),
      { ...open, annotations: { destructiveHint: true } },
    )
    .tool(
      "shell.run",
      "Would run a shell command; the policy never lets it.",
      { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
      () => {
        throw new Error("this demonstration runs no shell, whatever the policy says");
      },
      open,
    )
    .resource("demo://welcome", "welcome", "Every call through this gateway is decided and written down first.", {
      mimeType: "text/plain",
      description: "What this is",
    })
    .prompt("summarize-notes", "Asks for a summary of the notes.", {}, () => "List the notes and summarize them.");
  return { server, notes };
}
