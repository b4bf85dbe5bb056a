// Event streams of a session that a client can resume where it lost them: every event has an id, and a
// bounded number of them is kept, within the budget for replay of the agent that the session belongs to.

import { type ByteBudget, Charge, Fault } from "../mcp/index.js";
import type { Reply } from "../mcp/transports/index.js";

interface KeptEvent {
  seq: number;
  text: string;
}

const MAX_EVENTS = 256;
const MAX_STREAM_BYTES = 1024 * 1024;
const MAX_ENDED_STREAMS = 16;
/** What an event costs besides its text. */
const EVENT_BYTES = 128;

/** Where kept events are charged. */
export interface Replay {
  readonly budget: ByteBudget;
  /** Drops the oldest kept events of the same agent; false when there are none. */
  makeRoom(): boolean;
}

export class EventStream {
  readonly id: string;
  #sink: Reply | undefined;
  /** The credential of its reader. */
  #credential: string | undefined;
  #events: KeptEvent[] = [];
  readonly #charge: Charge;
  readonly #makeRoom: () => boolean;
  #seq = 0;
  ended = false;

  constructor(id: string, sink: Reply | undefined, credential?: string, replay?: Replay) {
    this.id = id;
    this.#charge = new Charge(replay?.budget);
    this.#makeRoom = () => replay?.makeRoom() ?? false;
    if (sink) this.attach(sink, credential);
  }

  get live(): boolean {
    return this.#sink !== undefined;
  }
  get started(): boolean {
    return this.#seq > 0;
  }

  /** Replaces the reader: a stream has one. */
  attach(sink: Reply, credential?: string): void {
    const before = this.#sink;
    this.#sink = sink;
    this.#credential = credential;
    if (before && !before.ended) before.end();
    sink.onAbort(() => {
      if (this.#sink === sink) this.#sink = undefined;
    });
  }

  /** False when the reader is slow. An event of a stream without a reader is kept. */
  push(text: string): boolean {
    const seq = ++this.#seq;
    this.#keep({ seq, text });
    return this.#sink?.send(text, `${this.id}.${seq}`) ?? true;
  }

  #keep(event: KeptEvent): void {
    const cost = costOf(event);
    while (this.#events.length >= MAX_EVENTS || (this.#events.length > 0 && this.kept + cost > MAX_STREAM_BYTES)) {
      this.#dropOldest();
    }
    while (!this.#charge.set(this.kept + cost)) {
      if (this.#makeRoom()) continue;
      // Sent once and not kept: a stream with a gap is not resumed from before it.
      this.forget();
      return;
    }
    this.#events.push(event);
  }

  /** Bytes that its kept events cost. */
  get kept(): number {
    return this.#charge.bytes;
  }

  forget(): void {
    this.#events = [];
    this.#charge.set(0);
  }

  #dropOldest(): void {
    const event = this.#events.shift();
    if (event) this.#charge.set(this.kept - costOf(event));
  }

  drained(): Promise<void> {
    return this.#sink?.drained() ?? Promise.resolve();
  }

  /** The last event: the answer itself when this stream belongs to a request. */
  end(text?: string): void {
    if (this.ended) return;
    if (text !== undefined) this.push(text);
    this.ended = true;
    this.#sink?.end();
    this.#sink = undefined;
  }

  /** The credential of its reader was revoked: the reader is removed, later events are kept. */
  detach(credential: string): void {
    if (this.#credential !== credential) return;
    const sink = this.#sink;
    this.#sink = undefined;
    this.#credential = undefined;
    if (sink && !sink.ended) sink.end();
  }

  /** Continues on `sink` with everything after event `seq`. */
  resume(sink: Reply, seq: number, credential?: string): void {
    const oldest = this.#events[0]?.seq ?? this.#seq + 1;
    if (seq + 1 < oldest) throw new Fault("InvalidRequest", "the events after `Last-Event-ID` are no longer kept");
    sink.open();
    this.attach(sink, credential);
    for (const event of this.#events) if (event.seq > seq) sink.send(event.text, `${this.id}.${event.seq}`);
    if (this.ended) {
      sink.end();
      this.#sink = undefined;
    }
  }
}

/** The streams of one session. */
export class Streams {
  readonly #streams = new Map<string, EventStream>();
  readonly #suffix: string;
  readonly #replay: Replay | undefined;
  #next = 0;

  /** `at` names the replica that keeps them, where there are several. */
  constructor(at?: string, replay?: Replay) {
    this.#suffix = at === undefined ? "" : `~${at}`;
    this.#replay = replay;
  }

  create(sink: Reply | undefined, credential?: string): EventStream {
    const stream = new EventStream(`s${this.#next++}${this.#suffix}`, sink, credential, this.#replay);
    this.#streams.set(stream.id, stream);
    this.#forgetOld();
    return stream;
  }

  /** `Last-Event-ID` names its stream. */
  find(lastEventId: string): { stream: EventStream; seq: number } {
    const dot = lastEventId.lastIndexOf(".");
    const stream = this.#streams.get(lastEventId.slice(0, dot));
    const seq = Number(lastEventId.slice(dot + 1));
    if (!stream || !Number.isInteger(seq) || seq < 0) {
      throw new Fault("InvalidRequest", "`Last-Event-ID` names no stream of this session", { field: "Last-Event-ID" });
    }
    return { stream, seq };
  }

  detach(credential: string): void {
    for (const stream of this.#streams.values()) stream.detach(credential);
  }

  endAll(): void {
    for (const stream of this.#streams.values()) {
      stream.end();
      stream.forget();
    }
    this.#streams.clear();
  }

  /** Forgets the events of one stream, an ended one where there is one; false when none are kept. */
  dropOldest(): boolean {
    const kept = [...this.#streams.values()].filter((stream) => stream.kept > 0);
    const oldest = kept.find((stream) => stream.ended) ?? kept[0];
    oldest?.forget();
    return oldest !== undefined;
  }

  #forgetOld(): void {
    const ended = [...this.#streams.values()].filter((stream) => stream.ended);
    for (const stream of ended.slice(0, Math.max(0, ended.length - MAX_ENDED_STREAMS))) {
      stream.forget();
      this.#streams.delete(stream.id);
    }
  }
}

/** A character takes two bytes in memory where one of the text is not ASCII, and one byte otherwise. */
function costOf({ text }: KeptEvent): number {
  return EVENT_BYTES + (Buffer.byteLength(text) === text.length ? text.length : 2 * text.length);
}
