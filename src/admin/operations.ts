// What each operation of the admin API takes and returns, as shapes: the server checks what it is given by them, the
// OpenAPI document is made from them, and the console and the command line take their types from here.
//
// Times are ISO 8601 in UTC. Text that came from callers and servers has its invisible characters escaped. A page is read
// on with its `next`, which means nothing else. The id of a record is `LEDGER#NUMBER`.

import {
  anyObject,
  flag,
  type Infer,
  integer,
  type JsonValue,
  list,
  object,
  oneOf,
  optional,
  required,
  type Shape,
  textShape,
} from "../mcp/index.js";
import type { OperationName } from "./routes.js";

const MAX_TEXT = 4 * 1024 * 1024;
const MAX_ITEMS = 100_000;

const line = (about: string): Shape<string> => textShape(about, { max: MAX_TEXT });
const lines = (about: string): Shape<readonly string[]> => list(about, line("one of them"), { max: MAX_ITEMS });
const count = (about: string): Shape<number> => integer(about, { min: 0, max: Number.MAX_SAFE_INTEGER });
const many = <T>(about: string, item: Shape<T>): Shape<readonly T[]> => list(about, item, { max: MAX_ITEMS });
const time = (about: string): Shape<string> => {
  const { schema, check } = textShape(about, { max: 40 });
  return { schema: { ...schema, format: "date-time" }, check };
};

const number = (about: string): Shape<number> => ({
  schema: { type: "number", description: about },
  check: (value, path, problems) => {
    if (typeof value === "number" && Number.isFinite(value)) return value;
    problems.push({ path, message: "must be a number" });
    return undefined;
  },
});

const anything = (about: string): Shape<JsonValue> => ({
  schema: { description: about },
  check: (value) => value as JsonValue,
});

const NAME = { max: 256, min: 1 } as const;
const app = textShape("the application", NAME);
const appFilter = optional(textShape("only this application", NAME));
const ledgerName = textShape("the name of the ledger", { min: 1, max: 512 });
const recordId = textShape("the ledger and the number of the record: LEDGER#NUMBER", { min: 1, max: 600 });
const cursor = optional(textShape("`next` of the page before", { max: 4096 }));
const limit = optional(integer("items of a page; 100 unless given", { min: 1, max: 1000 }));
const effect = oneOf("what was decided", ["permit", "deny", "challenge"]);
const nothing = object("nothing", {});

// ---- sign-in ----------------------------------------------------------------------------------------------------------

const role = oneOf("a role", ["viewer", "auditor", "approver", "operator"]);

const session = object("who is signed in, and what that allows", {
  name: required(line("the name that the ledger records for every write")),
  roles: required(many("what it may do", role)),
  groups: required(lines("the approver groups that it answers for")),
  app: optional(line("the only application that it sees; all where it is absent")),
  sees_arguments: required(flag("whether arguments of calls are shown")),
  expires_at: optional(time("when the session ends at the latest; absent for a credential in a header")),
  idle_ms: optional(count("after how long without a request the session ends")),
  version: required(line("the version of the gateway")),
  kind: required(oneOf("what is served", ["gateway", "host", "demonstration"])),
  operations: required(lines("the operations that it may use")),
});

const signedIn = object("what a browser keeps besides the cookie", {
  page_key: required(
    line("sent as `portcullis-page-key` with every request of the session; kept in local storage, never in a cookie"),
  ),
  session: required(session),
});

// ---- calls ------------------------------------------------------------------------------------------------------------

const rule = object("a rule", {
  id: required(line("its id")),
  file: optional(line("where it stands")),
  line: optional(count("the line in that file")),
  text: optional(line("its text")),
});

const decision = object("a decision", {
  id: required(recordId),
  ledger: required(ledgerName),
  seq: required(count("its number in the ledger")),
  at: required(time("when it was decided")),
  call: required(line("the call")),
  trace: required(line("the trace")),
  app: required(line("the application")),
  agent: required(line("the agent")),
  user: optional(line("the user behind the agent")),
  method: required(line("the MCP method")),
  tool: required(line("the tool, resource or prompt")),
  server: required(line("the server that would run it")),
  effect: required(effect),
  mode: required(oneOf("whether the decision was enforced", ["enforce", "observe"])),
  rules: required(lines("the rules that decided")),
  reason: required(line("the reason")),
  policy: required(line("the hash of the policy that it was decided by")),
  arguments_id: required(line("the content id of the arguments")),
  arguments: optional(line("the canonical arguments, where they were kept and may be seen")),
  outcome: optional(
    line("how the call ended, where that is known: ok, tool_error, timeout, cancelled, failed, unknown"),
  ),
  latency_ms: optional(number("how long the tool took")),
  bytes: optional(number("the size of the result")),
});

