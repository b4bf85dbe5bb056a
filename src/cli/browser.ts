// Opens a page in the user's browser.

import { spawn } from "node:child_process";
import { environment } from "../runtime/environment.js";

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
