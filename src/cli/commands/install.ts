// `portcullis install`: a signed release in a directory of its own, and one shim to start it by.

import { dirname } from "node:path";
import type { Command } from "commander";
import { compareVersions, currentVersion, type Home } from "../../integrations/install/home.js";
import { withLock } from "../../integrations/install/lock.js";
import { bringIn, look, rollBack } from "../../integrations/install/operations.js";
import {
  addInstallOptions,
  homeFor,
  type InstallOptions,
  reachable,
  sourceFor,
} from "../../integrations/install/request.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { hostFiles } from "../../runtime/host/config/files.js";
import { createDefaultPolicy } from "../../runtime/host/config/init.js";
import { outFor } from "../../runtime/options.js";

/** The policy of `portcullis host`, where there is none yet. A release that works is installed without it, too. */
function defaultPolicy(): { file: string; created: boolean; problem?: string } {
  const files = hostFiles({});
  try {
    return { file: files.config, created: createDefaultPolicy(files) };
  } catch (error) {
    return { file: files.config, created: false, problem: (error as Error).message };
  }
}

export function addInstallCommands(program: Command): void {
  addInstall(program);
  addUpdate(program);
}

function addInstall(program: Command): void {
  const command = program
    .command("install")
    .description("install a signed release for this user, with a command on the PATH");
  addInstallOptions(command).action(async (options: InstallOptions) => {
    const out = outFor(command);
    const home = homeFor("install", options);
    const source = sourceFor(home, options);
    out.note(`fetching the ${source.channel} release from ${source.url} …`);
    const offer = await look(source);
    const change = await withLock(home.root, () => bringIn(home, source, offer));
    const version = change?.to ?? currentVersion(home);
    const policy = defaultPolicy();
    const onPath = reachable(home, options.dest === undefined);
    out.data({ version, changed: change !== undefined, home: home.root, shim: home.shim, onPath, policy }, () =>
      change ? `installed ${version} in ${home.root}` : `${version} is already installed in ${home.root}, and works`,
    );
    if (policy.created)
      out.note(`wrote a policy that opens no directory yet: ${policy.file}; portcullis policy add-root opens one`);
    else if (policy.problem !== undefined)
      out.note(`no default policy: ${policy.problem}; portcullis init host writes one`);
    const bin = dirname(home.shim);
    if (onPath) out.note("start it with: portcullis");
    else if (process.platform === "win32") out.note(`put it on your PATH: setx PATH "%PATH%;${bin}"`);
    else out.note(`put it on your PATH: export PATH="${bin}:$PATH"`);
  });
}

interface UpdateOptions extends InstallOptions {
  check?: boolean;
  rollback?: boolean;
}

function addUpdate(program: Command): void {
  const command = program
    .command("update")
    .description("update to the next signed release; the current one is restored when the new one does not work")
    .option("--check", "show the available version and change nothing")
    .option("--rollback", "return to the previous version");
  addInstallOptions(command).action(async (options: UpdateOptions) => {
    const home = homeFor("update", options);
    const current = currentVersion(home);
    if (current === undefined) {
      throw new CliError(`nothing is installed in ${home.root}`, EXIT.error, "run: portcullis install");
    }
    if (options.rollback) return roll(command, home, options.healthTimeout);
    if (options.check) return check(command, home, current, options);
    const out = outFor(command);
    const source = sourceFor(home, options);
    const offer = await look(source);
    const change = await withLock(home.root, () => bringIn(home, source, offer));
    out.data({ version: change?.to ?? current, changed: change !== undefined, from: change?.from }, () =>
      change ? `updated ${change.from} to ${change.to}` : `${current} is the newest ${source.channel} release`,
    );
  });
}

async function roll(command: Command, home: Home, healthTimeoutMs: number): Promise<void> {
  const change = await withLock(home.root, () => rollBack(home, healthTimeoutMs));
  outFor(command).data(
    { version: change.to, changed: true, from: change.from },
    () => `rolled back from ${change.from} to ${change.to}`,
  );
}

async function check(command: Command, home: Home, current: string, options: UpdateOptions): Promise<void> {
  const { release } = await look(sourceFor(home, options));
  const { version, channel, published } = release;
  const newer = compareVersions(version, current) > 0;
  const since = published === undefined ? undefined : new Date(published * 1000).toISOString();
  outFor(command).data({ current, available: version, newer, channel, published: since }, () =>
    newer ? `${version} is available (${current} is installed): run portcullis update` : `${current} is up to date`,
  );
}
