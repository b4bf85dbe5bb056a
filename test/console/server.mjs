// A stdio server of the official SDK for the console's world: its first argument names its tools, a second one changes the
// description of the first tool, as an update of a server does.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const [tools, changed = ""] = process.argv.slice(2);
const server = new McpServer({ name: "world", version: "1.0.0" });
for (const [i, name] of tools.split(",").entries()) {
  server.registerTool(
    name,
    {
      description: `${name}: works on one item. ${i === 0 ? changed : ""}`.trim(),
      inputSchema: { item: z.string(), note: z.string().optional() },
      annotations: { readOnlyHint: name === "read", destructiveHint: name === "delete" },
    },
    ({ item }) => {
      process.stderr.write(`ran ${name} ${item}\n`);
      return { content: [{ type: "text", text: `${name} ${item}: done` }] };
    },
  );
}
process.stderr.write(`world server with ${tools}\n`);
await server.connect(new StdioServerTransport());
