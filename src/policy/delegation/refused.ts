/** Why a delegation token was refused. Callers may rely on these names. */
export type DelegationProblem =
  | "malformed"
  | "forged"
  | "expired"
  | "widened"
  | "wrong-audience"
  | "not-declared"
  | "unspent"
  | "replayed"
  | "too-many";

export class DelegationRefused extends Error {
  readonly code: DelegationProblem;

  constructor(code: DelegationProblem, message: string) {
    super(message);
    this.name = "DelegationRefused";
    this.code = code;
  }
}
