// Which policy.yaml a host serves, noted in its state directory: commands that explain, test and replay calls of the host
// read it, also while no host runs.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type HostFiles, hostFiles } from "./config/files.js";

const noteIn = (state: string): string => join(state, "served.json");

export function noteServedPolicy({ config, state }: HostFiles): void {
  const text = `${JSON.stringify({ config })}\n`;
  const note = noteIn(state);
  if (existsSync(note) && readFileSync(note, "utf8") === text) return;
  writeFileSync(note, text, { mode: 0o600 });
}

/** The files of the host that keeps its state here; the usual policy where none was served yet. */
export function servedFiles(state: string): HostFiles {
  try {
    const { config } = JSON.parse(readFileSync(noteIn(state), "utf8")) as { config?: unknown };
    if (typeof config === "string") return { config: resolve(config), state: resolve(state) };
  } catch {
    // No host has served from here yet.
  }
  return hostFiles({ state });
}
