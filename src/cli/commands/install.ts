// `portcullis install`: a signed release in a folder of its own, and one shim to start it by.

import { dirname } from "node:path";
import type { Command } from "commander";
import { currentVersion } from "../../integrations/install/home.js";
import { withLock } from "../../integrations/install/lock.js";
import { bringIn, look } from "../../integrations/install/operations.js";
import { reachable } from "../../integrations/install/path.js";
import { addInstallOptions, homeFor, type InstallOptions, sourceFor } from "../../integrations/install/request.js";
import { outFor } from "../../runtime/options.js";

export function addInstall(program: Command): void {
  const command = program.command("install").description("install a signed release, with a command on your PATH");
  addInstallOptions(command).action(async (options: InstallOptions) => {
    const out = outFor(command);
    const home = homeFor("install", options);
    const source = sourceFor(home, options);
    out.note(`fetching the ${source.channel} release from ${source.url} …`);
    const offer = await look(source);
    const change = await withLock(home.root, () => bringIn(home, source, offer));
    const version = change?.to ?? currentVersion(home);
    const onPath = reachable(home, options.dest === undefined);
    out.data({ version, changed: change !== undefined, home: home.root, shim: home.shim, onPath }, () =>
      change ? `installed ${version} in ${home.root}` : `${version} is already installed in ${home.root}, and works`,
    );
    const bin = dirname(home.shim);
    if (onPath) out.note("start it with: portcullis");
    else if (process.platform === "win32") out.note(`put it on your PATH: setx PATH "%PATH%;${bin}"`);
    else out.note(`put it on your PATH: export PATH="${bin}:$PATH"`);
  });
}
