// Decisions over time by effect, as stacked bars. The same figures are in a table for assistive technology.

import type { OperationResult } from "../../../src/admin/operations.js";
import { hourAndMinute } from "./time.js";

type HistogramData = OperationResult<"getHistogram">;
type Bucket = HistogramData["buckets"][number];
const EFFECTS = ["permit", "challenge", "deny"] as const;
const WORDS = { permit: "Permitted", challenge: "Approval needed", deny: "Denied" } as const;
const HEIGHT = 150;
const TOP = 6;
/** Units of the drawing; it is stretched to the width of the page. */
const BUCKET = 10;
const GAP = 2;
const LABELS = 5;

export function Histogram({ data: { buckets, complete, scanned } }: { data: HistogramData }) {
  const some = buckets.filter((bucket) => totalOf(bucket) > 0);
  if (some.length === 0) return <p class="soft">No calls in this time.</p>;
  const top = ceiling(Math.max(...buckets.map(totalOf)));
  const every = Math.max(1, Math.ceil(buckets.length / LABELS));
  return (
    <figure class="histogram">
      <div class="chart" aria-hidden="true">
        <ol class="chart-scale">
          {[top, top / 2, 0].map((value) => (
            <li key={value}>{Number.isInteger(value) ? value.toLocaleString("en") : ""}</li>
          ))}
        </ol>
        <svg viewBox={`0 0 ${buckets.length * BUCKET} ${HEIGHT}`} preserveAspectRatio="none">
          {[0, 0.5, 1].map((part) => (
            <line
              key={part}
              x1={0}
              x2={buckets.length * BUCKET}
              y1={heightAt(part)}
              y2={heightAt(part)}
              class="chart-line"
            />
          ))}
          {buckets.map((bucket, i) => (
            <Bar key={bucket.at} bucket={bucket} x={i * BUCKET} top={top} />
          ))}
        </svg>
        <ol class="chart-times">
          {buckets.flatMap(({ at }, i) => (i % every === 0 ? [<li key={at}>{hourAndMinute(at)}</li>] : []))}
        </ol>
      </div>
      <figcaption>
        {EFFECTS.map((effect) => (
          <span key={effect} class={`legend ${effect}`}>
            {WORDS[effect]}
          </span>
        ))}
        {!complete && <span class="soft">newest {scanned.toLocaleString("en")} records only</span>}
      </figcaption>
      <div class="hidden">
        <table>
          <caption>Decisions over time</caption>
          <thead>
            <tr>
              <th scope="col">From</th>
              {EFFECTS.map((effect) => (
                <th key={effect} scope="col">
                  {WORDS[effect]}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {some.map((bucket) => (
              <tr key={bucket.at}>
                <th scope="row">{hourAndMinute(bucket.at)}</th>
                {EFFECTS.map((effect) => (
                  <td key={effect}>{bucket[effect]}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

function totalOf({ permit, deny, challenge }: Bucket): number {
  return permit + deny + challenge;
}

/** The next round number, so that the scale can be read. */
function ceiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

function heightAt(part: number): number {
  return TOP + (1 - part) * (HEIGHT - TOP - 1);
}

function Bar({ bucket, x, top }: { bucket: Bucket; x: number; top: number }) {
  let below = 0;
  return (
    <g>
      <title>{`${hourAndMinute(bucket.at)}: ${EFFECTS.map((effect) => `${bucket[effect]} ${WORDS[effect].toLowerCase()}`).join(", ")}`}</title>
      <rect class="chart-bucket" x={x} y={TOP} width={BUCKET} height={HEIGHT - TOP} />
      {EFFECTS.map((effect) => {
        const from = below / top;
        below += bucket[effect];
        const y = heightAt(below / top);
        return (
          bucket[effect] > 0 && (
            <rect
              key={effect}
              class={`chart-${effect}`}
              x={x + GAP / 2}
              width={BUCKET - GAP}
              y={y}
              height={heightAt(from) - y}
            />
          )
        );
      })}
    </g>
  );
}
