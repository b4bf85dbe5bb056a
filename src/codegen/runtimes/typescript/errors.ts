// Errors of the generated code. Each has a row in the table of errors.

import { ERRORS, type ErrorType } from "./error-table.js";

export class McpError extends Error {
  readonly type: ErrorType;

  constructor(type: ErrorType, reason: string) {
    super(reason);
    this.name = "McpError";
    this.type = type;
  }

  /** The stable name of the error, as in `error.data.code`. */
  get code(): string {
    return ERRORS[this.type].code;
  }

  /** Whether the same call can succeed later, unchanged. */
  get retryable(): boolean {
    return ERRORS[this.type].retryable;
  }
}

export interface Problem {
  /** A JSON pointer to what does not fit. */
  readonly path: string;
  readonly message: string;
}

/** Arguments (`ValidationError`) or a result (`OutputInvalid`) that the schema does not accept. */
export class DecodeError extends McpError {
  readonly problem: Problem;

  constructor(type: ErrorType, what: string, problem: Problem) {
    super(type, what + problem.path + " " + problem.message);
    this.name = "DecodeError";
    this.problem = problem;
  }
}
