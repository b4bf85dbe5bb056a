// What both ends of a WebSocket have in common.

import type { WebSocket } from "ws";
import type { Port } from "./outbox.js";
import type { Malformed } from "./types.js";

export const SUBPROTOCOL = "mcp";

export class WebSocketPort implements Port {
  readonly #ws: WebSocket;

  constructor(ws: WebSocket) {
    this.#ws = ws;
  }

  get waiting(): number {
    return this.#ws.bufferedAmount;
  }
  write(text: string | Buffer, taken: () => void): void {
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.send(text, { binary: false }, taken);
  }
  pause(): void {
    this.#ws.pause();
  }
  resume(): void {
    this.#ws.resume();
  }
  end(reason?: string): void {
    // A close frame holds at most 123 bytes of reason.
    this.#ws.close(1000, reason?.slice(0, 100));
  }
  destroy(): void {
    this.#ws.terminate();
  }
}

/** What a receive error of `ws` means in our words; undefined for those that are about the connection alone. */
export function malformedBy(error: Error & { code?: string }, maxBytes: number): Malformed | undefined {
  switch (error.code) {
    case "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH":
    case "WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH":
    case "WS_ERR_TOO_MANY_BUFFERED_PARTS":
      return { kind: "too-large", message: `a message is over the cap of ${maxBytes} bytes` };
    case "WS_ERR_INVALID_UTF8":
      return { kind: "not-utf8", message: "a message is not valid UTF-8" };
    default:
      return undefined;
  }
}
