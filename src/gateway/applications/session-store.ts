// Sessions of the older revisions, kept where every replica finds them.

import type { JsonObject, Phase } from "../../protocol/index.js";
import type { Sessions } from "../../storage/index.js";
import type { LogLevel } from "../../tool/index.js";
import type { SavedSession, SessionKeeper } from "../session.js";

const TRIES = 3;

export function storedSessions(store: Sessions, replica: string, ttlMs: number): SessionKeeper {
  const write = async (session: SavedSession): Promise<void> => {
    const { id, app, agent, revision, phase, clientCapabilities, logLevel } = session;
    const state: JsonObject = { phase, clientCapabilities, logLevel };
    for (let i = 0; i < TRIES; i++) {
      const stored = await store.get(id);
      if (!stored) {
        await store.add({ id, app, principal: agent, revision, state, owner: replica, ttlMs });
        return;
      }
      if (await store.update(id, stored.version, { state, ttlMs })) return;
    }
  };
  return {
    save: write,
    async load(id) {
      const stored = await store.get(id);
      if (!stored) return undefined;
      const { app, principal: agent, revision, state } = stored;
      return {
        id,
        app,
        agent,
        revision,
        phase: state.phase as Phase,
        clientCapabilities: (state.clientCapabilities ?? {}) as JsonObject,
        logLevel: (state.logLevel ?? "info") as LogLevel,
      };
    },
    remove: (id) => void store.remove(id).catch(() => {}),
  };
}
