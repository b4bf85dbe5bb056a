// The gateway's table of errors, which every target writes in its language.

import { ERRORS, type ErrorType } from "../../mcp/index.js";

type ErrorRow = (typeof ERRORS)[ErrorType];

export function errorRows(): [ErrorType, ErrorRow][] {
  return Object.entries(ERRORS) as [ErrorType, ErrorRow][];
}
