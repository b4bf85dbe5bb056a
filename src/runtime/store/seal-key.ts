// Replaces the seal key of a store.

import { existsSync } from "node:fs";
import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import {
  createSealer,
  loadSealKeys,
  newSealKey,
  type Storage,
  sealKeyFile,
  sealKeyId,
  writeSealKeys,
} from "../../storage/index.js";
import { outFor } from "../options.js";
import { operator, type StoreOptions, sealerFor, sealKeySource } from "./open.js";
import { resealAll } from "./sealer.js";

export interface SealOptions extends StoreOptions {
  add?: boolean;
  use?: string;
}

export async function rotateSealKey(storage: Storage, options: SealOptions, command: Command): Promise<void> {
  const source = sealKeySource(command, options);
  const file = sealKeyFile(source);
  if (file === undefined) {
    throw new CliError(
      "the seal key is not in a file",
      EXIT.usage,
      "put a new key before the old one where it is, restart the gateways, run `portcullis secret reseal`, then remove the old one",
    );
  }
  // Refuses a key that is not the one of this store.
  await sealerFor(storage, command, options);
  const keys = existsSync(file) ? loadSealKeys(source) : [];
  const out = outFor(command);
  if (options.add) {
    const added = newSealKey();
    writeSealKeys(file, [...keys, added]);
    const id = sealKeyId(added);
    out.data(
      { file, added: id },
      () => `added ${id}; copy ${file} to every machine, then: portcullis rotate seal-key --use ${id}`,
    );
    return;
  }
  const next = options.use === undefined ? newSealKey() : keys.find((key) => sealKeyId(key) === options.use);
  if (!next)
    throw new CliError(`${file} has no key ${options.use}`, EXIT.usage, "add one: portcullis rotate seal-key --add");
  const id = sealKeyId(next);
  const others = keys.filter((key) => sealKeyId(key) !== id);
  writeSealKeys(file, [next, ...others]);
  const resealed = await resealAll(storage, createSealer([next, ...others]));
  // A gateway may have sealed with the old key until it read the file again.
  const late = await resealAll(storage, createSealer([next, ...others]));
  writeSealKeys(file, [next]);
  await storage.feed.announce({ topic: "store", action: "rotate", name: `seal key ${id}`, by: operator() });
  out.data(
    { file, key: id, resealed: resealed.length + late.length },
    () => `the seal key is ${id}; sealed ${resealed.length + late.length} values again`,
  );
}
