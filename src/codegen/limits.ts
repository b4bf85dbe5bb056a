// Manifests come from strangers: every size of theirs has a limit, far above what honest servers use.

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
