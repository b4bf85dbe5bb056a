// Lines over a pair of byte streams, calling side.

import type { Readable, Writable } from "node:stream";
import { ClientLink } from "./client.js";
import { LineReader } from "./frames.js";
import type { ResolvedLimits } from "./limits.js";
import { StreamPort } from "./line-channel.js";
import type { ClientEvents } from "./types.js";

/** The owner of the streams tells the link when the connection is gone, because only it knows why. */
export function linkLines(input: Readable, output: Writable, events: ClientEvents, limits: ResolvedLimits): ClientLink {
  const link = new ClientLink(new StreamPort(input, output), events, limits);
  const reader = new LineReader(limits.maxMessageBytes, {
    line: (text) => link.receive(text),
    malformed: (problem) => link.receiveMalformed(problem),
  });
  input.on("data", (chunk: Buffer) => reader.push(chunk));
  input.on("end", () => reader.end());
  return link;
}
