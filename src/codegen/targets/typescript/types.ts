// Types and declarations as TypeScript writes them.

import { literal } from "../../text.js";
import type { Declaration, Type } from "../../types/type.js";

const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

export function typeText(type: Type): string {
  switch (type.kind) {
    case "any":
    case "opaque":
      return "unknown";
    case "never":
    case "null":
    case "boolean":
    case "number":
    case "string":
      return type.kind;
    case "integer":
      return "number";
    case "list":
      return `${inList(type.items)}[]`;
    case "tuple": {
      const items = type.items.map((item, i) => (i < type.min ? typeText(item) : `${inList(item)}?`));
      const rest = type.rest.kind === "never" ? [] : [`...${inList(type.rest)}[]`];
      return `[${[...items, ...rest].join(", ")}]`;
    }
    case "map":
      return `{ [name: string]: ${typeText(type.values)} }`;
    case "nullable":
      return `${typeText(type.of)} | null`;
    case "named":
      return type.name;
  }
}

function inList(type: Type): string {
  return type.kind === "nullable" ? `(${typeText(type)})` : typeText(type);
}

export function declarationText(declaration: Declaration): string {
  const docs = comment(declaration.docs);
  const { name } = declaration;
  switch (declaration.kind) {
    case "object": {
      const lines = declaration.fields.map(
        (field) =>
          `${comment(field.docs, "  ")}  ${propertyName(field.name)}${field.required ? "" : "?"}: ${typeText(field.type)};\n`,
      );
      const { extra } = declaration;
      // An index signature has to cover the named fields too. Where anything may follow, none is written: it would hide
      // every misspelt name from the compiler.
      if (extra !== undefined && extra.kind !== "any" && extra.kind !== "opaque") {
        const all = [extra, ...declaration.fields.map((field) => field.type)].map(typeText);
        if (declaration.fields.some((field) => !field.required)) all.push("undefined");
        lines.push(`  [name: string]: ${[...new Set(all)].join(" | ")};\n`);
      }
      return `${docs}export interface ${name} {\n${lines.join("")}}\n`;
    }
    case "enum":
      return `${docs}export type ${name} = ${declaration.values.map(literal).join(" | ")};\n`;
    case "union":
      return `${docs}export type ${name} = ${declaration.variants.map((variant) => inList(variant.type)).join(" | ")};\n`;
    case "alias":
      return `${docs}export type ${name} = ${typeText(declaration.type)};\n`;
  }
}

export function propertyName(name: string): string {
  return IDENTIFIER.test(name) ? name : literal(name);
}

export function comment(lines: readonly string[], indent = ""): string {
  if (lines.length === 0) return "";
  const safe = lines.map((line) => line.replaceAll("*/", "*\\/"));
  if (safe.length === 1) return `${indent}/** ${safe[0]} */\n`;
  return `${indent}/**\n${safe.map((line) => `${indent} * ${line}`.trimEnd()).join("\n")}\n${indent} */\n`;
}
