// HTTP over the dialer, for everybody who is no MCP connection: OAuth, JWKS, webhooks, LLM providers.

import type { Agent, buildConnector } from "undici";
import { Fault } from "../mcp/index.js";
import type { Dialer } from "./dialer.js";

/** undici's connections, made by the dialer. */
export function outboundConnector(dialer: Dialer): buildConnector.connector {
  return (options, callback) => {
    const tls = options.protocol === "https:";
    const port = options.port === "" || options.port === undefined ? (tls ? 443 : 80) : Number(options.port);
    dialer.connect({ host: options.hostname, port, tls }).then(
      (socket) => callback(null, socket),
      (error: Error) => callback(error, null),
    );
  };
}

const MAX_REDIRECTS = 5;

export interface Outbound {
  /** Like `fetch`; follows redirects within the origin and refuses to leave it. */
  fetch: typeof globalThis.fetch;
  close(): Promise<void>;
}

export function createOutbound(dialer: Dialer): Outbound {
  let loading: Promise<Loaded> | undefined;
  return {
    async fetch(input, init = {}) {
      loading ??= load(dialer);
      const { agent, once } = await loading;
      let url = new URL(input instanceof Request ? input.url : input);
      const request =
        input instanceof Request ? { method: input.method, headers: input.headers, body: input.body } : {};
      let settings: RequestInit = { ...request, ...init };
      for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        const response = await unwrapped(once(url, { ...settings, redirect: "manual", dispatcher: agent }));
        const location = response.headers.get("location");
        if (response.status < 300 || response.status >= 400 || location === null || init.redirect === "manual") {
          return response;
        }
        await response.body?.cancel();
        url = sameOrigin(url, location);
        settings = afterRedirect(settings, response.status);
      }
      throw new Fault("Unavailable", `${url.origin} redirects more than ${MAX_REDIRECTS} times`);
    },
    close: async () => (await loading)?.agent.destroy(),
  };
}

interface Loaded {
  readonly agent: Agent;
  readonly once: (url: URL, init: Omit<RequestInit, "dispatcher"> & { dispatcher: Agent }) => Promise<Response>;
}

/** On first use: much of a command line's start-up time, and most commands never call out. */
async function load(dialer: Dialer): Promise<Loaded> {
  const undici = await import("undici");
  const agent = new undici.Agent({ connect: outboundConnector(dialer), connections: 64, pipelining: 1 });
  return { agent, once: undici.fetch as unknown as Loaded["once"] };
}

function sameOrigin(from: URL, location: string): URL {
  const to = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined;
  if (to?.origin === from.origin) return to;
  throw new Fault("PolicyDeny", `${from.origin} redirects to ${to?.origin ?? "nowhere"}, which is not followed`, {
    rule: "outbound",
    suggestions: [`Configure the address that ${from.origin} redirects to`],
  });
}

/** As browsers do: all but 307 and 308 turn a POST into a GET. */
function afterRedirect(settings: RequestInit, status: number): RequestInit {
  if (status === 307 || status === 308 || settings.method === undefined) return settings;
  if (settings.method === "GET" || settings.method === "HEAD") return settings;
  const { body: _, ...rest } = settings;
  return { ...rest, method: "GET" };
}

/** fetch says only "fetch failed"; what the dialer said is inside. */
async function unwrapped(response: Promise<Response>): Promise<Response> {
  try {
    return await response;
  } catch (error) {
    const cause = (error as Error).cause;
    throw cause instanceof Fault ? cause : error;
  }
}
