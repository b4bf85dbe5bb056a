// Letters to other replicas of this gateway, by way of the store: for the few things that only the replica can do that
// has the connection or the waiting call in its hands. Whoever can read or write the store can neither read nor make
// them.

import { randomBytes } from "node:crypto";
import { Fault, isJsonObject, type JsonObject, type JsonValue, type RetainedBytes } from "../../mcp/index.js";
import type { StoreChange, Storage } from "../../storage/index.js";
import { encryptState, type SharedKeys, unlockShared } from "../../pipeline/index.js";
import { type StreamListener, ReplicaStream, type StreamTimes } from "./stream.js";
import { type Owner, Shares } from "./shares.js";

export interface ReplicaBusOptions extends Partial<StreamTimes> {
  readonly storage: Pick<Storage, "origin" | "letters" | "feed" | "replicas">;
  /** Shared by the replicas. */
  readonly keys: SharedKeys;
  /** What callers make this process keep. */
  readonly retained?: RetainedBytes;
}

/** What somebody does who is called; answers with how the line is listened to from here. */
export type ReplicaAnswers = (body: JsonObject, line: ReplicaStream) => StreamListener;

const EVERYBODY = "*";
const LETTER_MS = 60_000;
const MAX_LINES = 1_000;
const LINE_SHARE = { perAgent: 16, perApp: 250, burst: 64, perSecond: 8 };
const MAX_UNREAD = 10_000;
const MAX_TELLING = 256;
const TELLING_SHARE = { perAgent: 16, perApp: 64, burst: 256, perSecond: 20 };
const TIMES: StreamTimes = { answerMs: 5_000, beatMs: 10_000, silenceMs: 35_000 };
/** Replicas that were heard of so recently are there. */
const ALIVE_MS = 20_000;
const LOOK_MS = 2_000;
const LOOK_AGAIN_MS = 250;

export class ReplicaBus {
  /** Of this process, among the replicas. */
  readonly address: string;
  readonly #storage: ReplicaBusOptions["storage"];
  readonly #keys: SharedKeys;
  readonly #times: StreamTimes;
  readonly #retained: RetainedBytes | undefined;
  readonly #lines = new Map<string, ReplicaStream>();
  readonly #lineShares = new Shares("lines to other replicas", LINE_SHARE);
  readonly #tellingShares = new Shares("messages for other replicas", TELLING_SHARE);
  readonly #told = new Map<string, (body: JsonObject) => void>();
  readonly #answers = new Map<string, ReplicaAnswers>();
  #reading: Promise<void> = Promise.resolve();
  #unread = 0;
  #telling = 0;
  #others: ReadonlySet<string> = new Set();
  #lookedAt = Number.NEGATIVE_INFINITY;
  #unwatch: (() => void) | undefined;

  private constructor({ storage, keys, retained, ...times }: ReplicaBusOptions) {
    this.#retained = retained;
    this.address = storage.origin;
    this.#storage = storage;
    this.#keys = keys;
    this.#times = { ...TIMES, ...times };
  }

