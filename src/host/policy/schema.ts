// policy.schema.json for editors: printed from the description that the loader checks against.

import type { JsonObject } from "../../mcp/index.js";
import { policyDocument } from "./document.js";

export function policySchema(): JsonObject {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Portcullis host policy",
    ...policyDocument.schema,
  };
}

export function policySchemaText(): string {
  return `${JSON.stringify(policySchema(), null, 2)}\n`;
}
