// What looks like a credential, by the name it goes by or by its form. One too many does no harm: it is sealed, and works
// as before. One too few would stand in the store in clear.

const NAME =
  /api_?-?key|(^|[^a-z])(key|keys|pat|auth|pwd|dsn)([^a-z]|$)|token|secret|passw|passphrase|credential|authorization|cookie|private|connection_?-?string|database_?-?url|webhook/i;
const CAMEL = /[a-z]Keys?$/;

const FORMS = [
  /^(sk|pk|rk)[-_][A-Za-z0-9_-]{10,}/,
  /^gh[pousr]_[A-Za-z0-9]{10,}/,
  /^github_pat_/,
  /^glpat-/,
  /^xox[a-z]-/,
  /^(AKIA|ASIA)[A-Z0-9]{12,}/,
  /^AIza[A-Za-z0-9_-]{20,}/,
  /^ya29\./,
  /^npm_[A-Za-z0-9]{20,}/,
  /^(ntn|secret|lin_api|figd|hf|pat|shpat|dop_v1|sntrys|r8|tvly|pplx|gsk|fc|re)[-_][A-Za-z0-9_-]{12,}/,
  /^eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.?/,
  /-----BEGIN [A-Z ]*PRIVATE KEY/,
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
  if (FORMS.some((form) => form.test(text)) || UUID.test(text)) return true;
  return RANDOM.test(text) && !WORDS.test(text) && !text.startsWith("/") && digitRuns(text) >= 2;
}

/** How often digits begin anew: many in what is random, one or two in a name with a version. */
function digitRuns(text: string): number {
  return text.match(/\d+/g)?.length ?? 0;
}

/** Headers that carry a credential whatever is in them. */
export function isCredentialHeader(name: string): boolean {
  return ["authorization", "proxy-authorization", "cookie", "x-api-key"].includes(name.toLowerCase());
}
