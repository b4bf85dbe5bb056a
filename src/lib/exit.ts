// Exit codes, and the one way to end with a message.

export const EXIT = {
  ok: 0,
  error: 1,
  deny: 2,
  invalidPolicy: 3,
  auth: 4,
  challenge: 5,
  usage: 64,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** A failure a user can act on: what was wrong, and what to do. */
export class CliError extends Error {
  readonly exitCode: ExitCode;
  readonly help: string | undefined;
  constructor(message: string, exitCode: ExitCode = EXIT.error, help?: string) {
    super(message);
    this.name = "CliError";
    this.exitCode = exitCode;
    this.help = help;
  }
}
