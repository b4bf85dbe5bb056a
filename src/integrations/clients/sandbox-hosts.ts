// Hosts of well-known servers. What a server reads and writes stands in its entry; where it connects to does not.

const OFFLINE = ["everything", "filesystem", "memory", "sequential-thinking"].map(
  (name) => `@modelcontextprotocol/server-${name}`,
);

const HOSTS: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(
    [...OFFLINE, "mcp-server-git", "mcp-server-sqlite", "mcp-server-time"].map((name) => [name, []]),
  ),
  "mcp-server-fetch": ["public"],
  "@modelcontextprotocol/server-github": ["api.github.com"],
  "@modelcontextprotocol/server-gitlab": ["gitlab.com"],
  "@modelcontextprotocol/server-slack": ["slack.com"],
  "@modelcontextprotocol/server-brave-search": ["api.search.brave.com"],
  "@modelcontextprotocol/server-google-maps": ["maps.googleapis.com"],
  "@modelcontextprotocol/server-everart": ["api.everart.ai"],
  "@notionhq/notion-mcp-server": ["api.notion.com"],
  "@stripe/mcp": ["api.stripe.com"],
  "@upstash/context7-mcp": ["context7.com"],
  "tavily-mcp": ["api.tavily.com"],
  "exa-mcp-server": ["api.exa.ai"],
  "firecrawl-mcp": ["api.firecrawl.dev"],
  "figma-developer-mcp": ["api.figma.com"],
  "mcp-server-sentry": ["sentry.io", "*.sentry.io"],
};

/** `profileHosts` returns the hosts that a package connects to; undefined for one that is not known. */
export function profileHosts(name: string | undefined): readonly string[] | undefined {
  return name !== undefined && Object.hasOwn(HOSTS, name) ? HOSTS[name] : undefined;
}
