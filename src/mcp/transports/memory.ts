// Both ends in one process. Delivery is asynchronous and the caps are the same, so that what works here works on a wire.

import { ServerChannel } from "./channel.js";
import { Connections } from "./connections.js";
import { closeChannels, DEFAULT_GRACE_MS, everyMs } from "./listen.js";
import { ClientLink, NOT_STARTED, type Port } from "./outbox.js";
import {
  type ClientEvents,
  type ClientTransport,
  type Listener,
  resolveLimits,
  type SendOptions,
  type Sent,
  TransportError,
  type TransportHandler,
  type TransportLimits,
} from "./types.js";

export interface MemoryListener extends Listener {
  /** The other end. */
  client(limits?: Partial<TransportLimits>): ClientTransport;
}

/** Texts delivered in one turn of the event loop; the rest waits for the next, so that no pipe is starved. */
const TEXTS_A_TURN = 64;

/** One direction, and at the same time the port of its writer. */
class Pipe implements Port {
  waiting = 0;
  /** Set by the two ends when they are joined. */
  deliver: (text: string) => void = () => {};
  broken: () => void = () => {};
  /** The other direction: what its writer's peer stops and starts reading. */
  back: Pipe | undefined;
  #queue: (string | undefined)[] = [];
  #next = 0;
  #taken: () => void = () => {};
  #scheduled = false;
  #paused = false;
  #ending = false;
  #dead = false;

  write(text: string | Buffer, taken: () => void): void {
    if (this.#ending || this.#dead) return;
    this.#taken = taken;
    const queued = text.toString();
    this.#queue.push(queued);
    this.waiting += cost(queued);
    this.#schedule();
  }

  pause(): void {
    if (this.back !== undefined) this.back.#paused = true;
  }

  resume(): void {
    if (this.back === undefined) return;
    this.back.#paused = false;
    this.back.#schedule();
  }

  end(): void {
    this.#ending = true;
    this.#schedule();
  }

  destroy(): void {
    this.break();
    if (this.back !== undefined) this.back.break();
  }

  break(): void {
    if (this.#dead) return;
    this.#dead = true;
    this.#queue = [];
    this.#next = 0;
    this.waiting = 0;
    setImmediate(this.broken);
  }

  #schedule(): void {
    if (this.#scheduled || this.#paused || this.#dead) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    for (let i = 0; i < TEXTS_A_TURN && !this.#paused && !this.#dead; i++) {
      const text = this.#queue[this.#next];
      if (text === undefined) break;
      this.#queue[this.#next++] = undefined;
      this.waiting -= cost(text);
      this.deliver(text);
    }
    this.#taken();
    if (this.#next < this.#queue.length) {
      this.#schedule();
      return;
    }
    this.#queue = [];
    this.#next = 0;
    if (this.#ending) this.destroy();
  }
}

/** A text costs more than its bytes; otherwise four million empty ones would cost nothing. */
function cost(text: string): number {
  return Buffer.byteLength(text) + 64;
}

export async function listenMemory(
  handler: TransportHandler,
  options: { limits?: Partial<TransportLimits> } = {},
): Promise<MemoryListener> {
  const limits = resolveLimits(options.limits, { idleMs: 0 });
  const connections = new Connections<ServerChannel>(limits.maxConnections);
  let listening = true;
  const timer = everyMs(limits.idleMs || 20_000, (now) => {
    for (const channel of connections) channel.sweep(now);
  });

  function join(toServer: Pipe, toClient: Pipe): void {
    const channel = new ServerChannel({ transport: "memory", address: "memory" }, toClient, handler, limits);
    if (!listening || !connections.admit(channel)) {
      throw new TransportError("unreachable", "the in-memory server does not accept this connection");
    }
    channel.onMessage = () => connections.completed(channel);
    channel.onClose(() => connections.remove(channel));
    toServer.deliver = (text) => {
      if (Buffer.byteLength(text) <= limits.maxMessageBytes) channel.receive(text);
      else channel.receiveMalformed({ kind: "too-large", message: tooLarge(limits.maxMessageBytes) });
    };
    toServer.broken = () => channel.gone();
    handler.connected?.(channel);
  }

  return {
    url: "memory:",
    get connections() {
      return connections.size;
    },
    client: (clientLimits) => new MemoryClient(join, clientLimits),
    async close(graceMs = DEFAULT_GRACE_MS) {
      listening = false;
      clearInterval(timer);
      await closeChannels(connections, graceMs);
    },
  };
}

function tooLarge(maxBytes: number): string {
  return `a text is over the cap of ${maxBytes} bytes; it was dropped`;
}

class MemoryClient implements ClientTransport {
  readonly kind = "memory";
  readonly #join: (toServer: Pipe, toClient: Pipe) => void;
  readonly #limits: Partial<TransportLimits> | undefined;
  readonly #toServer = new Pipe();
  #link: ClientLink | undefined;

  constructor(join: (toServer: Pipe, toClient: Pipe) => void, limits?: Partial<TransportLimits>) {
    this.#join = join;
    this.#limits = limits;
  }

  async start(events: ClientEvents): Promise<void> {
    const limits = resolveLimits(this.#limits);
    const toServer = this.#toServer;
    const toClient = new Pipe();
    toServer.back = toClient;
    toClient.back = toServer;
    const link = new ClientLink(toServer, events, limits);
    toClient.deliver = (text) => {
      if (Buffer.byteLength(text) <= limits.maxMessageBytes) link.receive(text);
      else link.receiveMalformed({ kind: "too-large", message: tooLarge(limits.maxMessageBytes) });
    };
    toClient.broken = () => link.gone(new TransportError("closed", "the in-memory server closed the connection"));
    this.#join(toServer, toClient);
    this.#link = link;
  }

  async send(text: string, options?: SendOptions): Promise<Sent> {
    if (this.#link === undefined) throw new TransportError("closed", NOT_STARTED);
    return this.#link.send(text, options);
  }

  async close(): Promise<void> {
    this.#link?.gone();
    this.#toServer.end();
  }
}
