// Encrypted replica-to-replica messages, relayed through the store: for what only the replica can do that has the connection
// or the suspended call. A reader or writer of the store can neither read nor forge them.

import { randomBytes } from "node:crypto";
import { Fault, isJsonObject, type JsonObject, type JsonValue, type RetainedBytes } from "../../mcp/index.js";
import { decryptShared, encryptState, type SharedKeys } from "../../pipeline/index.js";
import type { Storage, StoreChange } from "../../storage/index.js";
import { ReplicaStream, type StreamListener, type StreamTimes } from "./stream.js";

interface ReplicaBusOptions extends Partial<StreamTimes> {
  readonly storage: Pick<Storage, "origin" | "replicaMessages" | "feed" | "replicas">;
  /** Shared by the replicas. */
  readonly keys: SharedKeys;
  /** What callers make this process keep. */
  readonly retained?: RetainedBytes;
}

/** Accepts a stream that another replica opened; returns its listener. */
type ReplicaAnswers = (body: JsonObject, stream: ReplicaStream) => StreamListener;

const EVERY_REPLICA = "*";
const MESSAGE_MS = 60_000;
const MAX_STREAMS = 1_000;
const STREAM_SHARE = { perAgent: 16, perApp: 250, burst: 64, perSecond: 8 };
const MAX_UNREAD = 10_000;
const MAX_SENDING = 256;
const SEND_SHARE = { perAgent: 16, perApp: 64, burst: 256, perSecond: 20 };
const TIMES: StreamTimes = { answerMs: 5_000, beatMs: 10_000, silenceMs: 35_000 };
/** Replicas that wrote a sign of life so recently are alive. */
const ALIVE_MS = 20_000;
const LIST_MS = 2_000;
const LIST_AGAIN_MS = 250;

export class ReplicaBus {
  /** Of this process, among the replicas. */
  readonly address: string;
  readonly #storage: ReplicaBusOptions["storage"];
  readonly #keys: SharedKeys;
  readonly #times: StreamTimes;
  readonly #retained: RetainedBytes | undefined;
  readonly #streams = new Map<string, ReplicaStream>();
  readonly #streamShares = new Shares("streams to other replicas", STREAM_SHARE);
  readonly #sendShares = new Shares("messages for other replicas", SEND_SHARE);
  readonly #listeners = new Map<string, (body: JsonObject) => void>();
  readonly #acceptors = new Map<string, ReplicaAnswers>();
  #reading: Promise<void> = Promise.resolve();
  #unread = 0;
  #sending = 0;
  #others: ReadonlySet<string> = new Set();
  #listedAt = Number.NEGATIVE_INFINITY;
  #unwatch: (() => void) | undefined;

  private constructor({ storage, keys, retained, ...times }: ReplicaBusOptions) {
    this.#retained = retained;
    this.address = storage.origin;
    this.#storage = storage;
    this.#keys = keys;
    this.#times = { ...TIMES, ...times };
  }

