// What a proof must name as its `htu`: the address of the request as its caller wrote it. Only the operator knows that
// (the Host header is the sender's to choose, and a proxy may have taken a part of the path away).

const MAX_CHARS = 4_096;
const ADDRESS = /^(?:https?|wss?):\/\/(?!\/)[\x21-\x5b\x5d-\x7e]+$/i;
const UNRESERVED = /^[A-Za-z0-9._~-]$/;
const MCP_PATH = "/mcp";

/** The roots that a request's path is written behind: the resource's origin, and where a proxy takes its prefix away. */
export function proofRoots(resource: string, more: readonly string[] = []): string[] {
  const { origin, pathname } = new URL(resource);
  const prefix = pathname.endsWith(MCP_PATH) ? pathname.slice(0, -MCP_PATH.length) : "";
  return [...new Set([origin, `${origin}${prefix}`, ...more.map((root) => root.replace(/\/+$/, ""))])];
}

/** Whether `htu` names this path behind one of the roots. Query and fragment of `htu` do not count (RFC 9449, 4.3). */
export function isTarget(htu: string, path: string, roots: readonly string[]): boolean {
  const named = normal(htu);
  return named !== undefined && roots.some((root) => normal(root + path) === named);
}

/** RFC 3986, 6.2.2 and 6.2.3. A WebSocket begins as a request of HTTP. Undefined for what is no address of either. */
function normal(text: string): string | undefined {
  if (text.length > MAX_CHARS || !ADDRESS.test(text) || !URL.canParse(text)) return undefined;
  const url = new URL(text.replace(/^ws/i, "http"));
  if (url.username !== "" || url.password !== "") return undefined;
  const path = url.pathname.replace(/%[0-9A-Fa-f]{2}/g, (code) => {
    const letter = String.fromCharCode(Number.parseInt(code.slice(1), 16));
    return UNRESERVED.test(letter) ? letter : code.toUpperCase();
  });
  return `${url.origin}${path}`;
}
