/** What can be wrong with what the lattice is given. Each has one name that callers may rely on. */
export type LatticeErrorCode =
  | "LATTICE_MANIFEST"
  | "LATTICE_DUPLICATE"
  | "LATTICE_SYNTAX"
  | "LATTICE_SHAPE"
  | "LATTICE_UNKNOWN_NAME"
  | "LATTICE_EMPTY"
  | "LATTICE_CYCLE"
  | "LATTICE_TOO_LARGE";

export class LatticeError extends Error {
  readonly code: LatticeErrorCode;
  /** The line of the workflow file, counted from 1, where there is one. */
  readonly line: number | undefined;

  constructor(code: LatticeErrorCode, message: string, line?: number) {
    super(line === undefined ? message : `line ${line}: ${message}`);
    this.name = "LatticeError";
    this.code = code;
    this.line = line;
  }
}
