// The application of callers of the demonstration and of a module's server. It has nothing but keys, so it is created
// with the first of them.

import type { Application, Storage } from "../../storage/index.js";

export const LOCAL_APP = "local";
const DOCUMENT = { description: "keys of `portcullis serve` without applications" };

/** Creates it unless it exists. */
export async function ensureLocalApplication(storage: Storage, by: string): Promise<void> {
  await storage.applications.put(LOCAL_APP, DOCUMENT, by, 0);
}

/** True until anything but keys is configured for it. */
export function isForKeysOnly({ id, document }: Application): boolean {
  return id === LOCAL_APP && JSON.stringify(document) === JSON.stringify(DOCUMENT);
}
