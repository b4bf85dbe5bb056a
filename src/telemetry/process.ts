// How the process itself is doing. Asked for at a scrape; the measuring of event-loop delay begins with the first one,
// so that nobody pays for a number that nobody reads.

import { type IntervalHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { type Family, gauge } from "./series.js";

const RESOLUTION_MS = 20;
const WINDOW_MS = 10_000;

export class ProcessMetrics {
  #delay: IntervalHistogram | undefined;
  #windowBegan = Number.NEGATIVE_INFINITY;
  #window = { mean: 0, p99: 0, max: 0 };

  /** Each process of a gateway has its own. */
  families(): Family[] {
    return this.#families().map((family) => ({ ...family, across: "each" }));
  }

  #families(): Family[] {
    const memory = process.memoryUsage();
    const cpu = process.cpuUsage();
    return [
      gauge("process.memory.usage", "Resident memory", "By", memory.rss),
      gauge("v8js.memory.heap.used", "Heap in use", "By", memory.heapUsed),
      gauge("v8js.memory.external", "Memory of buffers and other objects outside the heap", "By", memory.external),
      gauge("process.uptime", "Time since the process began", "s", process.uptime()),
      { ...gauge("process.cpu.time", "Processor time used", "s", (cpu.user + cpu.system) / 1e6), type: "counter" },
      ...this.#eventLoop(),
    ];
  }

  stop(): void {
    this.#delay?.disable();
    this.#delay = undefined;
  }

  #eventLoop(): Family[] {
    if (!this.#delay) {
      this.#delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
      this.#delay.enable();
    }
    // Several readers (a scrape, an exporter) look at the same window, so none takes it away from another.
    if (performance.now() - this.#windowBegan >= WINDOW_MS) {
      const { mean, max } = this.#delay;
      this.#window = { mean: seconds(mean), p99: seconds(this.#delay.percentile(99)), max: seconds(max) };
      this.#windowBegan = performance.now();
      this.#delay.reset();
    }
    const { mean, p99, max } = this.#window;
    return [
      gauge("nodejs.eventloop.delay.mean", "Mean delay of the event loop in the last window", "s", mean),
      gauge("nodejs.eventloop.delay.p99", "99th percentile of the event loop's delay", "s", p99),
      gauge("nodejs.eventloop.delay.max", "Longest delay of the event loop in the last window", "s", max),
    ];
  }
}

/** From nanoseconds, with the sampling interval itself taken off; an empty histogram has no mean. */
function seconds(nanoseconds: number): number {
  return Number.isFinite(nanoseconds) ? Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS) / 1000 : 0;
}
