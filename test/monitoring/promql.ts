// Names of metrics and labels in a PromQL expression, as far as rules and dashboards use the language.

const WORDS = new Set([
  "by",
  "without",
  "on",
  "ignoring",
  "group_left",
  "group_right",
  "and",
  "or",
  "unless",
  "offset",
  "bool",
  "Inf",
  "NaN",
]);

export interface PromQlNames {
  readonly metrics: ReadonlySet<string>;
  /** Labels of selectors by their metric, and of groupings with the metrics of the whole expression. */
  readonly labels: readonly { readonly metrics: readonly string[]; readonly label: string }[];
}

export function namesIn(expression: string): PromQlNames {
  const labels: { metrics: string[]; label: string }[] = [];
  const metrics = new Set<string>();
  const groupings: string[] = [];
  const plain = expression
    .replaceAll(/"(?:[^"\\]|\\.)*"/g, '""')
    .replaceAll(/\b(?:by|without)\s*\(([^)]*)\)/g, (_, list: string) => {
      groupings.push(...list.split(",").map((label) => label.trim()));
      return "";
    })
    .replaceAll(/\[[^\]]*\]/g, "")
    .replaceAll(/([A-Za-z_:][\w:]*)\s*\{([^}]*)\}/g, (_, metric: string, selectors: string) => {
      metrics.add(metric);
      for (const [, label = ""] of selectors.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g))
        labels.push({ metrics: [metric], label });
      return "0";
    });
  for (const [word, name = ""] of plain.matchAll(/([A-Za-z_:][\w:]*)(\s*\()?/g)) {
    if (!word.endsWith("(") && !WORDS.has(name)) metrics.add(name);
  }
  for (const label of groupings) labels.push({ metrics: [...metrics], label });
  return { metrics, labels };
}

/** The family that a series belongs to: histograms have three kinds of series. */
export function familyOf(metric: string): string {
  return metric.replace(/_(bucket|sum|count)$/, "");
}
