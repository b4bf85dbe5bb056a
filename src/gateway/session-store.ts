// Sessions of the older revisions, kept where every replica finds them.

import type { JsonObject, Phase } from "../mcp/index.js";
import type { SessionTable } from "../storage/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { SessionChange, SessionKeeper } from "./session.js";

const TRIES = 5;
/** The store prolongs at most so many at once. */
const TOUCH_AT_ONCE = 1_000;

export function storedSessions(store: SessionTable, replica: string, ttlMs: number): SessionKeeper {
  return {
    async save({ id, app, caller, revision, phase, clientCapabilities, logLevel }) {
      const state: JsonObject = { phase, clientCapabilities, logLevel };
      for (let i = 0; i < TRIES; i++) {
        const stored = await store.get(id);
        if (!stored) {
          await store.add({ id, app, principal: caller, revision, state, owner: replica, ttlMs });
          return;
        }
        // Every replica is notified of a new owner, and a handshake that stays at one concerns no other.
        const owner = stored.owner === replica ? {} : { owner: replica };
        const change = { state: { ...stored.state, ...state }, ...owner, ttlMs };
        if (await store.update(id, stored.version, change)) return;
      }
    },
    async change(id, change) {
      for (let i = 0; i < TRIES; i++) {
        const stored = await store.get(id);
        if (!stored) return;
        const state = changed(stored.state, change);
        if (await store.update(id, stored.version, { state, owner: replica, ttlMs })) return;
      }
    },
    async load(id) {
      const stored = await store.get(id);
      if (!stored) return undefined;
      const { app, principal: caller, revision, state } = stored;
      return {
        id,
        app,
        caller,
        revision,
        phase: state.phase as Phase,
        clientCapabilities: (state.clientCapabilities ?? {}) as JsonObject,
        logLevel: (state.logLevel ?? "info") as LogLevel,
        subscriptions: subscriptionsIn(state),
      };
    },
    touch(ids) {
      for (let i = 0; i < ids.length; i += TOUCH_AT_ONCE) {
        // A store that is away now is told with the next sweep, long before they expire.
        void store.touch(ids.slice(i, i + TOUCH_AT_ONCE), ttlMs).catch(() => {});
      }
    },
    remove: (id) => void store.remove(id).catch(() => {}),
  };
}

/** Laid over what is stored, since another replica may have changed something else meanwhile. */
function changed(state: JsonObject, { logLevel, subscribe, unsubscribe }: SessionChange): JsonObject {
  const subscriptions = new Set(subscriptionsIn(state));
  if (subscribe !== undefined) subscriptions.add(subscribe);
  if (unsubscribe !== undefined) subscriptions.delete(unsubscribe);
  return { ...state, ...(logLevel === undefined ? {} : { logLevel }), subscriptions: [...subscriptions] };
}

function subscriptionsIn({ subscriptions }: JsonObject): string[] {
  return Array.isArray(subscriptions) ? subscriptions.filter((uri) => typeof uri === "string") : [];
}
