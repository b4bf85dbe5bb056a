// What main process and supervisor say to each other: JSON lines one way, framed bytes the other (type, length, payload).

export const FRAME = { ready: 1, started: 2, stdout: 3, stderr: 4, exit: 5, failed: 6, cleaned: 7 } as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];

const HEADER_BYTES = 5;
/** One pipe read is 64 KiB at most; JSON payloads are far smaller. Anything bigger is not from our supervisor. */
const MAX_FRAME_BYTES = 1 << 20;

export function frame(type: FrameType, payload: Uint8Array | string): Buffer {
  const body = typeof payload === "string" ? Buffer.from(payload) : payload;
  const out = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  out.writeUInt8(type, 0);
  out.writeUInt32LE(body.length, 1);
  out.set(body, HEADER_BYTES);
  return out;
}

export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  /** Throws when the bytes cannot be frames. */
  push(chunk: Buffer, onFrame: (type: number, payload: Buffer) => void): void {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (this.#pending.length >= HEADER_BYTES) {
      const length = this.#pending.readUInt32LE(1);
      if (length > MAX_FRAME_BYTES) throw new Error(`frame of ${length} bytes`);
      if (this.#pending.length < HEADER_BYTES + length) return;
      const type = this.#pending.readUInt8(0);
      const payload = this.#pending.subarray(HEADER_BYTES, HEADER_BYTES + length);
      this.#pending = this.#pending.subarray(HEADER_BYTES + length);
      onFrame(type, payload);
    }
  }
}
