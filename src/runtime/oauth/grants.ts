// Tokens for downstream servers, in the store and sealed: one for each server of an application, or for each user of it.

import type { OAuthGrant, GrantStore, KeptGrant } from "../../auth/oauth-client/index.js";
import type { DownstreamToken, Sealer, Storage } from "../../storage/index.js";

export interface GrantOf {
  readonly app: string;
  readonly server: string;
  /** "" for the application's own. */
  readonly user: string;
}

export function storedGrants(storage: Pick<Storage, "tokens">, sealer: Sealer, id: GrantOf): GrantStore {
  const as = { kind: "token" as const, app: id.app, name: `${id.server}/${id.user}` };
  const read = ({ sealed, version }: DownstreamToken): KeptGrant => ({
    grant: JSON.parse(sealer.open(as, sealed)) as OAuthGrant,
    version,
  });
  return {
    load: async () => {
      const stored = await storage.tokens.get(id);
      return stored && read(stored);
    },
    save: async (grant, version) => {
      const stored = await storage.tokens.put(id, sealer.seal(as, JSON.stringify(grant)), version);
      return stored && read(stored);
    },
  };
}
