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
