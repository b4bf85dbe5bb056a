// The page that `documentation_url` leads to: one section for each error, from the table and the text of docs/errors.md.

import { readFileSync } from "node:fs";
import { ERRORS } from "../mcp/index.js";

let page: string | undefined;

export const ERROR_PAGE_HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "cache-control": "public, max-age=3600",
};

export function errorPage(): string {
  page ??= build();
  return page;
}

function build(): string {
  const texts = documentedTexts();
  const sections = Object.values(ERRORS).map(({ code, message, http, retryable }) => {
    const text = texts.get(code) ?? `${message}. HTTP ${http}; retry can help: ${retryable ? "yes" : "no"}.`;
    const paragraphs = text.split(/\n{2,}/).map((paragraph) => `<p>${inline(paragraph)}</p>`);
    return `<h2 id="${code.toLowerCase()}">${code}</h2>\n${paragraphs.join("\n")}`;
  });
  const head = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Portcullis errors</title></head>';
  return `${head}<body>\n<h1>Errors</h1>\n${sections.join("\n")}\n</body></html>\n`;
}

/** By code; empty where the package was installed without its documentation. */
function documentedTexts(): Map<string, string> {
  let text: string;
  try {
    text = readFileSync(new URL("../../docs/errors.md", import.meta.url), "utf8");
  } catch {
    return new Map();
  }
  const sections = text.split(/^## /m).slice(1);
  return new Map(sections.map((section) => [section.split("\n", 1)[0] as string, bodyOf(section)]));
}

function bodyOf(section: string): string {
  return section.slice(section.indexOf("\n")).trim();
}

function inline(text: string): string {
  const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return escaped.replace(/`([^`]+)`/g, "<code>$1</code>");
}
