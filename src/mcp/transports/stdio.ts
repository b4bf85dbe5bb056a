// stdio: one text a line. Serving on our own stdin and stdout, calling a server that we start ourselves.

import { userInfo } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ByteBudget } from "../index.js";
import { Child, type ChildOptions } from "./child-process.js";
import { type ClientLink, NOT_STARTED } from "./client.js";
import { TransportError } from "./error.js";
import { resolveLimits } from "./limits.js";
import { serveLines, StreamPort } from "./line-channel.js";
import { linkLines } from "./line-client.js";
import { closeChannels, DEFAULT_GRACE_MS, everyMs } from "./listen.js";
import type {
  ClientEvents,
  ClientTransport,
  TransportHandler,
  Listener,
  SendOptions,
  Sent,
  TransportLimits,
} from "./types.js";

export { defaultEnvironment } from "./child-process.js";

export interface StdioServerOptions {
  input?: Readable;
  output?: Writable;
  limits?: Partial<TransportLimits>;
  /** After stdin has ended, exchanges under way may take this long; 30 s unless said. */
  lingerMs?: number;
}

export interface StdioListener extends Listener {
  /** Resolves when the peer has gone, or after `close`. */
  readonly closed: Promise<void>;
}

export async function listenStdio(handler: TransportHandler, options: StdioServerOptions = {}): Promise<StdioListener> {
  const { input = process.stdin, output = process.stdout } = options;
  const limits = resolveLimits(options.limits, { idleMs: 0 });
  const port = output === process.stdout ? new StdoutPort(input) : new StreamPort(input, output);
  const channel = serveLines(input, output, {
    peer: { transport: "stdio", address: localUser() },
    handler,
    limits,
    budget: new ByteBudget(limits.maxPartialBytes),
    lingerMs: options.lingerMs ?? 30_000,
    port,
  });
  const timer = everyMs(limits.idleMs || 20_000, (now) => channel.sweep(now));
  const closed = new Promise<void>((resolve) => channel.onClose(resolve)).then(() => clearInterval(timer));
  return {
    url: "stdio:",
    closed,
    get connections() {
      return channel.closed ? 0 : 1;
    },
    async close(graceMs = DEFAULT_GRACE_MS) {
      await closeChannels([channel], graceMs);
      await closed;
    },
  };
}

function localUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A process in a container may run under an id that has no name.
    return `uid-${process.getuid?.() ?? "unknown"}`;
  }
}

/**
 * Our own stdout. While we serve on it, it carries JSON-RPC and nothing else: whatever other code prints there, a
 * forgotten `console.log` for one, goes to stderr instead.
 */
class StdoutPort extends StreamPort {
  readonly #input: Readable;

  constructor(input: Readable) {
    const write = process.stdout.write.bind(process.stdout);
    super(input, process.stdout, write);
    this.#input = input;
    process.stdout.write = process.stderr.write.bind(process.stderr);
  }

  /** stdout itself cannot be closed; letting go of stdin lets the process end. What others print stays on stderr. */
  override end(): void {
    this.#input.pause();
    // A file as stdin has no handle to let go of.
    if (this.#input === process.stdin) (process.stdin as { unref?: () => void }).unref?.();
  }
  override destroy(): void {
    this.#input.destroy();
  }
}

export interface StdioClientOptions extends ChildOptions {
  limits?: Partial<TransportLimits>;
}

export function stdioClient(options: StdioClientOptions): ClientTransport {
  return new StdioClient(options);
}

/** What a child wrote before it ended may still be in the pipe; but a grandchild may hold the pipe open for ever. */
const LAST_OUTPUT_MS = 500;

class StdioClient implements ClientTransport {
  readonly kind = "stdio";
  readonly #options: StdioClientOptions;
  #child: Child | undefined;
  #link: ClientLink | undefined;

  constructor(options: StdioClientOptions) {
    this.#options = options;
  }

  async start(events: ClientEvents): Promise<void> {
    const { command } = this.#options;
    const limits = resolveLimits(this.#options.limits);
    const child = new Child(this.#options);
    try {
      await child.spawned();
    } catch (error) {
      throw new TransportError("unreachable", `cannot start \`${command}\`: ${(error as Error).message}`, error);
    }
    this.#child = child;
    this.#link = linkLines(child.stdout, child.stdin, events, limits);
    void this.#watch(child, this.#link);
  }

  async send(text: string, options?: SendOptions): Promise<Sent> {
    if (this.#link === undefined) throw new TransportError("closed", NOT_STARTED);
    return this.#link.send(text, options);
  }

  async close(): Promise<void> {
    this.#link?.gone();
    await this.#child?.stop();
  }

  async #watch(child: Child, link: ClientLink): Promise<void> {
    let how = "it closed its stdin or stdout";
    const ended = child.ended.then((outcome) => {
      how = outcome;
    });
    const closed = (stream: Readable | Writable) => new Promise<void>((resolve) => stream.once("close", resolve));
    await Promise.race([ended, closed(child.stdin), closed(child.stdout)]);
    await Promise.race([Promise.all([ended, child.silent]), sleep(LAST_OUTPUT_MS)]);
    const words = child.lastWords === "" ? "" : `; it said: ${child.lastWords}`;
    link.gone(new TransportError("closed", `\`${this.#options.command}\` ended (${how})${words}`));
    await child.stop();
  }
}
