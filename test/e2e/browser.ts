// Debian's Chromium: found, or installed where that is possible, or a sentence that says why there is none.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function openBrowser(): Promise<Browser | string> {
  const executablePath = process.env.CHROMIUM ?? found() ?? installed();
  if (executablePath === undefined)
    return "there is no Chromium (set CHROMIUM to its program), and none can be installed";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"], timeout: 60_000 });
}

function found(): string | undefined {
  return PLACES.find((path) => existsSync(path));
}

function installed(): string | undefined {
  if (process.getuid?.() !== 0) return undefined;
  spawnSync("apt-get", ["install", "-y", "--no-install-recommends", "chromium"], { timeout: 240_000 });
  return found();
}
