// How the servers behind this gateway are, for its operator.

import type { Applications } from "../../gateway/index.js";
import type { Family } from "../../telemetry/index.js";
import type { UpstreamHealth } from "../../upstream/index.js";

export interface ServerFacts extends Omit<UpstreamHealth, "lastError" | "retryAt"> {
  readonly replica: string;
  readonly app: string;
  readonly server: string;
  readonly tools: number;
  readonly lastError: { readonly at: string; readonly message: string } | undefined;
}

export function serverFacts(applications: Applications, replica: string): ServerFacts[] {
  return [...applications.open].flatMap((house) =>
    [...house.links.values()].map((link) => {
      const { lastError, retryAt: _, ...health } = link.health();
      return {
        replica,
        app: house.id,
        server: link.server,
        tools: house.toolsOf(link.server),
        ...health,
        lastError: lastError && { at: new Date(lastError.at).toISOString(), message: lastError.message },
      };
    }),
  );
}

/** Numbers alone: whoever can read them need not learn whose servers these are. */
export function serverFamilies(applications: Applications): Family[] {
  const states = new Map<string, number>(["idle", "starting", "ready", "failed", "stopped"].map((state) => [state, 0]));
  let open = 0;
  let restarts = 0;
  for (const house of applications.open) {
    for (const link of house.links.values()) {
      const health = link.health();
      states.set(health.state, (states.get(health.state) ?? 0) + 1);
      if (health.circuit !== "closed") open++;
      restarts += health.restarts;
    }
  }
  return [
    {
      name: "portcullis.servers",
      help: "Downstream servers in use, by state",
      type: "gauge",
      unit: "",
      points: [...states].map(([state, value]) => ({ labels: [["portcullis.state", state]], value })),
    },
    {
      name: "portcullis.servers.circuit_open",
      help: "Downstream servers that are given no calls for now because too many failed",
      type: "gauge",
      unit: "",
      points: [{ labels: [], value: open }],
    },
    {
      name: "portcullis.servers.restarts",
      help: "How often connections to downstream servers in use were made anew",
      type: "gauge",
      unit: "",
      points: [{ labels: [], value: restarts }],
    },
  ];
}
