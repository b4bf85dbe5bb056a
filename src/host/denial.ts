// A refusal is a value. Whoever receives one can show it to a model as it stands: it names the rule, says what was
// wrong with which input and what to do, and never repeats where a link outside the roots would have led.

export type DenialCode = "POLICY_DENY" | "INVALID_ARGS" | "TIMEOUT" | "IO_ERROR" | "INTERNAL";

export interface Denial {
  readonly code: DenialCode;
  /** The name of the rule that decided, e.g. `outsideAllowedRoots`. */
  readonly rule: string;
  readonly reason: string;
  /** The argument at fault, e.g. `path` or `args[2]`. */
  readonly field?: string;
  readonly suggestions?: readonly string[];
  /** The time that ran out. */
  readonly timeoutMs?: number;
}

/** How much of a caller's text a message repeats; the rest says nothing that the first part did not. */
const MAX_QUOTED_CHARS = 200;

export function denial(
  code: DenialCode,
  rule: string,
  reason: string,
  more: { field?: string; suggestions?: readonly string[]; timeoutMs?: number } = {},
): Denial {
  return { code, rule, reason, ...more };
}

/** Caller's text made safe for one line of a log or a terminal. */
export function quoteValue(text: string): string {
  const cut = text.length > MAX_QUOTED_CHARS ? `${text.slice(0, MAX_QUOTED_CHARS)}…` : text;
  const plain = cut.replace(/[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, escapeCharacter);
  return `\`${plain}\``;
}

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

export function isDenial(value: object): value is Denial {
  return "code" in value && "rule" in value && "reason" in value;
}
