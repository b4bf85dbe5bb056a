// What a server says in `WWW-Authenticate`: where its metadata is, which scope it wants.

export interface BearerChallenge {
  /** It wants tokens that are bound to a key. */
  readonly isDpop?: true;
  readonly resourceMetadata?: string;
  readonly scope?: string;
  readonly error?: string;
}

const MAX_CHARS = 8_192;
const PART = /([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?\s*,?\s*/y;

/** The first challenge of scheme Bearer or DPoP; an empty one when there is none. */
export function readChallenge(header: string | undefined): BearerChallenge {
  const found: Record<string, string> = {};
  const text = (header ?? "").slice(0, MAX_CHARS).trim();
  let scheme = "";
  let ours: string | undefined;
  PART.lastIndex = 0;
  for (let match = PART.exec(text); match?.[1] !== undefined; match = PART.exec(text)) {
    const [, name, quoted, plain] = match;
    const value = quoted?.replace(/\\(.)/g, "$1") ?? plain;
    if (value === undefined) {
      scheme = name.toLowerCase();
      if (scheme === "bearer" || scheme === "dpop") ours ??= scheme;
    } else if (scheme === ours && !Object.hasOwn(found, name.toLowerCase())) found[name.toLowerCase()] = value;
    if (PART.lastIndex >= text.length) break;
  }
  return {
    ...(ours === "dpop" ? { isDpop: true } : {}),
    ...(found.resource_metadata === undefined ? {} : { resourceMetadata: found.resource_metadata }),
    ...(found.scope === undefined ? {} : { scope: found.scope }),
    ...(found.error === undefined ? {} : { error: found.error }),
  };
}
