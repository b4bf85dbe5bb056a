// What other users of the machine can list while a gateway runs.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { root } from "./serving.js";

const clean: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of clean.splice(0).reverse()) await end();
});

it.runIf(process.platform === "linux")(
  "does not show the password of the store on the command line [G8]",
  {
    timeout: 60_000,
  },
  async () => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-command-line-"));
    clean.push(() => rmSync(dir, { recursive: true, force: true }));
    // A store that accepts connections and never answers: the gateway is up, and waits.
    const sockets: Socket[] = [];
    const store = createServer((socket) => sockets.push(socket));
    await new Promise<void>((resolve) => store.listen(0, "127.0.0.1", resolve));
    clean.push(() => {
      for (const socket of sockets) socket.destroy();
      store.close();
    });
    const url = `postgres://gateway:hunter2@127.0.0.1:${(store.address() as AddressInfo).port}/x`;
    const command = [join(root, "dist/cli/main.js"), "--dir", dir, "serve", "--port", "0", "--admin-port", "0"];
    const child = spawn(process.execPath, [...command, "--storage", url], { stdio: "ignore" });
    const exited = new Promise((resolve) => child.once("exit", resolve));
    clean.push(async () => {
      child.kill("SIGKILL");
      await exited;
    });
    const listed = (): string => readFileSync(`/proc/${child.pid}/cmdline`, "utf8");
    await expect.poll(() => sockets.length, { timeout: 30_000 }).toBeGreaterThan(0);
    expect(listed()).not.toContain("hunter2");
    expect(listed()).toContain("portcullis");
  },
);
