import type { Violation, Workflow } from "../workflow/model.js";
import { type Picture, type PictureEdge, pictureOf, printable, shorten, tell } from "./picture.js";

const BOX = { width: 168, height: 34, gapX: 132, gapY: 18, margin: 24 } as const;
const LINE_HEIGHT = 18;
/** Where delegations that lead back run: below all boxes side by side, and up and down between the columns. */
const BACK = { gap: 5, nearest: 16, step: 7, steps: 14 } as const;
const MAX_STORIES = 12;
const MAX_NAME = 22;
/** A generous width of one character of a note. */
const CHARACTER = 6.6;
const MAX_LINES = 4;
const INDENT = 14;

const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #111827; }
  .note { font-size: 12px; fill: #4b5563; }
  .label { font-size: 10px; fill: #4b5563; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
  .box { fill: #f8fafc; stroke: #94a3b8; }
  .root { fill: #e8f0fe; stroke: #1a56db; }
  .offending { fill: #fde8e8; stroke: #c81e1e; stroke-width: 2; }
  .edge { fill: none; stroke: #94a3b8; stroke-width: 1.2; stroke-linejoin: round; }
  .marked { stroke: #c81e1e; stroke-width: 3; }`;

/** A layered drawing, roots at the left, the ways of the violations in red. */
export function toSvg(workflow: Workflow, violations: readonly Violation[] = []): string {
  const picture = pictureOf(workflow, violations);
  const { column, row, columns, rows } = layout(picture);
  const x = (node: number): number => BOX.margin + (column[node] ?? 0) * (BOX.width + BOX.gapX);
  const y = (node: number): number => BOX.margin + (row[node] ?? 0) * (BOX.height + BOX.gapY);
  const boxes = BOX.margin * 2 + rows * (BOX.height + BOX.gapY) - BOX.gapY;
  const back = new Map(picture.edges.filter(({ from, to }) => x(to) < x(from)).map((edge, i) => [edge, i]));
  const isBent = picture.edges.some(({ from, to }) => x(to) <= x(from));
  const place: Place = { x, y, below: boxes - BOX.margin / 2, back };
  const drawn = boxes + back.size * BACK.gap;
  const right = isBent ? BOX.gapX - BOX.margin : 0;
  const width = Math.max(BOX.margin * 2 + columns * (BOX.width + BOX.gapX) - BOX.gapX + right, 480);
  const told = violations.slice(0, MAX_STORIES).map(tell);
  if (violations.length > MAX_STORIES) told.push(`… and ${violations.length - MAX_STORIES} more`);
  const stories = told.flatMap((story) => wrapped(story, Math.floor((width - 2 * BOX.margin) / CHARACTER)));
  const height = drawn + (stories.length + 1) * LINE_HEIGHT + BOX.margin;
  // Marked edges last, so that they lie on top.
  const edges = picture.edges.toSorted((a, b) => Number(a.isMarked) - Number(b.isMarked));
  const title =
    violations.length === 0 ? "No violations" : `${violations.length} violation${violations.length === 1 ? "" : "s"}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escape(title)}</title>`,
    `<style>${STYLE}</style>`,
    `<defs>${arrow("plain", "#94a3b8")}${arrow("red", "#c81e1e")}</defs>`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    ...edges.map((edge) => line(edge, place)),
    // Above all lines, so that none runs through a word.
    ...edges.flatMap((edge) => (edge.label === "" ? [] : caption(edge, place))),
    ...picture.nodes.map(({ name, isRoot, isOffending, capabilities }, node) => {
      const look = isOffending ? "box offending" : isRoot ? "box root" : "box";
      const at = `x="${x(node)}" y="${y(node)}" width="${BOX.width}" height="${BOX.height}" rx="${isRoot ? 17 : 6}"`;
      const center = `x="${x(node) + BOX.width / 2}" y="${y(node) + BOX.height / 2 + 4}" text-anchor="middle"`;
      const full = `${name}: ${capabilities} capabilities${isRoot ? ", own authority" : ""}`;
      return `<g><title>${escape(full)}</title><rect class="${look}" ${at}/><text ${center}>${escape(shorten(name, MAX_NAME))}</text></g>`;
    }),
    `<text x="${BOX.margin}" y="${drawn + LINE_HEIGHT}" font-weight="600">${escape(title)}</text>`,
    ...stories.map(({ text, indent }, i) => {
      const at = `x="${BOX.margin + indent}" y="${drawn + (i + 2) * LINE_HEIGHT}"`;
      return `<text class="note" ${at}>${escape(text)}</text>`;
    }),
    "</svg>",
    "",
  ].join("\n");
}

function arrow(id: string, color: string): string {
  return `<marker id="${id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="${color}"/></marker>`;
}

interface NoteLine {
  readonly text: string;
  readonly indent: number;
}

/** Lines that fit, broken between words; what is still too long is cut. */
function wrapped(story: string, most: number): NoteLine[] {
  const lines: string[] = [];
  for (const word of story.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= most - 4) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  const kept = lines.slice(0, MAX_LINES);
  if (lines.length > MAX_LINES) kept.push("…");
  return kept.map((text, i) => ({ text: shorten(text, most), indent: i === 0 ? 0 : INDENT }));
}

interface Place {
  readonly x: (node: number) => number;
  readonly y: (node: number) => number;
  /** Below all boxes. */
  readonly below: number;
  /** The delegations that lead back to an earlier column, each with its number. */
  readonly back: ReadonlyMap<PictureEdge, number>;
}

/** Forwards a gentle curve, within a column a bow beside it, backwards around all boxes; and where a caption goes. */
function course(edge: PictureEdge, { x, y, below, back }: Place): { path: string; middle: readonly [number, number] } {
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

function line(edge: PictureEdge, place: Place): string {
  const look = `class="edge${edge.isMarked ? " marked" : ""}" marker-end="url(#${edge.isMarked ? "red" : "plain"})"`;
  return `<path ${look} d="${course(edge, place).path}"/>`;
}

function caption(edge: PictureEdge, place: Place): string {
  const [x, y] = course(edge, place).middle;
  const text = escape(shorten(edge.label, 18));
  return `<text class="label" x="${x}" y="${y - 4}" text-anchor="middle"><title>${escape(edge.label)}</title>${text}</text>`;
}

function escape(text: string): string {
  return (
    printable(text)
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll('"', "&quot;")
      // Characters that XML 1.0 does not allow at all.
      .replaceAll(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "�")
  );
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
function layout({ nodes, edges }: Picture): Layout {
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
