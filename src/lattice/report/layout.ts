// Where the boxes and lines of a drawing are: in columns from the roots on. The console draws with the same layout.

import type { Picture, PictureEdge } from "./picture.js";

type Nodes = readonly Pick<Picture["nodes"][number], "isRoot">[];
type Edges<E> = readonly E[];
type Ends = Pick<PictureEdge, "from" | "to">;

export const BOX = { width: 168, height: 34, gapX: 132, gapY: 18, margin: 24 } as const;
/** Where delegations that lead back run: below all boxes side by side, and up and down between the columns. */
const BACK = { gap: 5, nearest: 16, step: 7, steps: 14 } as const;
const MIN_WIDTH = 480;

export interface DrawingPlace<E extends Ends = PictureEdge> {
  readonly x: (node: number) => number;
  readonly y: (node: number) => number;
  /** Below all boxes. */
  readonly below: number;
  /** The delegations that lead back to an earlier column, each with its number. */
  readonly back: ReadonlyMap<E, number>;
  /** The height of boxes and lines, and the width of everything. */
  readonly drawn: number;
  readonly width: number;
}

/** Forwards a gentle curve, within a column a bow beside it, backwards around all boxes; and where a caption goes. */
export function course<E extends Ends>(
  edge: E,
  { x, y, below, back }: DrawingPlace<E>,
): { path: string; middle: readonly [number, number] } {
  const { from, to } = edge;
  const half = BOX.height / 2;
  const isForwards = x(to) > x(from);
  const [x1, x2] = [x(from) + BOX.width, isForwards ? x(to) : x(to) + BOX.width];
  const apart = from === to ? half / 2 : 0;
  const [y1, y2] = [y(from) + half - apart, y(to) + half + apart];
  const number = back.get(edge);
  if (number !== undefined) {
    const beside = BACK.nearest + (number % BACK.steps) * BACK.step;
    const lane = below + (number + 1) * BACK.gap;
    const path = `M${x1} ${y1}H${x1 + beside}V${lane}H${x2 + beside}V${y2}H${x2}`;
    return { path, middle: [(x1 + x2) / 2 + beside, lane] };
  }
  const bend = isForwards ? Math.max(32, (x2 - x1) / 2) : 56;
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${isForwards ? x2 - bend : x2 + bend} ${y2} ${x2} ${y2}`;
  return { path, middle: [(x1 + x2) / 2 + (isForwards ? 0 : bend / 2), (y1 + y2) / 2] };
}

/** Places everything that is drawn. */
export function placedDrawing<E extends Ends>(picture: {
  readonly nodes: Nodes;
  readonly edges: Edges<E>;
}): DrawingPlace<E> {
  const { column, row, columns, rows } = layout(picture);
  const x = (node: number): number => BOX.margin + (column[node] ?? 0) * (BOX.width + BOX.gapX);
  const y = (node: number): number => BOX.margin + (row[node] ?? 0) * (BOX.height + BOX.gapY);
  const boxes = BOX.margin * 2 + rows * (BOX.height + BOX.gapY) - BOX.gapY;
  const back = new Map(picture.edges.filter(({ from, to }) => x(to) < x(from)).map((edge, i) => [edge, i]));
  const isBent = picture.edges.some(({ from, to }) => x(to) <= x(from));
  const right = isBent ? BOX.gapX - BOX.margin : 0;
  const width = Math.max(BOX.margin * 2 + columns * (BOX.width + BOX.gapX) - BOX.gapX + right, MIN_WIDTH);
  return { x, y, below: boxes - BOX.margin / 2, back, drawn: boxes + back.size * BACK.gap, width };
}

interface Layout {
  /** Column and row of each node. */
  readonly column: readonly number[];
  readonly row: readonly number[];
  readonly columns: number;
  readonly rows: number;
}

const SWEEPS = 8;

/** Layers by distance from the roots, each ordered by where its neighbours stand, so that few edges cross. */
function layout({ nodes, edges }: { readonly nodes: Nodes; readonly edges: Edges<Ends> }): Layout {
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
function layers(count: number, isRoot: readonly boolean[], edges: Edges<Ends>): number[] {
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
