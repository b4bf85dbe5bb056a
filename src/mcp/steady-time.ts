// Wall-clock time that does not jump: read once when the process starts and advanced by the monotonic clock. What has to
// last for a while is measured by it, so that a corrected system clock changes no decision.

/** Milliseconds since 1970, as the clock stood at the start of this process plus the time since then. */
export function steadyNow(): number {
  return performance.timeOrigin + performance.now();
}

/** The steady time at which `at` will have passed, by a clock that shows `clockNow` at this moment. */
export function steadyTimeOf(at: number, clockNow: number): number {
  return steadyNow() + at - clockNow;
}
