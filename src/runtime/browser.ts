// Opens a page in the operator's browser.

import { spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import { type AdminPlace, askPlace } from "./admin-client.js";
import { environment } from "./environment.js";
import { outFor, shared } from "./options.js";

/** Opens a page of the console. The code of its link stands in the fragment, which no server and no log gets. */
export async function openSignedIn(
  command: Command,
  place: AdminPlace,
  path: string,
  withBrowser = true,
): Promise<void> {
  const link = (await askPlace(place, "/v1/sign-in-links", {})) as { code: string; expires_at: string };
  const url = `${new URL(path, place.url).href}#${link.code}`;
  const opened = withBrowser && (await openInBrowser(redirectTo(url, shared(command).dir)));
  const how = opened ? "opened in the browser; if it shows nothing, open this link" : "open this link in a browser";
  const facts = { url, opened, expires_at: link.expires_at };
  outFor(command).data(facts, () => `${how} within a minute (it works once):\n${url}`);
}

/** A file that only its owner can read: the arguments of a process, and with them a link, are visible to every user. */
function redirectTo(url: string, dir: string): string {
  const directory = join(resolve(dir), "admin");
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const file = join(directory, "sign-in.html");
  rmSync(file, { force: true });
  writeFileSync(file, `<!doctype html><meta http-equiv="refresh" content="0;url=${url}"><title>Portcullis</title>\n`, {
    mode: 0o600,
    flag: "wx",
  });
  return pathToFileURL(file).href;
}

/** The program that opens an address, or undefined where no browser can be expected. */
function opener(): readonly string[] | undefined {
  const { BROWSER, DISPLAY, WAYLAND_DISPLAY } = environment();
  if (BROWSER) return [BROWSER];
  if (process.platform === "darwin") return ["open"];
  if (process.platform === "win32") return ["rundll32", "url.dll,FileProtocolHandler"];
  return DISPLAY || WAYLAND_DISPLAY ? ["xdg-open"] : undefined;
}

/** True when the program that opens browsers was started. */
function openInBrowser(url: string): Promise<boolean> {
  const [program, ...args] = opener() ?? [];
  if (program === undefined) return Promise.resolve(false);
  return new Promise((resolve) => {
    const child = spawn(program, [...args, url], { stdio: "ignore", detached: true });
    child.once("error", () => resolve(false));
    child.once("spawn", () => {
      child.unref();
      resolve(true);
    });
  });
}
