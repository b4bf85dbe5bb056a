import type { Picture } from "./picture.js";

export interface Layout {
  /** Column and row of each node. */
  readonly column: readonly number[];
  readonly row: readonly number[];
  readonly columns: number;
  readonly rows: number;
}

const SWEEPS = 8;

/** Layers by distance from the roots, each ordered by where its neighbours stand, so that few edges cross. */
export function layout({ nodes, edges }: Picture): Layout {
  const column = layers(
    nodes.length,
    nodes.map((node) => node.isRoot),
    edges,
  );
  const columns = Math.max(0, ...column) + 1;
  const order: number[][] = Array.from({ length: columns }, () => []);
  for (const [node, at] of column.entries()) order[at]?.push(node);
  const row = nodes.map(() => 0);
  const place = (): void => {
    for (const list of order) for (const [i, node] of list.entries()) row[node] = i - (list.length - 1) / 2;
  };
  place();
  const neighbours: number[][] = nodes.map(() => []);
  for (const { from, to } of edges) {
    neighbours[from]?.push(to);
    neighbours[to]?.push(from);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const forwards = sweep % 2 === 0;
    for (let i = 0; i < columns; i++) {
      const at = forwards ? i : columns - 1 - i;
      const weight = (node: number): number => {
        const beside = (neighbours[node] ?? []).filter((other) =>
          forwards ? (column[other] ?? 0) < at : (column[other] ?? 0) > at,
        );
        if (beside.length === 0) return row[node] ?? 0;
        return beside.reduce((sum, other) => sum + (row[other] ?? 0), 0) / beside.length;
      };
      const weights = new Map((order[at] ?? []).map((node) => [node, weight(node)]));
      order[at] = (order[at] ?? []).toSorted((a, b) => (weights.get(a) ?? 0) - (weights.get(b) ?? 0) || a - b);
      place();
    }
  }
  const rows = Math.max(1, ...order.map((list) => list.length));
  return { column, row: row.map((r) => r + (rows - 1) / 2), columns, rows };
}

/** Distance from the nearest root; what no root reaches stands in the first layer. */
function layers(count: number, isRoot: readonly boolean[], edges: Picture["edges"]): number[] {
  const level = Array.from({ length: count }, () => -1);
  let frontier = isRoot.flatMap((root, node) => (root ? [node] : []));
  for (const node of frontier) level[node] = 0;
  for (let depth = 1; frontier.length > 0; depth++) {
    const now = new Set(frontier);
    frontier = [];
    for (const { from, to } of edges) {
      if (!now.has(from) || level[to] !== -1) continue;
      level[to] = depth;
      frontier.push(to);
    }
  }
  return level.map((depth) => Math.max(0, depth));
}
