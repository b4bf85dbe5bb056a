// The levels of log messages, in the order of RFC 5424.

import type { JsonValue } from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";

export const LOG_LEVELS: readonly LogLevel[] = [
  "debug",
  "info",
  "notice",
  "warning",
  "error",
  "critical",
  "alert",
  "emergency",
];

export function isLogLevel(value: JsonValue | undefined): value is LogLevel {
  return (LOG_LEVELS as readonly unknown[]).includes(value);
}
