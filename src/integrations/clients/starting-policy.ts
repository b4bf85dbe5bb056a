// The rules an imported application begins with: closed by default and still useful, with an example of every answer.

/** Verbs that begin the names of tools that only look. `query` and `fetch` are not among them: they can do anything. */
const READS = ["get", "list", "read", "search", "find", "describe", "show"];
const DESTROYS = ["delete", "remove", "drop", "destroy", "purge"];
/** Names of tools that return environment variables or credentials, which reading alone gives away. */
const SENSITIVE = [
  ...["*.env", "*.env_*", "*.env-*", "*_env", "*_env_*", "*-env", "*-env-*", "*Env", "*environ*", "*Environ*"],
  ...["*secret*", "*Secret*", "*credential*", "*Credential*", "*password*", "*Password*"],
];

export const STARTING_POLICY_FILE = "imported.cedar";

export function startingPolicy(app: string): string {
  const beginsWith = (verbs: readonly string[]): string =>
    verbs.map((verb) => `resource.name like "*.${verb}_*" || resource.name like "*.${verb}-*"`).join(" ||\n  ");
  const isSensitive = SENSITIVE.map((pattern) => `resource.name like "${pattern}"`).join(" ||\n  ");
  return `// Who may call what in application ${app}. Written by \`portcullis import\`: read it, and change it as needed.
//
//   portcullis export --app ${app} --out .    writes these rules to a file beside portcullis.yaml; edit it, then
//   portcullis app apply portcullis.yaml      shows the difference and puts it in force, without a restart
//
// A call without a matching rule is denied. A forbid wins over every permit.

// Calls of tools are possible at all ...
@id("calls")
permit (principal, action in Action::"tools/call", resource);

// ... at once when its server declares that the tool only reads (readOnlyHint) or its name begins like one that does, and
// the server does not declare that it writes or destroys (destructiveHint); otherwise when an operator approved that very
// call. Names and hints are what servers say of themselves: where you do not trust one, name its tools one by one.
@id("ask-unless-it-reads")
@outcome("challenge") @approvers("operators")
@reason("This tool may change something, so an operator has to approve the call first.")
forbid (principal, action in Action::"tools/call", resource)
when {
  resource.tags.contains("hint:writes") || resource.tags.contains("hint:destructive") ||
  !(
  resource.tags.contains("hint:readOnly") ||
  ${beginsWith(READS)}
  )
}
unless { context.approved };

// Environment variables and credentials are given away by reading them.
@id("ask-before-secrets-are-read")
@outcome("challenge") @approvers("operators")
@reason("This tool may return environment variables or credentials, so an operator has to approve the call first.")
forbid (principal, action in Action::"tools/call", resource)
when {
  ${isSensitive}
}
unless { context.approved };

// Always denied, also with an approval. Remove this rule, and these calls need an approval instead.
@id("nothing-is-destroyed")
@reason("Tools that delete are closed here.")
forbid (principal, action in Action::"tools/call", resource)
when {
  ${beginsWith(DESTROYS)}
};

// Servers may not ask you (elicitation), use your model (sampling) or see your directories (roots). A request of a
// server is its own action, and a permit covers it only when it names it; take the slashes away for a server you trust.
//
// @id("server-may-ask")
// permit (principal == Server::"NAME", action == Action::"elicitation/create", resource in App::"${app}");

// What servers offer to be read.
@id("read-resources-and-prompts")
permit (
  principal,
  action in [
    Action::"resources/read", Action::"resources/subscribe", Action::"prompts/get", Action::"completion/complete"
  ],
  resource
);
`;
}
