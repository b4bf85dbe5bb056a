// Work over thousands of tools, written once: run at once by a command, or in slices by a gateway that serves others.

import { isSliceOver, nextSlice } from "../../mcp/index.js";

/** `yield` marks where the work may be interrupted. */
export type Steps<T> = Generator<undefined, T>;

export function run<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

export async function runInSlices<T>(steps: Steps<T>): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    if (isSliceOver()) await nextSlice();
  }
}