const challenge = {
  id: required(line("its id")),
  state: required(oneOf("its state", ["pending", "approved", "denied", "redeemed", "expired"])),
  app: required(line("the application")),
  agent: required(line("the agent")),
  holder: optional(line("the agent of the credential, where a delegation made the caller another one")),
  user: optional(line("the user behind the agent")),
  client: optional(line("what the client calls itself; not verified")),
  method: required(line("the MCP method")),
  tool: required(line("the tool")),
  binding: required(line("how its server is connected, and its name")),
  intent_id: required(line("the content id of everything that would be sent: what is approved")),
  arguments_id: required(line("the content id of the arguments")),
  arguments_preview: required(line("the beginning of the canonical arguments")),
  arguments_chars: required(count("how many characters they have")),
  forwarded_chars: required(count("how many characters travel beside the arguments; 2 for none")),
  rules: required(many("the rules that want an approval", rule)),
  approvers: required(lines("the groups of which one member has to answer")),
  reason: required(line("why an approval is needed")),
  policy_hash: required(line("the hash of the policy")),
  created_at: required(time("when it was asked for")),
  expires_at: required(time("until when it can be answered")),
  decided_by: optional(line("who answered")),
  deny_reason: optional(line("why it was denied")),
  answerable: required(flag("whether the one who is signed in may answer it")),
};

const approvalRow = object("an approval request", challenge);

const answeredApproval = object("an approval request as it is now", {
  ...challenge,
  arguments: required(line("the full canonical arguments")),
  forwarded: required(line("everything that travels beside them; {} for nothing")),
});

const grantBound = object("what a grant covers", {
  app: required(line("the application")),
  agent: required(line("the agent")),
  tool: required(line("the tool, with the definition that was shown")),
  rules: required(lines("exactly these rules")),
  fixed: required(anyObject("arguments that must be equal; all others may be any that policy lets through")),
  free: required(lines("arguments that may be anything")),
  until: required(time("when it ends")),
});

const approval = object("an approval request with everything that an approver needs", {
  ...challenge,
  arguments: required(line("the full canonical arguments")),
  forwarded: required(line("everything that travels beside them; {} for nothing")),
  server: optional(line("the name of its server")),
  description: optional(line("what the tool says about itself; written by its server")),
  hints: optional(anyObject("the tool's annotations; written by its server")),
  now: required(time("the time of the gateway, to count down by")),
  last_approved: optional(
    object("the last call of this agent that was approved under the same rules", {
      at: required(time("when")),
      by: required(line("by whom")),
      arguments: optional(line("its canonical arguments, where they were kept")),
    }),
  ),
  recent: required(many("what this agent did in the last minutes, newest first", decision)),
  grant: required(grantBound),
});

const grant = object("calls that are approved in advance", {
  id: required(line("its id")),
  bound: required(grantBound),
  by: required(line("who granted it")),
  created_at: required(time("when")),
  used: required(count("how many calls it approved")),
  state: required(oneOf("whether it is in force", ["active", "expired", "revoked"])),
});

const reason = optional(textShape("the reason; the model reads it when the call is denied", { max: 2000 }));
const challengeId = required(textShape("the approval request", { min: 1, max: 64, pattern: "^[A-Za-z0-9_-]+$" }));

// ---- decisions --------------------------------------------------------------------------------------------------------

const filter = {
  app: appFilter,
  agent: optional(textShape("only this agent", NAME)),
  user: optional(textShape("only this user", NAME)),
  tool: optional(textShape("only this tool; a * at the end matches every rest", NAME)),
  effect: optional(effect),
  rule: optional(textShape("only decisions of this rule", NAME)),
  trace: optional(textShape("only this trace or call", NAME)),
  from: optional(textShape("not before this time", { max: 40 })),
  to: optional(textShape("before this time", { max: 40 })),
  all: optional(oneOf("`1` includes lists and other calls that no rule decides", ["1"])),
};

const explainedRule = object("a rule and what it came to", {
  id: required(line("its id")),
  file: required(line("its file")),
  line: required(count("its line")),
  effect: required(oneOf("its effect", ["permit", "forbid"])),
  matched: required(flag("whether it applied")),
  text: optional(line("its text")),
  deciding: required(
    object("the part that settled it", {
      part: required(line("principal, action, resource, when, unless or rule")),
      text: required(line("its text")),
      line: required(count("its line")),
      column: required(count("its column")),
    }),
  ),
  values: required(
    many(
      "what the deciding part read",
      object("a value", {
        expression: required(line("the expression")),
        value: optional(line("its value")),
        problem: optional(line("why there is none")),
      }),
    ),
  ),
  error: optional(line("why it could not be evaluated")),
});

