// A million hostile messages on every transport, a message of a gigabyte, ten thousand idle connections.

import { codecContract } from "./codec.contract.js";

function size(name: string, whole: number): number {
  const given = process.env[name];
  return given === undefined ? whole : Number(given);
}

const seed = size("SEED", Date.now() % 2 ** 31);
console.info(`codec: SEED=${seed} repeats this run`);

codecContract({
  cases: size("CASES", 1_000_000),
  lineBytes: size("LINE_BYTES", 1024 * 1024 * 1024),
  idleConnections: size("CONNECTIONS", 10_000),
  halfOpen: size("HALF_OPEN", 1_000),
  seed,
});
