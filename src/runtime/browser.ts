// Opens a page in the operator's browser.

import { spawn } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { environment } from "./environment.js";

/** A file that only its owner can read: the arguments of a process, and with them a link, are visible to every user. */
export function redirectTo(url: string, dir: string): string {
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
export function openInBrowser(url: string): Promise<boolean> {
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
