// Real pipes for a command's input and output. Node would give it sockets, which cannot be opened again by name, and so
// neither /dev/stdin nor /dev/stdout would work.

import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { loadKoffi } from "../../../lib/index.js";

const O_CLOEXEC = 0o2000000;

type MakePipe = () => [read: number, write: number];
let make: MakePipe | null | undefined;

function bindPipe(): MakePipe | null {
  const ffi = process.platform === "linux" ? loadKoffi() : undefined;
  if (ffi === undefined) return null;
  const pipe2 = ffi.load(null).func("pipe2", "int", ["void*", "int"]);
  return () => {
    const ends = Buffer.alloc(8);
    if (pipe2(ends, O_CLOEXEC) < 0) throw new Error(`pipe: errno ${ffi.errno()}`);
    return [ends.readInt32LE(0), ends.readInt32LE(4)];
  };
}

export interface Pipes {
  /** For the command. */
  readonly stdio: ["ignore" | number, number, number];
  readonly stdin: Socket | undefined;
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** Called when the command has its own. */
  closeTheirs(): void;
  /** Called when there is no command after all. */
  destroy(): void;
}

/** Undefined where there is no way to make one. */
export function makePipes(withInput: boolean): Pipes | undefined {
  if (make === undefined) make = bindPipe();
  if (make === null) return undefined;
  const input = withInput ? make() : undefined;
  const output = make();
  const errors = make();
  const theirs = [...(input === undefined ? [] : [input[0]]), output[1], errors[1]];
  const stdin = input === undefined ? undefined : new Socket({ fd: input[1], readable: false, writable: true });
  const [stdout, stderr] = [output[0], errors[0]].map((fd) => new Socket({ fd, readable: true, writable: false })) as [
    Socket,
    Socket,
  ];
  return {
    stdio: [input?.[0] ?? "ignore", output[1], errors[1]],
    stdin,
    stdout,
    stderr,
    closeTheirs: () => theirs.splice(0).forEach((fd) => closeSync(fd)),
    destroy() {
      theirs.splice(0).forEach((fd) => closeSync(fd));
      for (const own of [stdin, stdout, stderr]) own?.destroy();
    },
  };
}
