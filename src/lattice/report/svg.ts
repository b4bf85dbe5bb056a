import type { Violation, Workflow } from "../workflow/model.js";
import { BOX, course, type DrawingPlace, placedDrawing } from "./layout.js";
import { type PictureEdge, pictureOf, printable, shorten, tell } from "./picture.js";

const LINE_HEIGHT = 18;
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
  const place = placedDrawing(picture);
  const { x, y, drawn, width } = place;
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

function line(edge: PictureEdge, place: DrawingPlace): string {
  const look = `class="edge${edge.isMarked ? " marked" : ""}" marker-end="url(#${edge.isMarked ? "red" : "plain"})"`;
  return `<path ${look} d="${course(edge, place).path}"/>`;
}

function caption(edge: PictureEdge, place: DrawingPlace): string {
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
