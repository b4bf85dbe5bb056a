/**
 * Strings that a format takes by any reading of it, of about the length asked for where the format allows a choice.
 * They are only tried as examples: the validator at hand has the last word on each.
 */
type Maker = (length: number) => readonly string[];

const fill = (length: number, around: string): string => "a".repeat(Math.max(1, length - around.length));
const fixed =
  (...texts: readonly string[]): Maker =>
  () =>
    texts;
const uri: Maker = (n) => ["https://example.com/", "a:", "a:b", `https://a.example/${fill(n, "https://a.example/")}`];
const reference: Maker = (n) => ["", "a", "/a", "https://example.com/", `/${fill(n, "/")}`];
const email: Maker = (n) => ["a@example.com", "b@b.co", `a@${fill(n - 12, "")}.example.com`];
const hostname: Maker = (n) => ["example.com", "a", fill(Math.min(n, 63), "")];
const anything: Maker = (n) => ["a", "", fill(n, "")];

const MAKERS: Readonly<Record<string, Maker>> = {
  "date-time": (n) => ["2020-01-31T12:00:00Z", `2020-01-31T12:00:00.${"0".repeat(Math.max(1, n - 21))}Z`],
  date: fixed("2020-01-31", "1999-12-31"),
  time: (n) => ["12:00:00Z", "12:00:00", `12:00:00.${"0".repeat(Math.max(1, n - 10))}Z`],
  duration: (n) => ["P1D", "PT5M", `P${"1".repeat(Math.max(1, n - 2))}D`],
  email,
  "idn-email": email,
  hostname,
  "idn-hostname": hostname,
  ipv4: fixed("127.0.0.1", "1.1.1.1", "100.100.100.100"),
  ipv6: fixed("::", "::1", "2001:db8::1", "2001:0db8:0000:0000:0000:0000:0000:0001"),
  uri,
  iri: uri,
  "uri-reference": reference,
  "iri-reference": reference,
  "uri-template": (n) => ["", "{a}", "https://example.com/{id}", `/${fill(n, "/{a}")}/{a}`],
  uuid: fixed("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-4000-8000-000000000000"),
  "json-pointer": (n) => ["", "/a", `/${fill(n, "/")}`],
  "relative-json-pointer": (n) => ["0", "1/a", `0/${fill(n, "0/")}`],
  regex: (n) => ["a", "", "^b$", fill(n, "")],
  byte: (n) => ["", "YQ==", "YWI=", "YWJj".repeat(Math.max(1, Math.ceil(n / 4)))],
};

/** Every format above refuses at least one of these. */
export const FORMAT_REFUSED: readonly string[] = ["", "a", " ", "(", "a b", "^", "\\", "{", "0a", "a@", "#", "%", "-"];

const MAX_LENGTH = 4_096;

/** Whether a format is one whose meaning is known here. */
export function isKnownFormat(name: string): boolean {
  return Object.hasOwn(MAKERS, name);
}

export function formatExamples(name: string, length: number): readonly string[] {
  const make = isKnownFormat(name) ? MAKERS[name] : undefined;
  return (make ?? anything)(Math.min(length, MAX_LENGTH));
}

export function formatCounterexamples(length: number): readonly string[] {
  const long = Math.min(length, MAX_LENGTH);
  return [...FORMAT_REFUSED, ...["a", " ", "%", "-"].map((character) => character.repeat(long))];
}
