// Opens the system's Chromium, or returns why there is none.

import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function openBrowser(): Promise<Browser | string> {
  const executablePath = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path));
  if (executablePath === undefined)
    return "skipped: Chromium is not installed (Debian: apt-get install chromium, or set CHROMIUM to its program)";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"], timeout: 60_000 });
}
