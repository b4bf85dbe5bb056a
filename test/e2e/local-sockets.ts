// Local sockets (Unix domain) that a sandboxed server must not reach.

import { createServer } from "node:net";
import { join } from "node:path";

/** One in a directory and one with an abstract name, which `@` stands for. `clean` closes them. */
export async function openSockets(dir: string, clean: (() => unknown)[]): Promise<string[]> {
  const names = [join(dir, "any.sock"), `@portcullis-test-${process.pid}-${clean.length}`];
  for (const name of names) {
    const listening = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => listening.listen(name.replace(/^@/, "\0"), resolve));
    clean.push(() => listening.close());
  }
  return names;
}
