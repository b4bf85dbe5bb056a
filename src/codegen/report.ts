import type { About } from "./schema/node.js";

/**
 * Something in a schema that the generated code does not honour exactly. `unsupported` parts are not checked by the
 * generated decoders; `note` parts never meant anything to a validator either.
 */
export interface Report {
  readonly level: "unsupported" | "note";
  readonly tool: string;
  /** Where, as a JSON pointer that starts with `inputSchema` or `outputSchema`. */
  readonly path: string;
  readonly message: string;
}

const MAX_REPORTS = 10_000;

export class Reports {
  readonly #found = new Map<string, Report>();
  #owner: Pick<About, "tool" | "side"> = { tool: "", side: "inputSchema" };

  /** What is said from now on is about this schema. */
  enter(tool: string, side: About["side"]): void {
    this.#owner = { tool, side };
  }

  get owner(): Pick<About, "tool" | "side"> {
    return this.#owner;
  }

  unsupported(pointer: string, message: string): void {
    this.#add("unsupported", pointer, message);
  }

  note(pointer: string, message: string): void {
    this.#add("note", pointer, message);
  }

  all(): readonly Report[] {
    return [...this.#found.values()];
  }

  #add(level: Report["level"], pointer: string, message: string): void {
    const report = { level, tool: this.#owner.tool, path: `/${this.#owner.side}${pointer}`, message };
    const key = JSON.stringify(report);
    if (this.#found.size < MAX_REPORTS) this.#found.set(key, report);
  }
}

export type CodegenErrorCode = "CODEGEN_MANIFEST" | "CODEGEN_TOO_LARGE" | "CODEGEN_TARGET";

/** What was handed in cannot be generated from at all; parts that merely cannot be expressed are reports instead. */
export class CodegenError extends Error {
  readonly code: CodegenErrorCode;
  constructor(code: CodegenErrorCode, message: string) {
    super(message);
    this.name = "CodegenError";
    this.code = code;
  }
}

export interface CodegenLimits {
  maxTools: number;
  /** JSON values in one schema. */
  maxValues: number;
  /** Levels of JSON nesting in one schema. */
  maxDepth: number;
  /** Values of one `enum`. */
  maxEnum: number;
  /** Named types made from one tool; what is beyond becomes opaque and is reported. */
  maxTypes: number;
  /** Instructions of one compiled pattern, after repetitions are unrolled. */
  maxPatternSize: number;
}

export const DEFAULT_CODEGEN_LIMITS: Readonly<CodegenLimits> = {
  maxTools: 10_000,
  maxValues: 50_000,
  maxDepth: 128,
  maxEnum: 20_000,
  maxTypes: 2_000,
  maxPatternSize: 20_000,
};
