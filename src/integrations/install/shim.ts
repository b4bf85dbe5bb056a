// The one file that is on PATH and never changes: it starts the version that `current` names.

export function shimText(platform: string, root: string, node: string): string {
  return platform === "win32" ? cmdShim(node) : shellShim(root, node);
}

function shellShim(root: string, node: string): string {
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  return `#!/bin/sh
# Starts the version of Portcullis that \`current\` names. Written by \`portcullis install\`.
home=${quote(root)}
node=${quote(node)}
version=
[ -r "$home/current" ] && read -r version < "$home/current"
case "$version" in
  [0-9]*) ;;
  *) echo "portcullis: $home/current names no version; install again" >&2; exit 1 ;;
esac
[ -x "$node" ] || node=node
exec "$node" "$home/versions/$version/dist/cli/main.js" "$@"
`;
}

function cmdShim(node: string): string {
  return [
    "@echo off",
    "setlocal",
    "set version=",
    `set /p version=<"%~dp0..\\current"`,
    `set "node=${node.replaceAll("%", "%%")}"`,
    `if not exist "%node%" set "node=node"`,
    `"%node%" "%~dp0..\\versions\\%version%\\dist\\cli\\main.js" %*`,
    "exit /b %errorlevel%",
    "",
  ].join("\r\n");
}
