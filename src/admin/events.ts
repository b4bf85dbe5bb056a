// Server-sent events of the admin API. The last ones are kept, so that a browser that was away continues after the last
// one that it has; when too much happened meanwhile it is told to read everything again. What is sent is one text for
// every stream with the same view, so that many open tabs cost little.

import { randomBytes } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { JsonValue } from "../mcp/index.js";
import { withoutArguments } from "./api.js";
import { type AdminCaller, seesArguments } from "./caller.js";
import type { AdminEvent } from "./operations.js";

const KEPT_EVENTS = 512;
const BEAT_MS = 20_000;
const MAX_STREAMS = 512;
/** A stream whose reader does not keep up is ended; it continues with the events that are kept. */
const MAX_BUFFERED_BYTES = 1024 * 1024;

interface Kept {
  readonly number: number;
  readonly event: AdminEvent;
}

interface Stream {
  readonly by: AdminCaller;
  readonly response: ServerResponse;
}

export class AdminEvents {
  /** Names this process: after a restart the numbers begin again. */
  readonly #epoch = randomBytes(6).toString("base64url");
  readonly #version: string;
  readonly #isValid: (by: AdminCaller) => Promise<boolean>;
  readonly #streams = new Set<Stream>();
  readonly #kept: Kept[] = [];
  #last = 0;
  #opening = 0;
  #timer: NodeJS.Timeout | undefined;
  #onWatched: (isWatched: boolean) => Promise<void> | void = () => {};
  /** Resolves when everything that happens from then on is sent. */
  #watching: Promise<void> | undefined;

  constructor(version: string, isValid: (by: AdminCaller) => Promise<boolean>) {
    this.#version = version;
    this.#isValid = isValid;
  }

  /** Called with true before the first stream opens, which waits for it, and with false when the last one has ended. */
  whenWatched(run: (isWatched: boolean) => Promise<void> | void): void {
    this.#onWatched = run;
  }

  send(event: AdminEvent): void {
    this.#last++;
    this.#kept.push({ number: this.#last, event });
    if (this.#kept.length > KEPT_EVENTS) this.#kept.shift();
    const texts = new Map<string, string>();
    for (const stream of this.#streams) {
      const key = JSON.stringify([stream.by.app, seesArguments(stream.by), stream.by.roles]);
      let text = texts.get(key);
      if (text === undefined) {
        const shown = viewOf(event, stream.by);
        text = shown === undefined ? "" : textOf(shown, this.#id(this.#last));
        texts.set(key, text);
      }
      if (text !== "") this.#write(stream, text);
    }
  }

  /** Answers with events until either side ends. False when too many are open. */
  async follow(
    by: AdminCaller,
    response: ServerResponse,
    headers: Readonly<Record<string, string>>,
    last: string,
  ): Promise<boolean> {
    if (this.#streams.size >= MAX_STREAMS) return false;
    const stream = { by, response };
    let isOpen = true;
    response.once("close", () => {
      isOpen = false;
      this.#streams.delete(stream);
      this.#unwatchUnused();
    });
    this.#opening++;
    try {
      this.#watching ??= Promise.resolve(this.#onWatched(true));
      await this.#watching;
    } finally {
      this.#opening--;
    }
    if (!isOpen) {
      this.#unwatchUnused();
      return true;
    }
    response.writeHead(200, { ...headers, "content-type": "text/event-stream; charset=utf-8" });
    const missed = this.#after(last);
    const hello: AdminEvent = { type: "hello", resumed: missed !== undefined, version: this.#version };
    response.write(textOf(hello, this.#id(this.#last)));
    if (missed === undefined && last !== "") response.write(textOf({ type: "reset" }, this.#id(this.#last)));
    for (const { event, number } of missed ?? []) {
      const shown = viewOf(event, by);
      if (shown !== undefined) response.write(textOf(shown, this.#id(number)));
    }
    this.#streams.add(stream);
    this.#timer ??= setInterval(() => void this.#beat(), BEAT_MS).unref();
    return true;
  }

  #unwatchUnused(): void {
    if (this.#streams.size + this.#opening > 0 || this.#watching === undefined) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#watching = undefined;
    void this.#onWatched(false);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const { response } of this.#streams) response.end();
  }

  /** What happened after an event that was sent here; undefined when that is no longer known. */
  #after(last: string): readonly Kept[] | undefined {
    // The number stands after the last hyphen: the epoch may have some.
    const at = last.lastIndexOf("-");
    const [epoch, text] = [last.slice(0, at), last.slice(at + 1)];
    if (epoch !== this.#epoch || !/^\d{1,15}$/.test(text)) return undefined;
    const number = Number(text);
    const first = this.#kept[0]?.number ?? this.#last + 1;
    if (number > this.#last || number + 1 < first) return undefined;
    return this.#kept.filter((each) => each.number > number);
  }

  #id(number: number): string {
    return `${this.#epoch}-${number}`;
  }

  #write(stream: Stream, text: string): void {
    const { response } = stream;
    if (response.writableLength > MAX_BUFFERED_BYTES) return void response.destroy();
    response.write(text);
  }

  /** Ends streams whose session has ended; keeps the others from looking idle to proxies. */
  async #beat(): Promise<void> {
    for (const stream of [...this.#streams]) {
      const isValid = await this.#isValid(stream.by).catch(() => false);
      if (isValid) this.#write(stream, ":\n\n");
      else stream.response.end();
    }
  }
}

function textOf({ type, ...rest }: AdminEvent, id: string): string {
  return `event: ${type}\nid: ${id}\ndata: ${JSON.stringify(rest)}\n\n`;
}

/** INVARIANT: a stream has nothing that the operations would not show to the same caller. */
function viewOf(event: AdminEvent, by: AdminCaller): AdminEvent | undefined {
  const isApproverOnly = by.roles.every((role) => role === "approver");
  switch (event.type) {
    case "decisions": {
      if (isApproverOnly) return undefined;
      const items = event.items.filter(({ app }) => by.app === undefined || by.app === app);
      if (items.length === 0) return undefined;
      if (seesArguments(by)) return { ...event, items };
      return { ...event, items: withoutArguments(items as unknown as JsonValue) as unknown as typeof items };
    }
    case "changed":
      return by.app === undefined || by.app === event.app ? event : undefined;
    case "approvals":
      // How many wait is counted over all applications and groups: others count for themselves.
      return by.app === undefined && !isApproverOnly ? event : { type: "reset" };
    case "verification":
      return by.app === undefined && !isApproverOnly ? event : undefined;
    default:
      return event;
  }
}
