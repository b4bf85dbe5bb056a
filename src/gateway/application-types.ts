import type { Identify } from "../auth/index.js";
import type { Ledger } from "../ledger/index.js";
import type { RetainedBytes } from "../mcp/index.js";
import type { Implementation, ServerDefinition, Tool } from "../mcp/server/index.js";
import type { CallsInFlight, GatewayLimits, Pipeline, RouteTable, StateCipher } from "../pipeline/index.js";
import type {
  Approvals,
  Check,
  FlowLabels,
  FlowMemory,
  Guardrail,
  GuardrailCallback,
  Halts,
  Limit,
  SharedLimits,
} from "../policy/index.js";
import type { Application, ServerEntry } from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";
import type { Catalogue, PinMode, Upstream } from "../upstream/index.js";
import type { Lists } from "./lists.js";
import type { PolicyCache } from "./policies.js";
import type { InProcessServer } from "./relay/catalogue.js";
import type { ReplicaBus } from "./replicas/bus.js";
import type { SessionKeeper } from "./sessions.js";

/** What all applications of a process share; the composition root creates it. */
export interface ApplicationServices {
  readonly info: Implementation;
  readonly mcpPath: string;
  readonly ledger: Ledger | undefined;
  readonly telemetry: Telemetry;
  readonly limits: GatewayLimits;
  readonly retained: RetainedBytes;
  readonly calls: CallsInFlight;
  readonly approvals: Approvals;
  readonly policies: PolicyCache;
  /** Loads the guardrail modules that documents name; without it they block every call that they cover. */
  readonly guardrailModule?: (file: string) => Promise<GuardrailCallback>;
  /** The server of an application that runs in this process, such as a module's; it needs no stored document. */
  readonly inProcess?: (app: string) => InProcessApplication | undefined;
  /** Called with the tools of an application whenever its policy was loaded for them. */
  readonly onTools?: (app: string, server: ServerDefinition, readOnly: ReadonlySet<string>) => void;
  /** Further checks of an application's decisions. */
  readonly checks?: (app: string) => readonly Check[];
  /** What conversations have read; shared by all applications. */
  readonly flowMemory?: FlowMemory;
  readonly halts?: Pick<Halts, "check">;
  readonly sharedLimits?: SharedLimits;
  /** Sessions of the older revisions that another replica can take over. */
  readonly sessions?: (app: string) => SessionKeeper;
  /** The other replicas, where there are any. */
  readonly bus?: ReplicaBus;
  readonly observe: boolean;
  readonly keepArguments: boolean;
  readonly approvalUrl?: (challenge: string) => string | undefined;
  /** Further addresses of the approval page, which no server may ask users to open. */
  readonly approvalAddresses?: () => readonly string[];
  readonly stateCipher: StateCipher;
  readonly pins: DefinitionPins;
  coreTools(application: Application): Promise<CoreTools>;
  connect(application: Application, server: string, entry: ServerEntry, user: string | undefined): Upstream;
}

/** An application whose tools run in this process, with what its author decided for them. */
export interface InProcessApplication extends InProcessServer {
  /** Cedar texts by file name, beside those for all applications. */
  readonly policies?: Readonly<Record<string, string>>;
  readonly guardrails?: readonly Guardrail[];
  readonly checks?: readonly Check[];
  /** Labels of information flow, where no document has any. */
  readonly flow?: FlowLabels;
  readonly limits?: readonly Limit[];
  /** Tools that are also plain JSON-RPC methods. */
  readonly plainMethods?: ReadonlySet<string>;
  readonly onDenied?: Gateway["onDenied"];
}

/** The core tools of one application. */
export interface CoreTools {
  readonly tools: readonly Tool[];
  /** Their checks. */
  readonly checks: readonly Check[];
  close(): Promise<void>;
}

/** `DefinitionPins` compares what servers offer with the definitions that were accepted. */
export interface DefinitionPins {
  /** What of the offered definitions may be shown; the rest waits for an operator. */
  accept(app: string, server: string, mode: PinMode, offered: Catalogue): Promise<Catalogue>;
  remembered(app: string, server: string, mode: PinMode): Promise<Remembered | undefined>;
}

/** What is known of a server that is not running. */
export interface Remembered {
  readonly catalogue: Catalogue;
  /** False when it may offer more than that: resources are not pinned. */
  readonly isComplete: boolean;
}

/** `Gateway` is what an endpoint serves: a pipeline, the server behind it and how its callers are identified. */
export interface Gateway extends Pipeline, RouteTable {
  readonly limits: Pipeline["limits"];
  readonly telemetry: Telemetry;
  readonly identify: Identify;
  /** Tools that are also plain JSON-RPC methods, without a handshake. */
  readonly plainMethods: ReadonlySet<string>;
  readonly lists: Lists;
}
