// `portcullis update`: the next signed release, or back to the one before.

import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { currentVersion, type Home } from "../../integrations/install/home.js";
import { withLock } from "../../integrations/install/lock.js";
import { bringIn, look, rollBack } from "../../integrations/install/operations.js";
import { addInstallOptions, homeFor, type InstallOptions, sourceFor } from "../../integrations/install/request.js";
import { compareVersions } from "../../integrations/install/version.js";
import { outFor } from "../../runtime/options.js";

interface UpdateOptions extends InstallOptions {
  check?: boolean;
  rollback?: boolean;
}

export function addUpdate(program: Command): void {
  const command = program
    .command("update")
    .description("take the next signed release; if it does not work, the present one comes back by itself")
    .option("--check", "only look, and change nothing")
    .option("--rollback", "go back to the version before");
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
    () => `back from ${change.from} to ${change.to}`,
  );
}

async function check(command: Command, home: Home, current: string, options: UpdateOptions): Promise<void> {
  const { release } = await look(sourceFor(home, options));
  const { version, channel, published } = release;
  const newer = compareVersions(version, current) > 0;
  const since = published === undefined ? undefined : new Date(published * 1000).toISOString();
  outFor(command).data({ current, available: version, newer, channel, published: since }, () =>
    newer ? `${version} can be had (${current} is installed): run portcullis update` : `${current} is up to date`,
  );
}
