// What a transport can fail with. Each kind is also one row of the one error table, so that callers who know only
// faults need not know transports.

import { type ErrorType, Fault } from "../index.js";

export type TransportErrorKind =
  | "too-large"
  | "not-utf8"
  | "too-many"
  | "closed"
  | "slow-peer"
  | "timeout"
  | "unreachable"
  | "protocol";

const FAULT_TYPE: Record<TransportErrorKind, ErrorType> = {
  "too-large": "TooLarge",
  "not-utf8": "ParseError",
  "too-many": "TooMany",
  closed: "IoError",
  "slow-peer": "IoError",
  timeout: "IoError",
  unreachable: "IoError",
  protocol: "IoError",
};

export class TransportError extends Fault {
  readonly kind: TransportErrorKind;
  constructor(kind: TransportErrorKind, reason: string, cause?: unknown) {
    super(FAULT_TYPE[kind], reason, cause === undefined ? {} : { cause });
    this.name = "TransportError";
    this.kind = kind;
  }
}

export function tooLargeToSend(bytes: number, maxBytes: number): TransportError {
  return new TransportError(
    "too-large",
    `a text of ${bytes} bytes is over the cap of ${maxBytes} bytes and was not sent; raise maxMessageBytes or send less`,
  );
}