const explanation = object("why a call is decided as it is", {
  effect: required(effect),
  reason: required(line("the reason")),
  rules: required(many("every rule whose action fits", explainedRule)),
  refused_by: optional(oneOf("what denies the call besides policy", ["schema", "guardrail"])),
  problems: required(lines("what is wrong with the arguments")),
  errors: required(lines("rules that could not be evaluated")),
});

// ---- policies ---------------------------------------------------------------------------------------------------------

const sourceFile = object("a policy file", {
  file: required(textShape("its name", { min: 1, max: 1024 })),
  text: required(textShape("its text", { max: 1024 * 1024 })),
});
const sources = list("policy files", sourceFile, { max: 200 });

const problem = object("a problem of a policy", {
  file: required(line("the file")),
  line: required(count("the line; 0 for the whole file")),
  column: required(count("the column")),
  message: required(line("what is wrong")),
  help: required(line("the remedy; empty where there is nothing to add")),
});

const policyFile = object("a policy file in force", {
  file: required(line("its name; the path of a file for all applications")),
  scope: required(oneOf("who it is for", ["all", "application", "module", "host"])),
  writable: required(flag("whether it can be changed here")),
  text: required(line("its text")),
});

const policies = object("the policies of an application", {
  app: required(line("the application")),
  hash: required(line("the hash of what is in force")),
  files: required(many("the files, in order", policyFile)),
  rules: required(many("the rules in force", rule)),
  warnings: required(many("not wrong, but worth a look", problem)),
  refusal: optional(line("why the files as they are now are not in force")),
  tools: required(
    many(
      "the tools, for completion",
      object("a tool", {
        name: required(line("its name")),
        server: required(line("its server")),
        description: optional(line("its description")),
        input_schema: required(anything("the schema of its arguments")),
      }),
    ),
  ),
});

const lineDifference = object("a file and how it differs", {
  file: required(line("the file")),
  state: required(oneOf("what happens to it", ["added", "removed", "changed", "same"])),
  /** Unified: `-` and `+` lines between unchanged ones. */
  lines: required(
    many(
      "the lines",
      object("a line", {
        kind: required(oneOf("its kind", ["same", "removed", "added"])),
        text: required(line("its text")),
      }),
    ),
  ),
});

const comparison = object("what a draft would change", {
  hash: required(line("the hash of the draft")),
  base: required(line("the hash of what is in force")),
  files: required(many("the line difference", lineDifference)),
  added: required(lines("rules that are added")),
  removed: required(lines("rules that are removed")),
  changed: required(lines("rules that mean something else")),
  replay: required(
    object("the recorded calls, decided again", {
      compared: required(count("calls that were decided by both")),
      skipped: required(count("calls without kept arguments, or of tools that are gone")),
      changes: required(
        many(
          "counts by change",
          object("a change", {
            before: required(effect),
            after: required(effect),
            count: required(count("how many calls")),
          }),
        ),
      ),
      calls: required(
        many(
          "calls that would be decided otherwise, newest first",
          object("a call", {
            before: required(effect),
            after: required(effect),
            rules: required(lines("the rules of the draft that decide it")),
            decision: required(decision),
          }),
        ),
      ),
    }),
  ),
});

const version = object("a policy that was in force", {
  hash: required(line("its hash")),
  app: optional(line("its application; absent for the rules of all")),
  at: required(time("since when")),
  by: optional(line("who activated it, where it was activated here")),
  files: required(lines("its files")),
  record: required(recordId),
  has_text: required(flag("whether its text is kept, so that it can be read and activated again")),
});

const draft = object("a draft", {
  name: required(textShape("its name", { min: 1, max: 64, pattern: "^[A-Za-z0-9_-]+$" })),
  app: required(line("the application")),
  base: required(line("the hash of what was in force when it was begun")),
  by: required(line("who saved it last")),
  at: required(time("when")),
  files: required(sources),
});

// ---- applications -----------------------------------------------------------------------------------------------------

const server = object("the state of a server", {
  replica: required(line("the process that reports it")),
  app: required(line("the application")),
  server: required(line("its name")),
  state: required(line("idle, starting, ready, failed or stopped")),
  circuit: required(line("closed, open or half-open")),
  transport: required(line("how it is connected")),
  revision: optional(line("the MCP revision")),
  tools: required(count("tools that callers may see")),
  instances: optional(count("processes or connections")),
  in_flight: required(count("calls under way")),
  queued: required(count("calls that wait")),
  restarts: required(count("connections that were made again")),
  calls: required(count("calls")),
  failures: required(count("calls that failed or timed out")),
  counts: optional(anyObject("what became of calls and messages, in numbers")),
  pid: optional(count("its process")),
  exit: optional(line("how its last process ended by itself")),
  containment: optional(line("what makes sure that nothing it started outlives it")),
  sandbox: optional(anyObject("what is in force between it and the machine")),
  last_error: optional(
    object("the last error", {
      at: required(time("when")),
      message: required(line("what")),
      cause: optional(line("why a server does not start: what was refused, its last words; for the operator alone")),
    }),
  ),
  remedies: optional(lines("what would open its profile while it does not start")),
  stderr: optional(line("the end of what it wrote to stderr; for the operator alone")),
  pending_pins: required(count("definitions that wait for review")),
});

