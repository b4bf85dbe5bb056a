// Notes: lines that an agent puts into the span of its own call.

import { visible } from "../lib/visible.js";
import { hideSecrets, type Level } from "./log.js";

export interface OperatorNote {
  readonly atMs: number;
  readonly level: Level;
  readonly message: string;
}

const MAX_NOTES = 32;
const MAX_CHARS = 1_024;

export const NOTE_EVENT = "log";

export function noteAttributes(note: OperatorNote): Record<string, string> {
  return { "portcullis.note.level": note.level, "portcullis.note.message": note.message };
}

/** A span that is under way and takes notes. */
export interface Noting {
  take(note: OperatorNote): void;
}

/** The spans under way, by whose call it is. As many as there are calls. */
export class OpenSpans {
  readonly #open = new Map<string, Noting[]>();

  /** Calls of one trace may be inside or beside each other; the latest takes the notes. */
  add(app: string, traceId: string, span: Noting): () => void {
    const name = nameOf(app, traceId);
    const spans = this.#open.get(name) ?? [];
    this.#open.set(name, spans);
    spans.push(span);
    return () => {
      const at = spans.indexOf(span);
      if (at >= 0) spans.splice(at, 1);
      if (spans.length === 0 && this.#open.get(name) === spans) this.#open.delete(name);
    };
  }

  note(app: string, traceId: string, level: Level, message: string): void {
    const cut = message.length > MAX_CHARS ? `${message.slice(0, MAX_CHARS)}…` : message;
    this.#open
      .get(nameOf(app, traceId))
      ?.at(-1)
      ?.take({ atMs: Date.now(), level, message: visible(hideSecrets(cut)) });
  }
}

function nameOf(app: string, traceId: string): string {
  return `${traceId} ${app}`;
}

/** Takes the first so many and lets the rest go. */
export class Notes implements Noting {
  readonly all: OperatorNote[] = [];
  readonly #onNote: ((note: OperatorNote) => void) | undefined;

  constructor(onNote?: (note: OperatorNote) => void) {
    this.#onNote = onNote;
  }

  take(note: OperatorNote): void {
    if (this.all.length >= MAX_NOTES) return;
    this.all.push(note);
    this.#onNote?.(note);
  }
}
