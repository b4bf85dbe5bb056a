// The gateway's side of a server's own network namespace: it answers name queries, and connects what comes in on the
// server's loopback addresses with the hosts of its profile, by the dialer's rules. A name that is allowed gets a loopback
// address of its own, by which its connections are told apart; TLS stays between the server and the host.

import type { Socket as DatagramSocket } from "node:dgram";
import type { Server, Socket } from "node:net";
import { type Destination, portOf, WEB_PORTS } from "../../host/index.js";
import { Fault } from "../../mcp/index.js";
import { createDialer, type Dialer } from "../dialer.js";

const MAX_NAMES = 4_096;
const MAX_DESTINATIONS = 256;
const MAX_CONNECTIONS = 256;
/** 127.64.0.1 and up: the first address of the loopback network is `localhost`. */
const FIRST_ADDRESS = 0x7f400000;
const LOCALHOST = "127.0.0.1";

type Refused = Required<Pick<Destination, "refusal" | "reason">>;
const NOT_NAMED: Refused = { refusal: "profile", reason: "its profile does not name it" };

export class Egress {
  readonly #hosts: "public" | readonly string[];
  readonly #dialer: Dialer;
  readonly #names = new Map<string, string>();
  readonly #addresses = new Map<string, string>([[LOCALHOST, "localhost"]]);
  readonly #destinations = new Map<string, Destination>();
  readonly #open = new Set<{ destroy(): unknown }>();
  readonly #listening = new Set<{ close(): unknown }>();

  constructor(hosts: "public" | readonly string[]) {
    this.#hosts = hosts === "public" ? hosts : hosts.map((host) => host.toLowerCase());
    const exact = hosts === "public" ? [] : hosts.filter((host) => host !== "public" && !host.startsWith("*."));
    this.#dialer = createDialer({ allow: exact, ofServer: true });
  }

  get destinations(): readonly Destination[] {
    return [...this.#destinations.values()];
  }

  /** A listening socket of the server's network namespace. */
  take(handle: unknown): void {
    const socket = handle as DatagramSocket | Server;
    this.#listening.add(socket);
    socket.on("error", () => {});
    if ("send" in socket) {
      socket.on("message", (query, from) => {
        const answer = this.#answerTo(query);
        if (answer !== undefined) socket.send(answer, from.port, from.address, () => {});
      });
    } else {
      socket.maxConnections = MAX_CONNECTIONS;
      socket.on("connection", (inner) => void this.#connect(inner));
    }
  }

  close(): void {
    for (const socket of this.#listening) socket.close();
    for (const socket of this.#open) socket.destroy();
    this.#listening.clear();
    this.#open.clear();
  }

  #isAllowed(name: string, port?: number): boolean {
    if (this.#hosts === "public") return true;
    return this.#hosts.some((entry) => {
      if (entry === "public") return port === undefined || WEB_PORTS.includes(port);
      const own = portOf(entry);
      const host = own === undefined ? entry : entry.slice(0, entry.lastIndexOf(":"));
      const isHost = host.startsWith("*.") ? name.endsWith(host.slice(1)) : name === host;
      return isHost && (port === undefined || own === undefined || own === port);
    });
  }

  #note(host: string, port: number | undefined, refused?: Refused): void {
    const allowed = refused === undefined;
    const key = `${host}:${port ?? ""} ${allowed}`;
    const before = this.#destinations.get(key);
    if (before === undefined && this.#destinations.size >= MAX_DESTINATIONS) return;
    this.#destinations.set(key, { host, port, allowed, count: (before?.count ?? 0) + 1, ...refused });
  }

  #answerTo(query: Buffer): Buffer | undefined {
    const question = questionOf(query);
    if (question === undefined) return undefined;
    const { name, type, end } = question;
    const address = this.#isAllowed(name) ? this.#addressOf(name) : undefined;
    if (address === undefined) this.#note(name, undefined, NOT_NAMED);
    return dnsAnswer(query.subarray(0, end), address, type);
  }

  #addressOf(name: string): number | undefined {
    const known = this.#names.get(name);
    if (known === undefined && this.#names.size >= MAX_NAMES) return undefined;
    const number = known === undefined ? FIRST_ADDRESS + this.#names.size + 1 : undefined;
    if (number === undefined) return numberOf(known as string);
    const text = [24, 16, 8, 0].map((shift) => (number >>> shift) & 0xff).join(".");
    this.#names.set(name, text);
    this.#addresses.set(text, name);
    return number;
  }

  async #connect(inner: Socket): Promise<void> {
    this.#open.add(inner);
    inner.on("close", () => this.#open.delete(inner)).on("error", () => inner.destroy());
    const host = this.#addresses.get(inner.localAddress ?? "");
    const port = inner.localPort ?? 0;
    if (host === undefined || !this.#isAllowed(host, port)) {
      this.#note(host ?? inner.localAddress ?? "", port, NOT_NAMED);
      inner.destroy();
      return;
    }
    try {
      const outer = await this.#dialer.connect({ host, port, tls: false });
      this.#note(host, port);
      if (inner.destroyed) {
        outer.destroy();
        return;
      }
      this.#open.add(outer);
      outer.on("close", () => this.#open.delete(outer)).on("error", () => inner.destroy());
      inner.on("close", () => outer.destroy());
      inner.pipe(outer);
      outer.pipe(inner);
    } catch (error) {
      const refusal = error instanceof Fault && error.type === "PolicyDeny" ? "address" : "connection";
      this.#note(host, port, { refusal, reason: (error as Error).message });
      inner.destroy();
    }
  }
}

function numberOf(address: string): number {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}

const HEADER_BYTES = 12;
const MAX_LABEL = 63;
const A = 1;
const TTL_S = 30;

interface Question {
  readonly name: string;
  readonly type: number;
  /** Where it ends in the query. */
  readonly end: number;
}

/** The one question of a query (RFC 1035, 4.1); undefined for anything else. */
function questionOf(query: Buffer): Question | undefined {
  if (query.length < HEADER_BYTES + 5 || query.readUInt16BE(4) !== 1 || (query.readUInt8(2) & 0xf8) !== 0)
    return undefined;
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = query[at] ?? 0; length !== 0; length = query[at] ?? 0) {
    if (length > MAX_LABEL || at + 1 + length >= query.length) return undefined;
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const end = at + 5;
  return end > query.length
    ? undefined
    : { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end };
}

/** Without an address: there is no such name. Names have IPv4 addresses alone. */
function dnsAnswer(question: Buffer, address: number | undefined, type: number): Buffer {
  const answer = Buffer.alloc(16);
  answer.writeUInt16BE(0xc000 | HEADER_BYTES, 0);
  answer.writeUInt16BE(A, 2);
  answer.writeUInt16BE(1, 4);
  answer.writeUInt32BE(TTL_S, 6);
  answer.writeUInt16BE(4, 10);
  answer.writeUInt32BE(address ?? 0, 12);
  const hasAnswer = address !== undefined && type === A;
  const reply = Buffer.concat([question, ...(hasAnswer ? [answer] : [])]);
  reply.writeUInt16BE(0x8180 | (address === undefined ? 3 : 0), 2);
  reply.writeUInt16BE(hasAnswer ? 1 : 0, 6);
  reply.writeUInt32BE(0, 8);
  return reply;
}