const pinChange = object("a part of a definition that changed", {
  path: required(lines("where")),
  before: optional(line("what it was, with invisible characters escaped")),
  after: optional(line("what it is")),
});

const pinDifference = object("a definition that waits for review", {
  kind: required(oneOf("its kind", ["tool", "prompt", "template", "instructions"])),
  name: required(line("its name")),
  hash: required(line("the hash of exactly this definition")),
  is_new: required(flag("whether it was never accepted in any form")),
  before: optional(line("the accepted definition, laid out")),
  after: required(line("the definition that waits, laid out")),
  changes: required(many("what differs", pinChange)),
});

const tool = object("a tool of a server", {
  name: required(line("the name that policy uses")),
  description: optional(line("what it says about itself")),
  hints: optional(anyObject("its annotations")),
  input_schema: required(anything("the schema of its arguments")),
  read_only: required(flag("declared by the operator to change nothing")),
  needs_guardrail: required(flag("whether a guardrail is required")),
  pin: optional(line("the hash of the accepted definition")),
});

const serverDetail = object("a server", {
  app: required(line("the application")),
  server: required(line("its name")),
  entry: required(anyObject("its entry in the document, with values that are secret removed")),
  processes: required(many("its state in each process", server)),
  tools: required(many("what it offers to callers", tool)),
  pending: required(many("definitions that wait for review", pinDifference)),
  left_out: required(
    many(
      "what it offers and callers do not see",
      object("a definition", { name: required(line("its name")), reason: required(line("why")) }),
    ),
  ),
});

const limitUse = object("a limit and how much of it is used", {
  per: required(line("app, agent or tool")),
  name: required(line("perMinute, perHour, concurrent, bytesPerMinute or costPerHour")),
  max: required(count("the limit")),
  used: optional(number("the use of the last minute or hour, where it is known")),
});

const applicationRow = object("an application", {
  app: required(line("its name")),
  description: optional(line("its description")),
  servers: required(count("servers")),
  keys: required(count("keys in force")),
  policies: required(lines("its own policy files")),
  refused: optional(line("why it is not served as its document says")),
  revision: required(count("counts up with every change")),
  updated_at: optional(time("when it was changed")),
});

const key = object("an API key", {
  id: required(line("its id")),
  app: required(line("the application")),
  agent: required(line("the agent")),
  name: required(line("its name")),
  prefix: required(line("how its owner recognises it")),
  permissions: required(lines("what it may do")),
  per_minute: optional(count("its limit")),
  per_hour: optional(count("its limit")),
  created_at: required(time("when it was created")),
  expires_at: optional(time("when it expires")),
  revoked_at: optional(time("when it was revoked")),
  last_used_at: optional(time("when it was used last")),
});

const secret = object("a secret; its value is never shown", {
  name: required(line("its name")),
  updated_at: required(time("when it was set")),
});

const secretName = textShape("the name of the secret", {
  min: 1,
  max: 128,
  pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
  patternSays: "it has letters, digits and _ and begins with no digit",
});

const applicationDetail = object("an application", {
  app: required(line("its name")),
  description: optional(line("its description")),
  document: required(anyObject("its document, with values that are secret removed")),
  members: required(
    many(
      "agents that have called or hold a key",
      object("an agent", {
        agent: required(line("its name")),
        keys: required(count("its keys in force")),
        last_call: optional(time("its last call among the newest records")),
      }),
    ),
  ),
  limits: required(many("the limits", limitUse)),
  keys: required(many("its keys", key)),
  secrets: required(many("its secrets", secret)),
  refused: optional(line("why it is not served as its document says")),
});

// ---- emergency stop ---------------------------------------------------------------------------------------------------

const haltTarget = {
  app: optional(textShape("calls of this application", NAME)),
  agent: optional(textShape("calls of this agent, and of agents that it delegated to", NAME)),
  server: optional(textShape("calls to this server, and its requests to clients", NAME)),
  tool: optional(textShape("calls of this tool; a * at the end matches every rest", NAME)),
};

const haltRow = object("a halt: calls that fit every field are denied; every call where it has none", {
  target: required(line("what is halted, as one text")),
  ...haltTarget,
  by: required(line("who halted it")),
  reason: required(line("the reason; callers read it")),
  since: required(time("when")),
  source: required(oneOf("where it is kept; a halt by file is resumed by removing the file", ["store", "file"])),
});

