// One change of a stored application, refused where no gateway could load its policies.

import { CliError, EXIT } from "../../lib/exit.js";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { noApplication, operator } from "../../runtime/store/open.js";
import { type Application, type ApplicationDocument, clearCredentials, type Storage } from "../../storage/index.js";

/** Another caller may change the document between reading and writing it. */
const MAX_TRIES = 5;

const MAX_PROBLEMS = 50;

export interface ChangedApplication {
  readonly before: Application;
  readonly after: Application;
}

export async function changeApplication(
  storage: Storage,
  id: string,
  edit: (document: JsonObject) => JsonObject,
): Promise<ChangedApplication> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const before = await storage.applications.get(id);
    if (!before) throw noApplication(id);
    const document = edit(before.document as JsonObject) as ApplicationDocument;
    await refuseRules(id, before.document, document);
    const after = await storage.applications.put(id, document, operator(), before.revision);
    if (after) return { before, after };
  }
  throw new CliError(`application \`${id}\` keeps being changed by another caller; try again`);
}

/** Refuses policies that no gateway could load: running gateways would keep the old ones, and others would have none. */
async function refuseRules(id: string, before: ApplicationDocument, { policies }: ApplicationDocument): Promise<void> {
  if (!isTexts(policies) || JSON.stringify(policies) === JSON.stringify(before.policies)) return;
  // Cedar takes a while to load; the other fields do without it.
  const [{ rulesProblems, sourcesOf }, { describeProblem }] = await Promise.all([
    import("./document-checks.js"),
    import("../../policy/index.js"),
  ]);
  const problems = rulesProblems(sourcesOf(policies));
  if (problems.length === 0) return;
  const help = problems.slice(0, MAX_PROBLEMS).map(describeProblem).join("\n");
  const message = `the policies of application \`${id}\` are not valid; nothing was changed`;
  throw new CliError(message, EXIT.invalidPolicy, help);
}

/** The store reports every other problem of their shape. */
function isTexts(policies: unknown): policies is Record<string, string> {
  return isJsonObject(policies) && Object.values(policies).every((text) => typeof text === "string");
}

/** Warnings about a document that is stored as it is. */
export async function remarks({ id, document }: Application): Promise<string[]> {
  const remark =
    document.filesystem === undefined && document.linux === undefined
      ? undefined
      : (await import("./document-checks.js")).unusableHere(id, document);
  return [...clearCredentials(id, document as JsonObject), ...(remark === undefined ? [] : [remark])];
}
