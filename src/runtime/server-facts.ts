// How the servers behind this gateway are, for its operator.

import type { Applications } from "../gateway/index.js";
import { type Family, gauge } from "../telemetry/index.js";
import type { UpstreamHealth } from "../upstream/index.js";

export interface ServerFacts extends Omit<UpstreamHealth, "lastError" | "retryAt"> {
  readonly replica: string;
  readonly app: string;
  readonly server: string;
  readonly tools: number;
  readonly lastError: { readonly at: string; readonly message: string } | undefined;
}

export function serverFacts(applications: Applications, replica: string): ServerFacts[] {
  return [...applications.open].flatMap((servedApplication) =>
    [...servedApplication.links.values()].map((link) => {
      const { lastError, retryAt: _, ...health } = link.health();
      return {
        replica,
        app: servedApplication.id,
        server: link.server,
        tools: servedApplication.toolsOf(link.server),
        ...health,
        lastError: lastError && { at: new Date(lastError.at).toISOString(), message: lastError.message },
      };
    }),
  );
}

const STATES = ["idle", "starting", "ready", "failed", "stopped"];
/** Servers with a series of their own. */
const MAX_SERVERS = 500;

/** Counts restarts: a server that is no longer in use keeps what was counted for it. */
export class ServerMetrics {
  readonly #applications: Applications;
  readonly #restartsOf = new WeakMap<object, number>();
  #restarts = 0;

  constructor(applications: Applications) {
    this.#applications = applications;
  }

  families(): Family[] {
    const states = new Map<string, number>(STATES.map((state) => [state, 0]));
    const available: Family["points"][number][] = [];
    let open = 0;
    for (const servedApplication of this.#applications.open) {
      for (const link of servedApplication.links.values()) {
        const { state, circuit, restarts } = link.health();
        states.set(state, (states.get(state) ?? 0) + 1);
        if (circuit !== "closed") open++;
        this.#restarts += Math.max(0, restarts - (this.#restartsOf.get(link) ?? 0));
        this.#restartsOf.set(link, restarts);
        if (available.length >= MAX_SERVERS) continue;
        const labels = [["portcullis.app", servedApplication.id] as const, ["portcullis.server", link.server] as const];
        available.push({ labels, value: state === "failed" || circuit !== "closed" ? 0 : 1 });
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
      gauge(
        "portcullis.servers.circuit_open",
        "Downstream servers that are sent no calls for now because too many failed",
        "",
        open,
      ),
      {
        ...gauge(
          "portcullis.server.restarts",
          "Connections to downstream servers that were made again",
          "",
          this.#restarts,
        ),
        type: "counter",
      },
      {
        name: "portcullis.server.available",
        help: "1 while a downstream server is sent calls, 0 while it has failed or its circuit is open",
        type: "gauge",
        unit: "",
        across: "min",
        points: available,
      },
    ];
  }
}
