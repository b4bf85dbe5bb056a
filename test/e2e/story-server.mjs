// A stdio server of the official SDK. What reached it is written to the file that its argument names.
import { appendFileSync } from "node:fs";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const [log] = process.argv.slice(2);
const server = new McpServer({ name: "story", version: "1.0.0" });
for (const name of ["look", "change", "destroy"]) {
  const annotations = { readOnlyHint: name === "look", destructiveHint: name === "destroy" };
  server.registerTool(
    name,
    { description: name, inputSchema: { at: z.string().optional() }, annotations },
    ({ at }) => {
      appendFileSync(log, `${name} ${at}\n`);
      return { content: [{ type: "text", text: `${name} ran at ${at}` }] };
    },
  );
}
await server.connect(new StdioServerTransport());
