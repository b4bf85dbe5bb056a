// The lines that the main process writes to a supervisor.

import type { Confinement, Protections, Without } from "./confinement.js";

export interface StartMessage {
  readonly type: "start";
  readonly confinement: Confinement;
  readonly without: Without;
  /** Where a scratch folder can be made when no view provides one. */
  readonly tmpdir: string;
  /** The supervisor was started inside a user namespace of its own. */
  readonly inUserNamespace: boolean;
  /** The supervisor was started as the first process of a PID namespace of its own. */
  readonly hasOwnProcesses: boolean;
  /** bubblewrap confines each command by itself; the supervisor only supervises. */
  readonly byBubblewrap: boolean;
}

export interface RunMessage {
  readonly type: "run";
  readonly id: number;
  /** Launchers, then the program and its arguments. */
  readonly argv: readonly string[];
  readonly executable: string;
  /** The program must be visible from where the supervisor stands. */
  readonly checkVisible: boolean;
  /** What it cannot start without, beside itself. */
  readonly needs: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Undefined: no folder of the caller's. INVARIANT: `rest` has no links and no `..`. */
  readonly cwd: { readonly root: string; readonly rest: string } | undefined;
  readonly stdin: string;
  /** For bubblewrap: the filter that it finds at its descriptor 3. Base64; empty for none. */
  readonly filter: string;
  readonly maxOutputBytes: number;
}

/** The supervisor's first frame. */
export interface ReadyMessage {
  readonly protections: Protections;
  /** Where commands may put temporary files: their HOME and TMPDIR. */
  readonly scratch: string;
}

export type FromMain =
  | StartMessage
  | RunMessage
  | { readonly type: "kill"; readonly id: number }
  | { readonly type: "clean"; readonly id: number };