// ---- ledgers ----------------------------------------------------------------------------------------------------------

const ledger = object("a ledger", {
  ledger: required(ledgerName),
  origin: optional(line("the name that its checkpoints are signed for")),
  first: required(count("its first record; those before it were pruned")),
  size: required(count("the number of the next record")),
  signed: required(count("records that the last checkpoint covers")),
  checkpoint: optional(line("the last checkpoint, as it is signed")),
  checkpoint_at: optional(time("when it was signed")),
  own: required(flag("whether the process that answers writes it")),
  healthy: required(flag("whether it can be written, as far as that is known here")),
  problem: optional(line("why it cannot")),
});

const record = object("a record", {
  id: required(recordId),
  seq: required(count("its number")),
  at: required(time("when")),
  kind: required(line("decision, outcome, challenge, approval, policy, admin, key or start")),
  summary: required(line("one line about it")),
  record: required(anyObject("the record, without arguments for those who may not see them")),
});

const verification = object("a verification of a ledger", {
  id: required(line("its id")),
  ledger: required(ledgerName),
  state: required(oneOf("its state", ["running", "done", "failed"])),
  /** Between 0 and 1. */
  progress: required(number("how much was read, between 0 and 1")),
  started_at: required(time("when it was started")),
  ok: optional(flag("whether nothing is wrong")),
  records: optional(count("records that were read")),
  covered: optional(count("records below this number are under a signed checkpoint")),
  problems: required(lines("what is wrong")),
  notes: required(lines("worth knowing, not wrong")),
});

const histogram = object("decisions over time", {
  from: optional(time("the first bucket")),
  bucket_ms: required(count("the width of a bucket")),
  buckets: required(
    many(
      "oldest first",
      object("a bucket", {
        at: required(time("its beginning")),
        permit: required(count("permitted")),
        deny: required(count("denied")),
        challenge: required(count("that needed an approval")),
      }),
    ),
  ),
  latency: required(
    object("how long permitted calls took", {
      calls: required(count("calls with a known time")),
      p50_ms: optional(number("median")),
      p95_ms: optional(number("95th percentile")),
      p99_ms: optional(number("99th percentile")),
    }),
  ),
  scanned: required(count("records that were read for it")),
  complete: required(flag("false when the bound of records was reached, and older ones are not counted")),
});

const overview = object("what needs attention, and what happens", {
  now: required(time("the time of the gateway")),
  waiting: required(count("approval requests without an answer")),
  oldest_waiting_ms: required(count("how long the oldest of them has waited")),
  problems: required(
    many(
      "what is red",
      object("a problem", {
        what: required(line("component, application or server")),
        message: required(line("what is wrong")),
        screen: required(oneOf("where it is shown", ["servers", "policy", "applications", "ledger", "overview"])),
      }),
    ),
  ),
  histogram: required(histogram),
  denied_rules: required(
    many(
      "the rules that denied most, among the newest records",
      object("a rule", { id: required(line("its id")), count: required(count("denials")) }),
    ),
  ),
  unused_permits: required(many("permit rules that no call among the newest records used", rule)),
  replicas: required(
    many(
      "replicas",
      object("a replica", {
        id: required(line("its name")),
        version: optional(line("its version")),
        lag_ms: required(count("how much longer ago it registered than the latest")),
      }),
    ),
  ),
});

// ---- the table --------------------------------------------------------------------------------------------------------

const page = <T>(about: string, name: string, item: Shape<T>) =>
  object(about, {
    items: required(many(name, item)),
    next: optional(line("the cursor of the next page; absent on the last one")),
  });

const put = object("it was changed", { ok: required(flag("true")) });

/** What an operation takes and returns. */
interface Operation<I, R> {
  readonly about: string;
  readonly input: Shape<I>;
  readonly result: Shape<R>;
}

function operation<I, R>(about: string, input: Shape<I>, result: Shape<R>): Operation<I, R> {
  return { about, input, result };
}