  static async open(options: ReplicaBusOptions): Promise<ReplicaBus> {
    const post = new ReplicaBus(options);
    post.#unwatch = await options.storage.feed.watch({
      change: (change) => post.#heard(change),
      // Letters may have been missed: a line with a gap in it is of no use to anyone.
      resync: () => post.#hangUp(new Fault("Unavailable", "the other replica could not be heard for a moment")),
    });
    return post;
  }

  close(): void {
    this.#unwatch?.();
    this.#hangUp(new Fault("Cancelled", "the gateway is stopping"));
  }

  /** What is done when another replica tells something of this kind. */
  onTold(kind: string, then: (body: JsonObject) => void): void {
    this.#told.set(kind, then);
  }

  /** What is done when another replica calls about something of this kind. */
  onCalled(kind: string, answers: ReplicaAnswers): void {
    this.#answers.set(kind, answers);
  }

  /** To one replica, for somebody; false when there is no such replica. */
  async tell(to: string, kind: string, body: JsonObject, by: Owner): Promise<boolean> {
    if (!(await this.isThere(to))) return false;
    await this.#tell(to, kind, body, by);
    return true;
  }

  /** To all the others, where there are any. */
  async tellOthers(kind: string, body: JsonObject, by: Owner): Promise<void> {
    if ((await this.#look()).size > 0) await this.#tell(EVERYBODY, kind, body, by);
  }

  /** Calls another replica for somebody. `hears` learns what it says, and when the line has ended and why. */
  call(to: string, kind: string, body: JsonObject, hears: StreamListener, by: Owner): ReplicaStream {
    const release = this.#lineShares.take(by);
    const line = this.#newLine(to, randomBytes(12).toString("base64url"), hears, by, release);
    this.isThere(to).then(
      (isThere) => {
        if (isThere) line.begin({ open: kind, body });
        else line.broken(new Fault("Unavailable", "the replica that is asked for is not there any more"));
      },
      (error) => line.broken(unavailable(error)),
    );
    return line;
  }

  async isThere(address: string): Promise<boolean> {
    // One that has just started is looked for once more, but not as often as somebody makes up addresses.
    return (await this.#look()).has(address) || (await this.#look(LOOK_AGAIN_MS)).has(address);
  }

  /** The other replicas, as of a moment ago. */
  async #look(maxAgeMs = LOOK_MS): Promise<ReadonlySet<string>> {
    if (performance.now() - this.#lookedAt < maxAgeMs) return this.#others;
    const replicas = await this.#storage.replicas.list(ALIVE_MS);
    this.#lookedAt = performance.now();
    const addresses = replicas.flatMap(({ detail }) => (typeof detail.address === "string" ? [detail.address] : []));
    this.#others = new Set(addresses.filter((each) => each !== this.address));
    return this.#others;
  }

  async #tell(to: string, kind: string, body: JsonObject, by: Owner): Promise<void> {
    const release = this.#tellingShares.take(by);
    try {
      await this.#tellShared(to, kind, body);
    } finally {
      release();
    }
  }

  async #tellShared(to: string, kind: string, body: JsonObject): Promise<void> {
    if (this.#telling >= MAX_TELLING) throw new Fault("TooMany", "too much is being told to other replicas; try again");
    this.#telling++;
    try {
      await this.#post(to, { tell: kind, body });
    } finally {
      this.#telling--;
    }
  }

  #post(to: string, letter: JsonObject): Promise<void> {
    const text = encryptState(this.#keys.current, `letter ${to}`, JSON.stringify({ ...letter, from: this.address }));
    return this.#storage.letters.post(to, text, LETTER_MS);
  }

  #newLine(to: string, id: string, hears: StreamListener, by: Owner, release: () => void = () => {}): ReplicaStream {
    if (this.#lines.size >= MAX_LINES) {
      release();
      throw new Fault("TooMany", `${MAX_LINES} lines to other replicas are open`);
    }
    const line = new ReplicaStream(
      (letter) => this.#post(to, { ...letter, line: id }),
      hears,
      () => {
        this.#lines.delete(id);
        release();
      },
      this.#times,
      this.#retained?.of(by),
    );
    this.#lines.set(id, line);
    return line;
  }

  #hangUp(fault: Fault): void {
    for (const line of [...this.#lines.values()]) line.broken(fault);
  }

  #heard({ topic, app, name, origin }: StoreChange): void {
    if (topic !== "letter" || origin === this.address || (app !== this.address && app !== EVERYBODY)) return;
    if (this.#unread >= MAX_UNREAD) return this.#hangUp(new Fault("TooMany", "too many letters of other replicas"));
    this.#unread++;
    // One after the other: letters are in order, and what is said on a line must stay so.
    this.#reading = this.#reading
      .then(() => this.#read(app, name))
      .catch((error) => this.#hangUp(unavailable(error)))
      .finally(() => {
        this.#unread--;
      });
  }

  async #read(to: string, id: string): Promise<void> {
    const locked = await this.#storage.letters.read(id);
    const text = locked === undefined ? undefined : await unlockShared(this.#keys, `letter ${to}`, locked);
    if (text === undefined) return;
    const letter = JSON.parse(text) as JsonObject;
    const body = isJsonObject(letter.body) ? letter.body : {};
    try {
      if (typeof letter.tell === "string") this.#told.get(letter.tell)?.(body);
      else if (typeof letter.line === "string") this.#onLine(letter.line, letter, body);
    } catch {
      // What one letter brings about is that letter's alone; whoever waits for an answer learns that there is none.
    }
  }

  #onLine(id: string, letter: JsonObject, body: JsonObject): void {
    const { open, from } = letter;
    if (typeof open !== "string") return this.#lines.get(id)?.heard(letter);
    const answers = this.#answers.get(open);
    if (!answers || typeof from !== "string") return;
    let hears: StreamListener = { heard: () => {}, ended: () => {} };
    const by = { app: String(body.app ?? ""), agent: String(body.agent ?? "") };
    const listening: StreamListener = { heard: (each) => hears.heard(each), ended: (fault) => hears.ended(fault) };
    const line = this.#newLine(from, id, listening, by);
    line.begin({});
    try {
      hears = answers(body, line);
      line.heard(letter);
    } catch (error) {
      line.broken(unavailable(error));
    }
  }
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
