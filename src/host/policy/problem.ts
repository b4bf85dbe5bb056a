// What is wrong with a policy, where, and what to do about it.

export interface HostPolicyProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** `commands[2].exec` */
  readonly path: string;
  readonly message: string;
  readonly remedy: string;
}

export function problemText(problem: HostPolicyProblem): string {
  const where = problem.path === "" ? "" : ` ${problem.path}:`;
  return `${problem.file}:${problem.line}:${problem.column}:${where} ${problem.message}; ${problem.remedy}`;
}
