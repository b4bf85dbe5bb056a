// Folders and commands of an application, tried out here. Another machine may have what this one lacks, so it is said and
// not refused.

import { CoreSettingsError, coreCheck } from "../../tools/index.js";
import type { ApplicationDocument } from "../../storage/index.js";

export function unusableHere(app: string, { filesystem, linux }: ApplicationDocument): string | undefined {
  try {
    coreCheck({ id: app, filesystem, linux }, {});
    return undefined;
  } catch (error) {
    if (!(error instanceof CoreSettingsError)) throw error;
    return `on this machine core.filesystem and core.linux cannot be used: ${error.message}`;
  }
}
