// Shell completion, made from the commands themselves.

import type { Command } from "commander";
import { CliError, EXIT } from "../exit.js";

export function addCompletion(program: Command): void {
  program
    .command("completion <shell>")
    .description("print a completion script for bash, zsh or fish")
    .action((shell: string) => {
      const words = wordsOf(program);
      switch (shell) {
        case "bash":
          return void process.stdout.write(bash(words));
        case "zsh":
          return void process.stdout.write(zsh(words));
        case "fish":
          return void process.stdout.write(fish(words));
        default:
          throw new CliError(`there is no completion for ${shell}`, EXIT.usage, "choose bash, zsh or fish");
      }
    });
}

/** For each command path ("", "policy", "policy check") what may follow it. */
function wordsOf(command: Command, path = ""): Map<string, string[]> {
  const words = new Map<string, string[]>();
  const options = command.options.map((option) => option.long ?? "").filter((long) => long !== "");
  words.set(path, [...command.commands.map((sub) => sub.name()), ...options, "--help"]);
  for (const sub of command.commands) {
    for (const [key, value] of wordsOf(sub, path === "" ? sub.name() : `${path} ${sub.name()}`)) words.set(key, value);
  }
  return words;
}

function cases(words: Map<string, string[]>): string {
  return [...words].map(([path, next]) => `    "${path}") words="${next.join(" ")}" ;;`).join("\n");
}

function bash(words: Map<string, string[]>): string {
  return `# portcullis completion bash > /etc/bash_completion.d/portcullis
_portcullis() {
  local current="\${COMP_WORDS[COMP_CWORD]}" path="" words="" word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in -*) ;; *) path="\${path:+$path }$word" ;; esac
  done
  case "$path" in
${cases(words)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _portcullis portcullis
`;
}

function zsh(words: Map<string, string[]>): string {
  return `#compdef portcullis
autoload -U +X bashcompinit && bashcompinit
${bash(words)}`;
}

function fish(words: Map<string, string[]>): string {
  const lines: string[] = [];
  for (const [path, next] of words) {
    const depth = path === "" ? 0 : path.split(" ").length;
    const test = `test (string join " " (commandline -opc)[2..${depth + 1}]) = "${path}"`;
    for (const word of next) {
      const what = word.startsWith("--") ? `-l ${word.slice(2)}` : `-f -a ${word}`;
      lines.push(`complete -c portcullis -n '${test}' ${what}`);
    }
  }
  return `${lines.join("\n")}\n`;
}
