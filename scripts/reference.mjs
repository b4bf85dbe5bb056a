// Writes the reference pages that follow from schemas: `npm run format` brings them up to date, a test compares them.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./steps.mjs";

const PAGES = [
  {
    page: "docs/reference/policy-yaml.md",
    schema: "policy.schema.json",
    title: "policy.yaml",
    goal: "After this page you know every field of the policy of `portcullis host`, its type, its default and its limits.",
    more: "`portcullis policy schema` prints the same as JSON Schema for editors. The guide is [host](../guides/host.md).",
  },
];

/** One row a field, with the path of the field as operators write it: `commands[].args.allow`. */
function rowsOf(schema, path = "", required = false) {
  const rows = path === "" ? [] : [{ path, schema, required }];
  const needed = new Set(schema.required ?? []);
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    rows.push(...rowsOf(field, path === "" ? name : `${path}.${name}`, needed.has(name)));
  }
  if (isSchema(schema.additionalProperties)) rows.push(...rowsOf(schema.additionalProperties, `${path}.*`));
  if (isSchema(schema.items) && (schema.items.properties || schema.items.items)) {
    rows.push(...rowsOf(schema.items, `${path}[]`).slice(1));
  }
  return rows;
}

function isSchema(value) {
  return typeof value === "object" && value !== null;
}

function typeOf(schema) {
  if (schema.enum) return schema.enum.map((value) => `\`${JSON.stringify(value)}\``).join(", ");
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) return [...new Set(alternatives.map(typeOf))].join(" or ");
  if (schema.type === "array")
    return `list of ${schema.items?.enum ? typeOf(schema.items) : (schema.items?.type ?? "value")}`;
  return schema.type ?? "any";
}

const LIMITS = {
  minimum: (value) => `≥ ${value}`,
  maximum: (value) => `≤ ${value}`,
  maxLength: (value) => `≤ ${value} characters`,
  maxItems: (value) => `≤ ${value} items`,
  maxProperties: (value) => `≤ ${value} entries`,
};

function limitsOf(schema) {
  const holders = [schema, ...(schema.anyOf ?? schema.oneOf ?? [])];
  return Object.entries(LIMITS).flatMap(([keyword, words]) =>
    holders.flatMap((holder) => (holder[keyword] === undefined ? [] : [words(holder[keyword])])),
  );
}

const cell = (text) => String(text).replaceAll("|", "\\|").replaceAll("\n", " ");

function rowText({ path, schema, required }) {
  const fallback =
    schema.default === undefined ? (required ? "required" : "") : `\`${JSON.stringify(schema.default)}\``;
  const limits = limitsOf(schema).join(", ");
  return `| \`${path}\` | ${[typeOf(schema), fallback, limits, schema.description ?? ""].map(cell).join(" | ")} |`;
}

export function referencePages() {
  return PAGES.map(({ page, schema, title, goal, more }) => {
    const rows = rowsOf(JSON.parse(readFileSync(join(root, schema), "utf8"))).map(rowText);
    const head = `# ${title}\n\n${goal}\n\n${more}\n\nGenerated from \`${schema}\` by \`scripts/reference.mjs\`.\n\n`;
    const table = ["| field | type | default | limits | meaning |", "|---|---|---|---|---|", ...rows];
    return { page, text: `${head}${table.join("\n")}\n` };
  });
}

if (process.argv[1] === import.meta.filename) {
  for (const { page, text } of referencePages()) writeFileSync(join(root, page), text);
}
