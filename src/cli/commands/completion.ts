// Scripts that let a shell ask this program what may follow.

import { Argument, type Command } from "commander";

const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `# portcullis completion bash > ~/.local/share/bash-completion/completions/portcullis
_portcullis() {
  local IFS=$'\\n'
  COMPREPLY=($(portcullis __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _portcullis portcullis
`,
  zsh: `#compdef portcullis
# portcullis completion zsh > a directory of $fpath, as _portcullis
_portcullis() {
  local -a found
  found=("\${(@f)$(portcullis __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[*]}" ]]; then compadd -a found; else _files; fi
}
if [[ "\${funcstack[1]}" = _portcullis ]]; then _portcullis "$@"; else compdef _portcullis portcullis; fi
`,
  fish: `# portcullis completion fish > ~/.config/fish/completions/portcullis.fish
function __portcullis_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (portcullis __complete $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c portcullis -f -a '(__portcullis_complete)'
`,
};

export function addCompletion(program: Command): void {
  program
    .command("completion")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(SCRIPTS)))
    .description("print a completion script for bash, zsh or fish")
    .action((shell: string) => void process.stdout.write(SCRIPTS[shell] as string));
}
