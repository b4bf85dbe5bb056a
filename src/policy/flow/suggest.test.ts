import { expect, it } from "vitest";
import { suggestFlow } from "./suggest.js";

const schema = (...names: string[]) => ({
  type: "object",
  properties: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
});

it.each([
  [
    "mail.send_email",
    schema("to", "body"),
    false,
    {
      carries: ["untrusted", "private(email)"],
      does: ["sends-outside"],
      destination: ["to"],
      payload: ["body"],
    },
  ],
  ["mail.search_emails", schema("query"), false, { carries: ["untrusted", "private(email)"], does: [] }],
  ["bank.get_balance", schema(), true, { carries: ["trusted", "private(balance)"], does: [] }],
  [
    "fs.deleteFile",
    schema("file_id"),
    false,
    {
      carries: ["untrusted", "private(file)"],
      does: ["changes-state"],
      destination: ["file_id"],
      payload: [],
    },
  ],
  [
    "web.fetch",
    schema("url"),
    true,
    {
      carries: ["untrusted"],
      does: ["sends-outside"],
      destination: ["url"],
      payload: [],
    },
  ],
  ["clock.now", schema(), false, { carries: ["trusted"], does: [] }],
  ["x.frobnicate", schema("a"), false, { carries: ["untrusted"], does: ["sends-outside", "changes-state"] }],
])("suggests a label for %s", (name, inputSchema, readOnly, label) => {
  expect(suggestFlow([{ name, server: "s", inputSchema, readOnly }]).tools).toEqual({ [name]: label });
});
