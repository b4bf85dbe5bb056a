// What looks like a credential, by the name it goes by or by its form. One too many does no harm: it is sealed, and works
// as before. One too few would stand in the store in clear.

const NAME =
  /api_?-?key|(^|[^a-z])(key|keys|pat|auth|pwd|pass|pin|otp|dsn)([^a-z]|$)|token|secret|passw|passphrase|credential|authorization|cookie|private|connection_?-?string|database_?-?url|webhook/i;
const CAMEL = /[a-z]Keys?$/;

/** Issuers mark their tokens so that they are found in any text. Matched where they stand, not only as the whole. */
const MARKED = [
  /(?<![A-Za-z0-9])sk-(?:ant|proj|or|svcacct|admin)-[A-Za-z0-9_-]{6,}/g,
  // With a digit in it: `sk-learn-models` is a folder.
  /(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{10,}/g,
  /gh[pousr]_[A-Za-z0-9]{10,}/g,
  /github_pat_[A-Za-z0-9_]+/g,
  /glpat-[A-Za-z0-9_.-]+/g,
  /xox[a-z]-[A-Za-z0-9-]+/g,
  /(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}/g,
  /AIza[A-Za-z0-9_-]{20,}/g,
  /(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_.-]+/g,
  /(?<![A-Za-z0-9])npm_[A-Za-z0-9]{20,}/g,
  /(?<![A-Za-z0-9])(?:hf|ntn|secret|lin_api|figd|shpat|dop_v1|sntrys)_(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{12,}/g,
  /(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/g,
  /(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)?/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|$)/g,
];

/** Too short or too common to be looked for inside of other texts. */
const WHOLE = [
  /^(sk|pk|rk)[-_][A-Za-z0-9_-]{10,}/,
  /^(ntn|secret|lin_api|figd|hf|pat|shpat|dop_v1|sntrys|r8|tvly|pplx|gsk|fc|re)[-_][A-Za-z0-9_-]{12,}/,
  /^(Bearer|Basic|Token) \S+/i,
  /^[a-z][a-z0-9+.-]*:\/\/[^\s/?#]*:[^\s/?#]+@/i,
];

/** Long, of one piece, and of letters and digits at random: no path, no sentence, no version, no package. */
const RANDOM = /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{24,}$/;
const WORDS = /^[a-z]+([-_/][a-z0-9]+)+$/i;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function isCredentialName(name: string): boolean {
  return NAME.test(name) || CAMEL.test(name);
}

export function hasCredentialForm(text: string): boolean {
  if (WHOLE.some((form) => form.test(text)) || UUID.test(text)) return true;
  if (markedTokens(text).some(([start]) => start === 0)) return true;
  return RANDOM.test(text) && !WORDS.test(text) && !text.startsWith("/") && digitRuns(text) >= 2;
}

/** Where tokens with an issuer's mark begin and end. */
export function markedTokens(text: string): [start: number, end: number][] {
  return MARKED.flatMap((form) =>
    [...text.matchAll(form)].map(({ index, 0: token }): [number, number] => [index, index + token.length]),
  );
}

/** How often digits begin anew: many in what is random, one or two in a name with a version. */
function digitRuns(text: string): number {
  return text.match(/\d+/g)?.length ?? 0;
}

/** Headers that carry a credential whatever is in them. */
export function isCredentialHeader(name: string): boolean {
  return ["authorization", "proxy-authorization", "cookie", "x-api-key"].includes(name.toLowerCase());
}
