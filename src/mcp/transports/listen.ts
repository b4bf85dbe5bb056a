// Where a server listens, and the housekeeping every listener shares.

import { chmod, lstat, unlink } from "node:fs/promises";
import { type AddressInfo, connect, type Server } from "node:net";
import { UNIX_PEER } from "../index.js";
import type { ServerChannel } from "./channel.js";

export interface ListenAt {
  /** 127.0.0.1 unless said. */
  host?: string;
  /** 0, any free port, unless said. */
  port?: number;
  /** A Unix socket instead of host and port; only its owner may connect. */
  socketPath?: string;
}

export const DEFAULT_HOST = "127.0.0.1";

/** The remote address of a socket. A TCP socket that is already closed has none and must not pass for a Unix socket. */
export function peerAddress(socket: { readonly remoteAddress?: string | undefined }, at: ListenAt): string {
  return socket.remoteAddress ?? (at.socketPath === undefined ? "unknown" : UNIX_PEER);
}

export async function listenAt(server: Server, at: ListenAt): Promise<void> {
  if (at.socketPath === undefined) {
    await listening(server, { host: at.host ?? DEFAULT_HOST, port: at.port ?? 0, backlog: 1024 });
    return;
  }
  if (await isLeftBehind(at.socketPath)) await unlink(at.socketPath);
  await listening(server, { path: at.socketPath });
  await chmod(at.socketPath, 0o600);
}

function listening(server: Server, options: Parameters<Server["listen"]>[0]): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options as { path: string }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** A socket file that nobody answers on is what a process that was killed leaves behind. */
async function isLeftBehind(path: string): Promise<boolean> {
  const isSocket = await lstat(path).then(
    (found) => found.isSocket(),
    () => false,
  );
  if (!isSocket) return false;
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(false);
    });
    probe.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}

/** `127.0.0.1:7420`, `[::1]:7420`, or the path of a Unix socket. */
export function authorityOf(server: Server): string {
  const address = server.address();
  if (address === null) return "";
  if (typeof address === "string") return address;
  return hostAndPort(address);
}

function hostAndPort({ address, port }: AddressInfo): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** One timer for all connections of a listener; often enough for the shortest of the waits it serves. */
export function everyMs(shortestMs: number, sweep: (now: number) => void): NodeJS.Timeout {
  const periodMs = Math.min(5_000, Math.max(10, Math.floor(shortestMs / 4)));
  return setInterval(() => sweep(performance.now()), periodMs).unref();
}

/** Lets every channel finish what is under way, at most `graceMs`, then closes the rest. */
export async function closeChannels(channels: Iterable<ServerChannel>, graceMs: number): Promise<void> {
  const open = [...channels].filter((channel) => !channel.closed);
  if (open.length === 0) return;
  const allClosed = Promise.all(open.map((channel) => new Promise<void>((resolve) => channel.onClose(resolve))));
  const timer = setTimeout(() => {
    for (const channel of open) channel.close("shutting down");
  }, graceMs);
  for (const channel of open) channel.closeWhenQuiet();
  await allClosed;
  clearTimeout(timer);
}

export const DEFAULT_GRACE_MS = 5_000;
