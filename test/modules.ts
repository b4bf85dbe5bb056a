// The import map: every module of `src/` and exactly the modules that it imports. ARCHITECTURE.md prints it.

export interface ModuleRules {
  /** No I/O: Node's own modules are not imported. */
  readonly pure?: true;
  /** Files may be imported directly. Elsewhere a module is entered by its `index.ts`. */
  readonly open?: true;
  readonly imports: readonly string[];
}

/** A directory belongs to the module with the longest matching name. */
export const MODULES: Readonly<Record<string, ModuleRules>> = {
  mcp: { pure: true, imports: [] },
  "mcp/transports": { imports: ["mcp"] },
  "mcp/session": { imports: ["mcp", "mcp/transports"] },
  "mcp/server": { imports: ["mcp", "schema"] },
  "mcp/client": {
    imports: [
      "auth/oauth-client",
      "ledger",
      "mcp",
      "mcp/server",
      "mcp/session",
      "mcp/transports",
      "pipeline",
      "policy",
    ],
  },
  // Open, because a file of one caller's must not load the others' dependencies.
  lib: { open: true, imports: [] },
  "schema/documents": { pure: true, imports: [] },
  schema: { imports: ["mcp", "schema/documents"] },
  lattice: { pure: true, imports: ["schema/documents"] },
  codegen: { pure: true, imports: ["mcp", "schema/documents"] },
  policy: { imports: ["mcp"] },
  ledger: { imports: ["lib"] },
  telemetry: { imports: ["lib"] },
  storage: { imports: ["mcp"] },
  "auth/oauth-client": { imports: ["mcp"] },
  auth: { imports: ["auth/oauth-client", "mcp", "mcp/transports", "policy", "storage"] },
  host: { imports: ["lib", "mcp"] },
  upstream: { imports: ["host", "mcp", "mcp/session", "mcp/transports", "telemetry"] },
  tools: { imports: ["host", "mcp", "mcp/server", "policy", "storage", "telemetry"] },
  pipeline: { imports: ["ledger", "mcp", "mcp/server", "policy", "storage", "telemetry"] },
  gateway: {
    imports: [
      "auth",
      "ledger",
      "mcp",
      "mcp/server",
      "mcp/transports",
      "pipeline",
      "policy",
      "storage",
      "telemetry",
      "upstream",
    ],
  },
  admin: { imports: ["ledger", "mcp", "mcp/transports", "policy", "telemetry"] },
  // Open, because a command loads only the files that it uses.
  runtime: {
    open: true,
    imports: [
      "admin",
      "auth",
      "auth/oauth-client",
      "gateway",
      "host",
      "lattice",
      "ledger",
      "lib",
      "mcp",
      "mcp/client",
      "mcp/server",
      "mcp/transports",
      "policy",
      "storage",
      "telemetry",
      "tools",
      "upstream",
    ],
  },
  integrations: {
    open: true,
    imports: ["auth", "host", "lib", "mcp", "policy", "runtime", "storage", "telemetry", "tools"],
  },
  cli: {
    imports: [
      "admin",
      "auth",
      "codegen",
      "host",
      "integrations",
      "lattice",
      "ledger",
      "lib",
      "mcp",
      "mcp/client",
      "mcp/server",
      "policy",
      "runtime",
      "storage",
      "telemetry",
      "upstream",
    ],
  },
};

/** The module that a path below `src/` belongs to. */
export function moduleOf(path: string): string | undefined {
  const names = Object.keys(MODULES).filter((name) => path.startsWith(`${name}/`));
  return names.sort((a, b) => b.length - a.length)[0];
}
