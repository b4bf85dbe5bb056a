// The labels of information flow as a document has them: what a result carries and what a call does.

import { list, object, oneOf, optional, record, type Shape, textShape } from "../mcp/index.js";

type FlowEffect = "sends-outside" | "changes-state";

interface FlowLabelEntry {
  /** What a result carries. `private(NAME)` without `trusted` is untrusted content as well. */
  readonly carries?: readonly string[] | undefined;
  /** What a call does; an empty list is a call that only reads. */
  readonly does?: readonly FlowEffect[] | undefined;
  /** Arguments that say where something goes or what is changed. Every argument, where neither list is given. */
  readonly destination?: readonly string[] | undefined;
  /** Arguments that are sent or written. */
  readonly payload?: readonly string[] | undefined;
}

export interface FlowEntry {
  /** Who approves what the shipped rules ask for; `operators` unless given. */
  readonly approvers?: readonly string[] | undefined;
  /** `none` leaves the shipped rules out, for operators who write their own. */
  readonly rules?: "shipped" | "none" | undefined;
  /** For what no other entry names. */
  readonly default?: FlowLabelEntry | undefined;
  /** By name of the server. */
  readonly servers?: Readonly<Record<string, FlowLabelEntry>> | undefined;
  /** By tool name, or a prefix ending in `*`; the longest match counts. */
  readonly tools?: Readonly<Record<string, FlowLabelEntry>> | undefined;
  /** By URI, or a prefix ending in `*`. */
  readonly resources?: Readonly<Record<string, FlowLabelEntry>> | undefined;
}

const CONTENT = "^(trusted|untrusted|private\\([A-Za-z0-9_.-]{1,64}\\))$";

const argumentNames = (about: string): Shape<readonly string[]> =>
  list(about, textShape("the name of an argument", { min: 1, max: 256 }), { max: 200 });

const label: Shape<FlowLabelEntry> = object("what a result carries and what a call does", {
  carries: optional(
    list(
      "what a result carries",
      textShape("a label", {
        max: 80,
        pattern: CONTENT,
        patternSays: "must be trusted, untrusted or private(NAME)",
      }),
      { max: 20 },
    ),
  ),
  does: optional(
    list("what a call does; empty where it only reads", oneOf("an effect", ["sends-outside", "changes-state"]), {
      max: 2,
    }),
  ),
  destination: optional(argumentNames("arguments that say where something goes or what is changed")),
  payload: optional(argumentNames("arguments that are sent or written")),
});

const named = (about: string): Shape<Readonly<Record<string, FlowLabelEntry>>> =>
  record(about, label, {
    max: 5_000,
    names: "^[^\\u0000-\\u001f]{1,512}$",
    namesSay: "it is a name, or a prefix ending in *",
  });

export const flowShape: Shape<FlowEntry> = object("labels of information flow", {
  approvers: optional(
    list("who approves what the shipped rules ask for", textShape("a group", { min: 1, max: 128 }), { max: 20 }),
  ),
  rules: optional(oneOf("whether the shipped rules apply", ["shipped", "none"])),
  default: optional(label),
  servers: optional(named("labels by server")),
  tools: optional(named("labels by tool")),
  resources: optional(named("labels by resource")),
});
