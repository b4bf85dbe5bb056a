// Calls of tools by name, and how they fail.

import type { JsonObject } from "./check.js";
import { McpError } from "./errors.js";

/** The tool ran and returned a result with `isError`. */
export class ToolFailed extends McpError {
  readonly answer: CallAnswer;

  constructor(tool: string, answer: CallAnswer) {
    super("ToolExecution", "the tool " + tool + " failed");
    this.name = "ToolFailed";
    this.answer = answer;
  }
}

export class ToolNotFound extends McpError {
  constructor(tool: string) {
    super("ToolNotFound", "there is no tool " + tool);
    this.name = "ToolNotFound";
  }
}

/** The result of tools/call. */
export interface CallAnswer {
  readonly content?: readonly unknown[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

/** Calls a tool by name; the clients of portcullis and of the official SDK do, with one line around them. */
export interface ToolCaller {
  callTool(name: string, args: JsonObject): Promise<CallAnswer>;
}

/** The method of a caller that no tool can have the name of. */
export const CALL: unique symbol = Symbol("call");

/** Base of the generated caller. */
export class Caller {
  readonly #caller: ToolCaller;

  constructor(caller: ToolCaller) {
    this.#caller = caller;
  }

  protected async [CALL](name: string, args: object): Promise<CallAnswer> {
    const answer = await this.#caller.callTool(name, args as JsonObject);
    if (answer.isError === true) throw new ToolFailed(name, answer);
    return answer;
  }
}