export const OPERATIONS = {
  signIn: operation(
    "exchange the code of a one-time link, an operator token or an approver key for a session",
    object("one of both", {
      code: optional(textShape("the code of a one-time link", { max: 256 })),
      credential: optional(textShape("an operator token or an approver key", { max: 512 })),
    }),
    signedIn,
  ),
  getSession: operation("who is signed in", nothing, session),
  signOut: operation(
    "end the session",
    object("which", { everywhere: optional(flag("end every session of the same name, in every browser")) }),
    object("done", { ended: required(count("how many sessions were ended")) }),
  ),
  createSignInLink: operation(
    "create a code for a one-time sign-in link",
    nothing,
    object("a code", { code: required(line("the code")), expires_at: required(time("until when it can be used")) }),
  ),

  getOverview: operation("what waits, what is red, what happens", object("which", { app: appFilter }), overview),
  followEvents: operation(
    "changes as they happen; give the id of the last event as `last-event-id` to continue after it",
    object("which", { last: optional(textShape("like the header `last-event-id`", { max: 4096 })) }),
    anything("server-sent events: see AdminEvent"),
  ),

  listApprovals: operation(
    "approval requests, oldest first",
    object("which", {
      state: optional(textShape("only those in this state", { max: 16 })),
      app: appFilter,
    }),
    object("approval requests", { approvals: required(many("oldest first", approvalRow)) }),
  ),
  getApproval: operation("one approval request in full", object("which", { id: challengeId }), approval),
  approve: operation(
    "approve exactly this call, once",
    object("which", {
      id: challengeId,
      reason,
      intent_id: optional(line("the intent that was shown; checked when given")),
    }),
    answeredApproval,
  ),
  deny: operation("deny this call", object("which", { id: challengeId, reason }), answeredApproval),
  approveThese: operation(
    "approve several calls that were seen, each once",
    object("which", {
      these: required(
        list(
          "those that were seen",
          object("one", { id: challengeId, intent_id: required(textShape("the intent that was shown", { max: 256 })) }),
          { max: 100 },
        ),
      ),
      reason,
    }),
    object("what became of each", {
      results: required(
        many(
          "in the order of the request",
          object("one", {
            id: required(line("the approval request")),
            ok: required(flag("whether it is approved now")),
            problem: optional(line("why not")),
          }),
        ),
      ),
    }),
  ),
  grantApproval: operation(
    "approve this call, and further ones within a bound for a while",
    object("which and how long", {
      id: challengeId,
      intent_id: required(textShape("the intent that was shown", { max: 256 })),
      minutes: required(integer("for how long", { min: 1, max: 480 })),
      fixed: required(
        list("names of the arguments that must stay equal", textShape("a name", { max: 256 }), { max: 100 }),
      ),
      reason,
    }),
    grant,
  ),
  listGrants: operation(
    "calls that are approved in advance",
    object("which", { app: appFilter }),
    object("grants", { grants: required(many("newest first", grant)) }),
  ),
  revokeGrant: operation(
    "end a grant at once",
    object("which", { id: required(textShape("the grant", { min: 1, max: 64 })) }),
    grant,
  ),

  listDecisions: operation(
    "decisions, newest first; a page may have fewer items than asked for, or none, while there are more",
    object("which", { ...filter, cursor, limit }),
    page("decisions", "newest first", decision),
  ),
  getHistogram: operation(
    "decisions over time and how long calls took",
    object("which", {
      ...filter,
      buckets: optional(integer("how many buckets; 60 unless given", { min: 1, max: 500 })),
    }),
    histogram,
  ),
  explainDecision: operation(
    "why a call was decided as it was",
    object("which", { id: required(recordId) }),
    object("a decision and why", {
      decision: required(decision),
      records: required(many("all records of the call, oldest first", record)),
      explanation: optional(explanation),
      unexplained: optional(line("why it cannot be explained: arguments not kept, tool gone, no rule decided it")),
      same_policy: required(flag("whether the policy that explains it is the one that it was decided by")),
      covered: required(flag("whether a signed checkpoint covers the record")),
      test: optional(line("this call as a case for `portcullis policy test`")),
    }),
  ),
  proveDecision: operation(
    "inclusion proofs for every record of the call",
    object("which", { id: required(recordId) }),
    object("proofs", { proofs: required(many("one for each record", anyObject("an inclusion proof"))) }),
  ),
  getEvidence: operation(
    "decision, approval, policy text and pinned definition of one call, for an outsider to verify",
    object("which", { id: required(recordId) }),
    object("evidence", {
      type: required(oneOf("what this is", ["portcullis-evidence"])),
      v: required(integer("1", { min: 1, max: 1 })),
      call: required(line("the call")),
      proofs: required(many("proofs for the records of the call and of its approval", anyObject("an inclusion proof"))),
      policy: optional(
        object("the policy at that hash, where its text is kept", {
          hash: required(line("its hash")),
          files: required(sources),
        }),
      ),
      definition: optional(
        object("the definition of the tool that is pinned now", {
          hash: required(line("its hash")),
          text: required(line("its canonical text")),
        }),
      ),
    }),
  ),

  getPolicies: operation("the policies of an application", object("which", { app: required(app) }), policies),
  checkPolicies: operation(
    "check policy files with the real checker, against the tools of the application",
    object("what", { app: required(app), files: required(sources) }),
    object("what was found", {
      ok: required(flag("whether they can be activated")),
      hash: optional(line("their hash")),
      problems: required(many("what is wrong", problem)),
      warnings: required(many("worth a look", problem)),
    }),
  ),
  tryCall: operation(
    "decide a call that is not made, by what is in force or by a draft",
    object("what", {
      app: required(app),
      agent: required(textShape("the agent", NAME)),
      tool: required(textShape("the tool", NAME)),
      arguments: required(anyObject("its arguments")),
      files: optional(sources),
    }),
    explanation,
  ),
  comparePolicies: operation(
    "the line difference of a draft, and the newest recorded calls decided again",
    object("what", {
      app: required(app),
      files: required(sources),
      last: optional(integer("how many recorded calls; 1,000 unless given", { min: 1, max: 10_000 })),
    }),
    comparison,
  ),
  activatePolicies: operation(
    "put these files in force for the application",
    object("what", {
      app: required(app),
      files: required(sources),
      base: required(textShape("the hash that was in force when they were compared", { max: 128 })),
    }),
    object("what is in force now", { hash: required(line("its hash")) }),
  ),
  listPolicyVersions: operation(
    "policies that were in force, newest first",
    object("which", { app: appFilter, cursor, limit }),
    page("versions", "newest first", version),
  ),
  getPolicyVersion: operation(
    "the text of a policy that was in force",
    object("which", {
      hash: required(textShape("its hash", { max: 128, pattern: "^[0-9a-f]{8,128}$" })),
      app: required(app),
    }),
    object("a version", { hash: required(line("its hash")), files: required(sources) }),
  ),
  suggestPolicy: operation(
    "the narrowest policy that permits the recorded calls",
    object("which", { app: required(app), only_denied: optional(oneOf("`1`: only what was not permitted", ["1"])) }),
    object("a suggestion", { text: required(line("Cedar")), calls: required(count("calls that it permits")) }),
  ),
  listDrafts: operation(
    "drafts of policies",
    object("which", { app: appFilter }),
    object("drafts", { drafts: required(many("by name", draft)) }),
  ),
  putDraft: operation(
    "save a draft",
    object("what", {
      name: required(textShape("its name", { min: 1, max: 64, pattern: "^[A-Za-z0-9_-]+$" })),
      app: required(app),
      base: required(textShape("the hash that was in force when it was begun", { max: 128 })),
      files: required(sources),
    }),
    draft,
  ),
  removeDraft: operation(
    "remove a draft",
    object("which", { name: required(textShape("its name", { min: 1, max: 64, pattern: "^[A-Za-z0-9_-]+$" })) }),
    put,
  ),

  listApplications: operation(
    "applications",
    nothing,
    object("applications", { applications: required(many("by name", applicationRow)) }),
  ),
  getApplication: operation("one application", object("which", { app: required(app) }), applicationDetail),
  listServers: operation(
    "servers and how they are",
    object("which", { app: appFilter }),
    object("servers", { servers: required(many("one for each process", server)) }),
  ),
  getServer: operation(
    "one server: its state, tools, pins and what waits for review",
    object("which", { app: required(app), server: required(textShape("the server", NAME)) }),
    serverDetail,
  ),
  putServer: operation(
    "add a server, or replace its entry",
    object("what", {
      app: required(app),
      server: required(textShape("the server", { min: 1, max: 63, pattern: "^[A-Za-z0-9][A-Za-z0-9_-]*$" })),
      entry: required(anyObject("its entry, as in the document of an application or in a client's `mcpServers`")),
    }),
    put,
  ),
  removeServer: operation(
    "remove a server",
    object("which", { app: required(app), server: required(textShape("the server", NAME)) }),
    put,
  ),
  acceptPin: operation(
    "accept exactly this definition",
    object("which", {
      app: required(app),
      server: required(textShape("the server", NAME)),
      kind: required(oneOf("its kind", ["tool", "prompt", "template", "instructions"])),
      name: required(textShape("its name", { max: 2048 })),
      hash: required(textShape("the hash that was shown", { max: 128 })),
    }),
    put,
  ),
  listKeys: operation(
    "API keys",
    object("which", { app: appFilter, active: optional(oneOf("`1`: only those in force", ["1"])), cursor, limit }),
    page("keys", "by id", key),
  ),
  createKey: operation(
    "create an API key; it is in this answer and nowhere else",
    object("what", {
      app: required(app),
      name: required(textShape("its name", NAME)),
      agent: optional(textShape("the agent; the name unless given", NAME)),
      permissions: required(list("what it may do", textShape("a permission", { min: 1, max: 300 }), { max: 1000 })),
      per_minute: optional(integer("its limit", { min: 1, max: 1_000_000_000 })),
      per_hour: optional(integer("its limit", { min: 1, max: 1_000_000_000 })),
      expires_at: optional(textShape("when it expires", { max: 40 })),
    }),
    object("a key", { token: required(line("the key itself")), key: required(key) }),
  ),
  revokeKey: operation("revoke a key", object("which", { id: required(textShape("the key", NAME)) }), put),
  listSecrets: operation(
    "names of secrets",
    object("which", { app: required(app) }),
    object("secrets", { secrets: required(many("by name", secret)) }),
  ),
  putSecret: operation(
    "set a secret; no operation returns its value",
    object("what", {
      app: required(app),
      name: required(secretName),
      value: required(textShape("the value", { min: 1, max: 65_536 })),
    }),
    put,
  ),
  removeSecret: operation("remove a secret", object("which", { app: required(app), name: required(secretName) }), put),

  listHalts: operation("the halts in force", nothing, object("halts", { halts: required(many("by target", haltRow)) })),
  halt: operation(
    "deny every call that fits, at every gateway of the store, until it is resumed",
    object("what", { ...haltTarget, reason }),
    haltRow,
  ),
  resume: operation("end the halt of exactly this target", object("which", haltTarget), put),

  getWorkflow: operation(
    "the workflow in force, as a graph",
    nothing,
    object("a workflow", {
      served: required(flag("whether a workflow is in force")),
      app: optional(line("the application whose callers are its agents")),
      text: optional(line("the file")),
      graph: optional(anyObject("like `portcullis lattice graph --format json`")),
    }),
  ),
  checkWorkflow: operation(
    "check a workflow without serving it",
    object("what", { text: required(textShape("the workflow, as YAML or JSON", { max: 1024 * 1024 })) }),
    object("what was found", {
      ok: required(flag("whether there is no violation")),
      problem: optional(line("why it cannot be read")),
      graph: optional(anyObject("like `portcullis lattice graph --format json`")),
    }),
  ),
  listDelegations: operation(
    "which delegations of the workflow the newest records used",
    nothing,
    object("delegations", {
      delegations: required(
        many(
          "by use",
          object("a delegation", {
            from: required(line("the agent that delegated")),
            to: required(line("the agent that called")),
            calls: required(count("calls among the newest records")),
            last: required(time("the last of them")),
          }),
        ),
      ),
      scanned: required(count("records that were read for it")),
    }),
  ),

  listLedgers: operation("ledgers", nothing, object("ledgers", { ledgers: required(many("by name", ledger)) })),
  listRecords: operation(
    "records of one ledger from a number on, oldest first",
    object("which", {
      ledger: required(ledgerName),
      from: optional(count("the first record; the newest page unless given")),
      limit,
      kind: optional(textShape("only records of this kind", { max: 16 })),
    }),
    object("records", {
      items: required(many("oldest first", record)),
      first: required(count("the first record that the ledger still holds")),
      size: required(count("the number of the next record")),
    }),
  ),
  verifyLedger: operation(
    "verify every record of a ledger",
    object("which", { ledger: required(ledgerName) }),
    verification,
  ),
  getVerification: operation(
    "how far a verification is",
    object("which", { id: required(textShape("its id", { max: 64 })) }),
    verification,
  ),

  getOpenApi: operation("this API as OpenAPI 3.1", nothing, anyObject("an OpenAPI document")),
} as const satisfies Record<OperationName, Operation<unknown, unknown>>;

