// The console as files: one page for every path below /console/, and its assets. They show nothing by themselves.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sendBytes } from "./exchange.js";

/** Beside the compiled gateway; for one that runs from its sources, in the directory of the build. */
const PLACES = ["../console/", "../../dist/console/"];

const TYPES: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
};

/** Nothing of another origin, nothing inline, no frame, no form that leaves the page. */
const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
  "x-frame-options": "DENY",
};

const ITEM = /^\/console\/(assets\/[\w.-]{1,128}|[\w-]{1,64}\.(?:svg|txt))$/;

export class ConsoleFiles {
  readonly #files = new Map<string, { readonly bytes: Buffer; readonly type: string }>();

  constructor() {
    const directory = PLACES.map((place) => fileURLToPath(new URL(place, import.meta.url))).find((place) =>
      existsSync(join(place, "index.html")),
    );
    if (directory === undefined) return;
    const names = [
      ...readdirSync(directory),
      ...readdirSync(join(directory, "assets")).map((name) => `assets/${name}`),
    ];
    for (const name of names) {
      const type = TYPES[name.split(".").at(-1) ?? ""];
      if (type !== undefined) this.#files.set(name, { bytes: readFileSync(join(directory, name)), type });
    }
  }

  get isThere(): boolean {
    return this.#files.has("index.html");
  }

  /** Sends the file at this path, or the page; false where the path is not the console's. */
  send(path: string, response: ServerResponse): boolean {
    if (!this.isThere || !(path === "/console" || path.startsWith("/console/"))) return false;
    const [, name = "index.html"] = ITEM.exec(path) ?? [];
    const file = this.#files.get(name);
    if (!file) return false;
    const isFingerprinted = name.startsWith("assets/");
    const caching: Record<string, string> = isFingerprinted
      ? { "cache-control": "private, max-age=31536000, immutable" }
      : {};
    sendBytes(response, 200, file.type, file.bytes, { ...HEADERS, ...caching });
    return true;
  }
}
