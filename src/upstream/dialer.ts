// The one way out to the network: see `Dialer`.

import type { Socket } from "node:net";

export interface Dialer {
  /** Resolves the name, checks every address, and connects to one that passed. Rejects with a Fault. */
  connect(to: DialTarget): Promise<Socket>;
}

export interface DialTarget {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly timeoutMs?: number;
}