  static async open(options: ReplicaBusOptions): Promise<ReplicaBus> {
    const bus = new ReplicaBus(options);
    bus.#unwatch = await options.storage.feed.watch({
      change: (change) => bus.#onChange(change),
      // Messages may have been missed, and a stream with a gap is of no use.
      resync: () => bus.#failAll(new Fault("Unavailable", "messages of the other replica were lost")),
    });
    return bus;
  }

  close(): void {
    this.#unwatch?.();
    this.#failAll(new Fault("Cancelled", "the gateway is stopping"));
  }

  /** Handles messages of this kind. */
  onMessage(kind: string, then: (body: JsonObject) => void): void {
    this.#listeners.set(kind, then);
  }

  /** Accepts streams of this kind. */
  onStream(kind: string, answers: ReplicaAnswers): void {
    this.#acceptors.set(kind, answers);
  }

  /** Sends to one replica on behalf of a caller; false when there is no such replica. */
  async send(to: string, kind: string, body: JsonObject, by: Owner): Promise<boolean> {
    if (!(await this.isThere(to))) return false;
    await this.#send(to, kind, body, by);
    return true;
  }

  /** Sends to all other replicas, where there are any. */
  async broadcast(kind: string, body: JsonObject, by: Owner): Promise<void> {
    if ((await this.#alive()).size > 0) await this.#send(EVERY_REPLICA, kind, body, by);
  }

  /** Opens a stream to another replica on behalf of a caller. */
  open(to: string, kind: string, body: JsonObject, listener: StreamListener, by: Owner): ReplicaStream {
    const release = this.#streamShares.take(by);
    const stream = this.#newStream(to, randomBytes(12).toString("base64url"), listener, by, release);
    this.isThere(to).then(
      (isThere) => {
        if (isThere) stream.begin({ open: kind, body });
        else stream.fail(new Fault("Unavailable", "the replica is not running any more"));
      },
      (error) => stream.fail(unavailable(error)),
    );
    return stream;
  }

  async isThere(address: string): Promise<boolean> {
    // One that has just started is looked up once more, but not as often as invented addresses arrive.
    return (await this.#alive()).has(address) || (await this.#alive(LIST_AGAIN_MS)).has(address);
  }

  /** The other replicas, as of a moment ago. */
  async #alive(maxAgeMs = LIST_MS): Promise<ReadonlySet<string>> {
    if (performance.now() - this.#listedAt < maxAgeMs) return this.#others;
    const replicas = await this.#storage.replicas.list(ALIVE_MS);
    this.#listedAt = performance.now();
    const addresses = replicas.flatMap(({ detail }) => (typeof detail.address === "string" ? [detail.address] : []));
    this.#others = new Set(addresses.filter((each) => each !== this.address));
    return this.#others;
  }

  async #send(to: string, kind: string, body: JsonObject, by: Owner): Promise<void> {
    const release = this.#sendShares.take(by);
    try {
      await this.#sendShared(to, kind, body);
    } finally {
      release();
    }
  }

  async #sendShared(to: string, kind: string, body: JsonObject): Promise<void> {
    if (this.#sending >= MAX_SENDING)
      throw new Fault("TooMany", "too many messages to other replicas are being sent; try again");
    this.#sending++;
    try {
      await this.#post(to, { tell: kind, body });
    } finally {
      this.#sending--;
    }
  }

  #post(to: string, message: JsonObject): Promise<void> {
    const text = encryptState(this.#keys.current, purposeOf(to), JSON.stringify({ ...message, from: this.address }));
    return this.#storage.replicaMessages.post(to, text, MESSAGE_MS);
  }

  #newStream(
    to: string,
    id: string,
    listener: StreamListener,
    by: Owner,
    release: () => void = () => {},
  ): ReplicaStream {
    if (this.#streams.size >= MAX_STREAMS) {
      release();
      throw new Fault("TooMany", `${MAX_STREAMS} streams to other replicas are open`);
    }
    const stream = new ReplicaStream(
      (message) => this.#post(to, { ...message, line: id }),
      listener,
      () => {
        this.#streams.delete(id);
        release();
      },
      this.#times,
      this.#retained?.of(by),
    );
    this.#streams.set(id, stream);
    return stream;
  }

  #failAll(fault: Fault): void {
    for (const stream of [...this.#streams.values()]) stream.fail(fault);
  }

  #onChange({ topic, app, name, origin }: StoreChange): void {
    if (topic !== "letter" || origin === this.address || (app !== this.address && app !== EVERY_REPLICA)) return;
    if (this.#unread >= MAX_UNREAD) return this.#failAll(new Fault("TooMany", "too many messages of other replicas"));
    this.#unread++;
    // One after the other: the messages of a stream are in order and must stay so.
    this.#reading = this.#reading
      .then(() => this.#read(app, name))
      .catch((error) => this.#failAll(unavailable(error)))
      .finally(() => {
        this.#unread--;
      });
  }

  async #read(to: string, id: string): Promise<void> {
    const ciphertext = await this.#storage.replicaMessages.read(id);
    const text = ciphertext === undefined ? undefined : await decryptShared(this.#keys, purposeOf(to), ciphertext);
    if (text === undefined) return;
    const message = JSON.parse(text) as JsonObject;
    const body = isJsonObject(message.body) ? message.body : {};
    try {
      if (typeof message.tell === "string") this.#listeners.get(message.tell)?.(body);
      else if (typeof message.line === "string") this.#receive(message.line, message, body);
    } catch {
      // A message that fails affects no other; a caller that waits for an answer gets a timeout.
    }
  }

  #receive(id: string, message: JsonObject, body: JsonObject): void {
    const { open, from } = message;
    if (typeof open !== "string") return this.#streams.get(id)?.receive(message);
    const accept = this.#acceptors.get(open);
    if (!accept || typeof from !== "string") return;
    let listener: StreamListener = { onMessage: () => {}, onEnd: () => {} };
    const by = { app: String(body.app ?? ""), agent: String(body.agent ?? "") };
    const current: StreamListener = {
      onMessage: (each) => listener.onMessage(each),
      onEnd: (fault) => listener.onEnd(fault),
    };
    const stream = this.#newStream(from, id, current, by);
    stream.begin({});
    try {
      listener = accept(body, stream);
      stream.receive(message);
    } catch (error) {
      stream.fail(unavailable(error));
    }
  }
}

/** Authenticated with each message. The word is that of replicas of earlier releases, which run during an upgrade. */
const PURPOSE = "letter";

function purposeOf(to: string): string {
  return `${PURPOSE} ${to}`;
}

function unavailable(cause: unknown): Fault {
  return new Fault("Unavailable", "the other replicas cannot be reached at the moment", { cause });
}

/** A fault as it travels. */
export function faultToJson({ type, message, detail: { cause: _, ...detail } }: Fault): JsonObject {
  return JSON.parse(JSON.stringify({ type, message, detail })) as JsonObject;
}

export function faultFromJson(value: JsonValue | undefined): Fault {
  const { type, message, detail } = isJsonObject(value) ? value : {};
  return new Fault(
    (typeof type === "string" ? type : "InternalError") as Fault["type"],
    String(message ?? "the other replica failed"),
    isJsonObject(detail) ? (detail as Fault["detail"]) : {},
  );
}

interface ShareLimits {
  /** At once, by one agent and by all agents of one application. */
  readonly perAgent: number;
  readonly perApp: number;
  /** In a burst, and by the second after it. */
  readonly burst: number;
  readonly perSecond: number;
}

/** Whose it is. */
export interface Owner {
  readonly app: string;
  readonly agent: string;
}

interface Share {
  held: number;
  /** When everything that was taken so far will have been refilled. */
  refilledAt: number;
}

const MAX_KEPT = 10_000;

export class Shares {
  readonly #what: string;
  readonly #limits: ShareLimits;
  readonly #agents = new Map<string, Share>();
  readonly #apps = new Map<string, number>();
  readonly #now: () => number;

  constructor(what: string, limits: ShareLimits, now: () => number = () => performance.now()) {
    this.#what = what;
    this.#limits = limits;
    this.#now = now;
  }

  /** Gives back what ends it, or throws. */
  take({ app, agent }: Owner): () => void {
    const { perAgent, perApp, burst, perSecond } = this.#limits;
    const key = JSON.stringify([app, agent]);
    const now = this.#now();
    const share = this.#agents.get(key) ?? this.#fresh(key, now);
    const inApp = this.#apps.get(app) ?? 0;
    const eachMs = 1_000 / perSecond;
    const refilledAt = Math.max(share.refilledAt, now) + eachMs;
    const isOver = share.held >= perAgent || inApp >= perApp || refilledAt - now > burst * eachMs;
    if (isOver) throw new Fault("TooMany", `too many ${this.#what} of one caller; try again in a moment`);
    share.held++;
    share.refilledAt = refilledAt;
    this.#apps.set(app, inApp + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      share.held--;
      const left = (this.#apps.get(app) ?? 1) - 1;
      if (left > 0) this.#apps.set(app, left);
      else this.#apps.delete(app);
    };
  }

  #fresh(key: string, now: number): Share {
    if (this.#agents.size >= MAX_KEPT) {
      // One that holds nothing and has been refilled says the same as a new one.
      for (const [each, { held, refilledAt }] of this.#agents) {
        if (held === 0 && refilledAt <= now) this.#agents.delete(each);
      }
      if (this.#agents.size >= MAX_KEPT) throw new Fault("TooMany", `too many callers have ${this.#what}`);
    }
    const share: Share = { held: 0, refilledAt: now };
    this.#agents.set(key, share);
    return share;
  }
}
