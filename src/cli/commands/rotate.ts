// Every key of the system that this program can replace by itself; `docs/guides/operations.md` has all of them.

import { join } from "node:path";
import type { Command } from "commander";
import { rotateOperatorToken } from "../../admin/index.js";
import { statePaths } from "../../runtime/data-directory.js";
import { outFor, shared } from "../../runtime/options.js";
import { operator, type StoreOptions, sealerFor, withStore, withStoreOptions } from "../../runtime/store/open.js";
import { rotateSealKey, type SealOptions } from "../../runtime/store/seal-key.js";
import { rotateSharedKey, SHARED_KEY_OVERLAP_MS } from "../../runtime/store/sealer.js";
import { DELEGATION_KEY_OVERLAP_MS, rotateDelegationKeys } from "../../runtime/workflow/keys.js";

export function addRotateCommands(program: Command): void {
  const rotate = program
    .command("rotate")
    .description("replace keys and tokens of the gateway (API keys: `key rotate`; ledgers: `audit rotate-key`)");

  for (const [name, file, what] of [
    ["operator-token", "operator.token", "the token that approves calls"],
    ["metrics-token", "metrics.token", "the token that reads metrics"],
  ] as const) {
    rotate
      .command(name)
      .description(`replace ${what}; running gateways of this data directory refuse the old one at once`)
      .action((_options: object, command: Command) => {
        const path = join(statePaths(shared(command).dir).dir, file);
        rotateOperatorToken(path);
        outFor(command).data({ file: path }, () => `the new token is in ${path}; the old one is refused`);
      });
  }

  withStoreOptions(rotate.command("seal-key"))
    .description("replace the seal key in its file and seal everything again; running gateways read the file again")
    .option("--add", "add a key without sealing with it: copy the file to every machine, then run this with --use")
    .option("--use <id>", "seal with the key of this id, which --add printed, and remove the other keys")
    .action((options: SealOptions, command: Command) =>
      withStore(command, options, (storage) => rotateSealKey(storage, options, command)),
    );

  withStoreOptions(rotate.command("request-state-key"))
    .description("replace the key of request states and of messages between replicas, at all replicas")
    .option("--at-once", "refuse at once what the old key encrypted, because the key became known")
    .action((options: StoreOptions & { atOnce?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        const sealer = await sealerFor(storage, command, options);
        await rotateSharedKey(storage, sealer, options.atOnce ? 0 : SHARED_KEY_OVERLAP_MS);
        await storage.feed.announce({ topic: "store", action: "rotate", name: "request-state key", by: operator() });
        outFor(command).data({ rotated: "request-state key" }, () =>
          options.atOnce
            ? "replaced; calls that wait for input begin again"
            : `replaced; calls that wait for input can be continued for ${SHARED_KEY_OVERLAP_MS / 60_000} minutes`,
        );
      }),
    );

  rotate
    .command("delegation-keys")
    .description("replace the keys of delegations; running gateways of this data directory use the new ones at once")
    .option("--at-once", "refuse the tokens of the old keys at once, because the keys became known")
    .action((options: { atOnce?: boolean }, command: Command) => {
      const overlapMs = options.atOnce ? 0 : DELEGATION_KEY_OVERLAP_MS;
      const { gateway, publicKey } = rotateDelegationKeys(statePaths(shared(command).dir).dir, overlapMs);
      outFor(command).data({ gateway, publicKey }, () =>
        [
          options.atOnce
            ? "replaced; older tokens are refused: mint new ones"
            : `replaced; older tokens are accepted for ${overlapMs / 60_000} minutes: mint new ones`,
          `gateway  ${gateway}`,
          `key      ${publicKey}  (for --trust-gateway of other gateways)`,
        ].join("\n"),
      );
    });
}
