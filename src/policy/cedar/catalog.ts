// The actions there are: one for each tool, and the methods that are not tool calls, among them the requests of servers to
// clients (sampling, elicitation, roots). Work over thousands of tools is written as `Steps`.

import { isSliceOver, nextSlice } from "../../mcp/index.js";
import { type ActionInfo, TOOL_GROUP } from "./frame.js";
import { quoteString } from "./language/scan.js";
import { eitherShape, OPEN_RECORD, type RecordShape, shapeOfArguments, shapeText } from "./shape.js";
import type { PolicyProblem, PolicyRequest, ResourceType, ToolSummary } from "./types.js";

/** `yield` marks where the work may be interrupted. */
export type Steps<T> = Generator<undefined, T>;

export function run<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

export async function runInSlices<T>(steps: Steps<T>): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (isSliceOver()) await nextSlice();
  }
}

/** The methods that are actions by their own name, with the resources each is asked about. */
export const METHODS: Readonly<Record<string, readonly ResourceType[]>> = {
  "resources/read": ["Resource"],
  "resources/subscribe": ["Resource"],
  "prompts/get": ["Prompt"],
  "completion/complete": ["Prompt", "Resource"],
  "subscriptions/listen": ["Method"],
  "logging/setLevel": ["Method"],
  "sampling/createMessage": ["Agent"],
  "elicitation/create": ["Agent"],
  "roots/list": ["Agent"],
};

/** Requests that a server sends to a client: the server is the principal, the agent whose client is asked the resource. */
export const SERVER_REQUESTS = ["sampling/createMessage", "elicitation/create", "roots/list"] as const;
export type ServerRequestMethod = (typeof SERVER_REQUESTS)[number];

export interface PolicyAction extends ActionInfo {
  readonly resourceTypes: readonly ResourceType[];
  readonly isServerRequest: boolean;
  /** The tool of that name, where there is exactly one description of it. */
  readonly tool?: ToolSummary;
}

export class PolicyCatalog {
  readonly actions: ReadonlyMap<string, PolicyAction>;
  readonly problems: readonly PolicyProblem[];

  constructor(tools: readonly ToolSummary[], { actions, problems } = run(reading(tools))) {
    this.actions = actions;
    this.problems = problems;
  }

  static *steps(tools: readonly ToolSummary[]): Steps<PolicyCatalog> {
    return new PolicyCatalog([], yield* reading(tools));
  }

  isTool = (name: string): boolean => this.actions.get(name)?.isTool ?? false;

  get toolNames(): string[] {
    return [...this.actions.values()].filter((each) => each.isTool).map((each) => each.name);
  }

  /** Equal texts: rules were checked against the same tools. */
  canonicalText(): string {
    return run(this.canonicalTextSteps());
  }

  *canonicalTextSteps(): Steps<string> {
    const lines: string[] = [];
    for (const each of this.actions.values()) {
      const { server, tags = [], readOnly = false } = each.tool ?? { server: "" };
      lines.push(JSON.stringify([each.name, each.isTool, shapeText(each.shape), server, [...tags].sort(), readOnly]));
      yield;
    }
    return lines.sort().join("\n");
  }
}

function* reading(tools: readonly ToolSummary[]): Steps<Pick<PolicyCatalog, "actions" | "problems">> {
  const actions = new Map<string, PolicyAction>();
  const problems: PolicyProblem[] = [];
  for (const [name, resourceTypes] of Object.entries(METHODS)) {
    const isServerRequest = (SERVER_REQUESTS as readonly string[]).includes(name);
    actions.set(name, { name, isTool: false, shape: OPEN_RECORD, resourceTypes, isServerRequest });
  }
  for (const tool of tools) {
    const why = refuseName(tool.name);
    const known = actions.get(tool.name);
    if (why !== undefined) problems.push(toolProblem(tool, why));
    else actions.set(tool.name, known ? merge(known, tool) : action(tool));
    yield;
  }
  return { actions, problems };
}

function action(tool: ToolSummary): PolicyAction {
  const shape = shapeOfArguments(tool.inputSchema);
  return { name: tool.name, isTool: true, shape, resourceTypes: ["Tool"], isServerRequest: false, tool };
}

/** Two applications may each have a tool of one name: a rule then has to hold for both of them. */
function merge(known: PolicyAction, tool: ToolSummary): PolicyAction {
  const shape = eitherShape(known.shape, shapeOfArguments(tool.inputSchema)) as RecordShape;
  return { name: tool.name, isTool: true, shape, resourceTypes: ["Tool"], isServerRequest: false };
}

function refuseName(name: string): string | undefined {
  if (name === TOOL_GROUP || Object.hasOwn(METHODS, name))
    return `the name ${name} belongs to a method of the protocol`;
  if (name === "" || name.length > 512) return "a tool's name has 1 to 512 characters";
  return name.isWellFormed() ? undefined : "a tool's name must be well-formed Unicode";
}

function toolProblem(tool: ToolSummary, message: string): PolicyProblem {
  return { file: `tools of ${tool.server}`, line: 0, column: 0, message, help: "rename the tool" };
}

export interface ServerRequestParts {
  readonly app: string;
  readonly server: string;
  readonly method: ServerRequestMethod;
  /** The agent whose client would be asked, and the scopes of its credential. */
  readonly agent: string;
  readonly scope: readonly string[];
  readonly user?: string | undefined;
  readonly groups?: readonly string[] | undefined;
  /** What the call in flight is about. */
  readonly tool: string;
}

/** The agent name under which a server appears in records, limits and approval requests; no credential can have it. */
export function serverAgent(server: string): string {
  return `server:${server}`;
}

export function serverRequest(
  parts: ServerRequestParts,
): Pick<PolicyRequest, "app" | "agent" | "scope" | "user" | "groups" | "action" | "resource" | "serverRequest"> {
  const { app, server, method, agent, scope, user, groups, tool } = parts;
  return {
    app,
    agent: serverAgent(server),
    scope: [],
    user: undefined,
    groups: [],
    action: method,
    resource: { type: "Agent", id: `${app}/${agent}`, server, scope, user, groups },
    serverRequest: { server, tool },
  };
}

/** The narrowest rule that permits a server's request, for the log and `policy explain`. */
export function permitForServer(app: string, server: string, method: string): string {
  return `permit (principal == Server::${quoteString(server)}, action == Action::${quoteString(method)}, resource in App::${quoteString(app)});`;
}
