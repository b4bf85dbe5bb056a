// The limits of a serving process that an operator sets.

import { InvalidArgumentError } from "commander";
import type { GatewayLimits } from "../gateway/index.js";
import type { TransportLimits } from "../mcp/transports/index.js";

export interface ServeLimits {
  /** MiB that callers and servers may make the process keep. */
  readonly memoryBudget?: number;
  /** Connections of one remote address, of each listener. */
  readonly addressConnections?: number;
}

const MIB = 1024 * 1024;
/** With less, an agent's share does not hold one message of the largest size. */
const LEAST_MIB = 64;

export function megabytes(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= LEAST_MIB && value <= 1024 * MIB) return value;
  throw new InvalidArgumentError(`write a number of MiB, at least ${LEAST_MIB}`);
}

export function connectionCount(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 1_000_000) return value;
  throw new InvalidArgumentError("write a number from 1 to 1000000");
}

/** Two at least: one for what callers wait for while another reads changes. */
export function poolSize(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 2 && value <= 100) return value;
  throw new InvalidArgumentError("write a number from 2 to 100");
}

/** The address may hold a password: it is not repeated. */
export function listenAddress(text: string): string {
  if (text === "none" || /^postgres(ql)?:\/\//.test(text)) return text;
  throw new InvalidArgumentError("write an address that begins with postgres://, or none");
}

/** An application may use two fifths of the budget, an agent one fifth, as by default. */
export function retainedLimits({ memoryBudget }: ServeLimits): Partial<GatewayLimits> {
  if (memoryBudget === undefined) return {};
  const maxRetainedBytes = memoryBudget * MIB;
  return {
    maxRetainedBytes,
    maxAppRetainedBytes: Math.floor(maxRetainedBytes * 0.4),
    maxAgentRetainedBytes: Math.floor(maxRetainedBytes * 0.2),
  };
}

export function listenerLimits({ addressConnections }: ServeLimits): { limits?: Partial<TransportLimits> } {
  return addressConnections === undefined ? {} : { limits: { maxConnectionsPerAddress: addressConnections } };
}
