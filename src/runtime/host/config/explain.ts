// The dry run: would this call be allowed, by which rule, and what would it do? Nothing happens.

import type { HostDecision, Policy, Would } from "../../../host/index.js";
import type { JsonObject } from "../../../mcp/index.js";
import { visible } from "../../../telemetry/index.js";
import { CliError, EXIT, type ExitCode } from "../../../lib/exit.js";
import { decideHostCall } from "../decide.js";
import { HOST_TOOLS } from "../starter-policy.js";
import { effectWord, type Out, paint } from "../../../lib/print.js";

/** `obstacle`: what would stand in the way although the rules allow it. */
export function explainHostCall(policy: Policy, tool: string, args: JsonObject, out: Out, obstacle?: string): ExitCode {
  const decision = decideHostCall(policy, tool, args);
  if (decision === undefined) {
    throw new CliError(`the host has no tool \`${tool}\``, EXIT.usage, `it has ${[...HOST_TOOLS].join(", ")}`);
  }
  const under = { file: policy.file, hash: policy.hash, client: policy.client };
  out.data({ tool, arguments: args, ...decision, obstacle, policy: under }, () => told(decision, obstacle));
  if (decision.effect === "deny") return EXIT.deny;
  return obstacle === undefined ? EXIT.ok : EXIT.error;
}

function told(decision: HostDecision, obstacle: string | undefined): string {
  const head = `${effectWord(decision.effect)} by ${paint.bold(visible(decision.rule))}`;
  if (decision.effect === "permit") {
    const fails = obstacle === undefined ? [] : [`  ${paint.red("would fail")}  ${visible(obstacle)}`];
    return [head, ...(decision.would === undefined ? [] : wouldLines(decision.would)), ...fails].join("\n");
  }
  const { code, reason, field, suggestions = [] } = decision.denial;
  return [
    `${head} (${code})`,
    `  ${visible(reason)}`,
    ...(field === undefined ? [] : [`  look at     ${visible(field)}`]),
    ...suggestions.map((suggestion) => `  try         ${visible(suggestion)}`),
  ].join("\n");
}

function wouldLines(would: Would): string[] {
  switch (would.tool) {
    case "fs.read":
      return [`  would read  ${would.bytes} bytes of ${visible(would.path)}, from byte ${would.offset}`];
    case "fs.write": {
      const how = would.replaces ? "replace" : "create";
      return [`  would ${how}  ${visible(would.path)} with ${would.bytes} bytes`];
    }
    case "cmd.run": {
      const env = Object.entries(would.env).map(([name, value]) => `${name}=${shown(value)}`);
      const network = would.network ? "network open" : "no network";
      return [
        `  would run   ${[would.program, ...would.args].map(shown).join(" ")}`,
        `  in          ${would.cwd === undefined ? "a scratch folder of its own" : visible(would.cwd)}`,
        ...(env.length === 0 ? [] : [`  with        ${env.join(" ")}`]),
        `  may write   ${writable(would)}`,
        `  held by     sandbox ${would.sandbox}, ${network}, ${would.timeoutMs} ms, ${would.maxOutputBytes} bytes of output`,
      ];
    }
  }
}

function writable({ sandbox, writes, exceptIn, maxFileBytes }: Extract<Would, { tool: "cmd.run" }>): string {
  if (sandbox === "off") return "whatever its user may: without a sandbox no write rule holds for commands";
  if (writes.length === 0) return "nothing but its scratch folder";
  const except = exceptIn.length === 0 ? "" : `, but not in ${exceptIn.map(visible).join(", ")}`;
  return `${writes.map(visible).join(", ")}${except}; files of at most ${maxFileBytes} bytes`;
}

/** As a shell would need it, so that an argument with spaces is seen as one. */
function shown(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${visible(text).replaceAll("'", "'\\''")}'`;
}
