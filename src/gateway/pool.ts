// Several connections to one server that share its work; to everyone else they are one.

import type { Upstream } from "../upstream/index.js";

export function pool(members: readonly Upstream[]): Upstream {
  const first = members[0] as Upstream;
  if (members.length === 1) return first;
  const leastBusy = (): Upstream => {
    let best = first;
    let least = Number.POSITIVE_INFINITY;
    for (const member of members) {
      const { inFlight, queued, circuit } = member.health();
      const load = inFlight + queued + (circuit === "open" ? 1_000_000 : 0);
      if (load < least) [best, least] = [member, load];
    }
    return best;
  };
  // Instances may differ for a while; what is compared with the pins is what changed last.
  let changedLast: Upstream | undefined;
  return {
    name: first.name,
    get state() {
      return members.some((member) => member.state === "ready") ? "ready" : first.state;
    },
    get revision() {
      return first.revision;
    },
    start: async () => {
      await Promise.all(members.map((member) => member.start()));
    },
    catalogue: () => (changedLast?.state === "ready" ? changedLast : leastBusy()).catalogue(),
    request: (call) => leastBusy().request(call),
    watch: (uri) => first.watch(uri),
    onChange: (listener) => {
      const stops = members.map((member) =>
        member.onChange((change) => {
          if (typeof change === "string") changedLast = member;
          listener(change);
        }),
      );
      return () => {
        for (const stop of stops) stop();
      };
    },
    health: () => first.health(),
    close: async () => {
      await Promise.all(members.map((member) => member.close()));
    },
  };
}