export type OperationInput<N extends OperationName> = Infer<(typeof OPERATIONS)[N]["input"]>;
export type OperationResult<N extends OperationName> = Infer<(typeof OPERATIONS)[N]["result"]>;

export type SessionFacts = Infer<typeof session>;
export type DecisionRow = Infer<typeof decision>;
export type ApprovalRow = Infer<typeof approvalRow>;
export type ApprovalDetail = Infer<typeof approval>;
export type GrantRow = Infer<typeof grant>;
export type ExplanationView = Infer<typeof explanation>;
export type HaltRow = Infer<typeof haltRow>;
export type RecordRow = Infer<typeof record>;
export type ServerRow = Infer<typeof server>;
export type VerificationView = Infer<typeof verification>;

/**
 * One server-sent event: `event` is its `type`, `data` is the rest as JSON, `id` continues after it. After `reset` what is
 * shown has to be read again: too much happened since the last event.
 */
export type AdminEvent =
  | { readonly type: "hello"; readonly resumed: boolean; readonly version: string }
  | { readonly type: "reset" }
  /** Decisions and other records, in the order of their ledgers; a decision without its outcome comes again with it. */
  | { readonly type: "decisions"; readonly items: readonly DecisionRow[] }
  | { readonly type: "approvals"; readonly pending: number; readonly changed: readonly string[] }
  /** Something else that is kept was changed: read it again where it is shown. */
  | { readonly type: "changed"; readonly topic: ChangedTopic; readonly app: string; readonly name: string }
  | { readonly type: "verification"; readonly verification: VerificationView };

export type ChangedTopic = "application" | "key" | "secret" | "pin" | "policy" | "grant" | "draft" | "server";
