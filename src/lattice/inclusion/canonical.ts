/** Text that is equal for values that JSON Schema calls equal. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
    return `{${members.map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`).join()}}`;
  }
  return JSON.stringify(value === 0 ? 0 : value) ?? "null";
}
