// The lines that the main process writes to a supervisor.

import type { Confinement, Protections, Without } from "./confinement.js";

export interface StartMessage {
  readonly type: "start";
  readonly confinement: Confinement;
  readonly without: Without;
  /** Where a scratch directory can be made when no view provides one. */
  readonly tmpdir: string;
  /** The supervisor was started inside a user namespace of its own. */
  readonly inUserNamespace: boolean;
  /** The supervisor was started as the first process of a PID namespace of its own. */
  readonly hasOwnProcesses: boolean;
  /** bubblewrap confines each command by itself; the supervisor only supervises. */
  readonly byBubblewrap: boolean;
}

export interface RunMessage {
  readonly type: "run";
  readonly id: number;
  /** Launchers, then the program and its arguments. */
  readonly argv: readonly string[];
  readonly executable: string;
  /** The program must be visible from where the supervisor stands. */
  readonly checkVisible: boolean;
  /** What it cannot start without, beside itself. */
  readonly needs: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Undefined: no directory of the caller's. INVARIANT: `rest` has no links and no `..`. */
  readonly cwd: { readonly root: string; readonly rest: string } | undefined;
  readonly stdin: string;
  /** For bubblewrap: the filter that it finds at its descriptor 3. Base64; empty for none. */
  readonly filter: string;
  readonly maxOutputBytes: number;
}

/** The supervisor's first frame. */
export interface ReadyMessage {
  readonly protections: Protections;
  /** Where commands may put temporary files: their HOME and TMPDIR. */
  readonly scratch: string;
}

export type FromMain =
  | StartMessage
  | RunMessage
  | { readonly type: "kill"; readonly id: number }
  | { readonly type: "clean"; readonly id: number };

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
