// One line on a terminal while work takes long. Nothing is printed where stderr is piped.

const FIRST_MS = 1_000;
const EVERY_MS = 500;
const CLEAR_LINE = "\r\u001b[2K";

export interface ProgressStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Runs `work`; after a second, shows what it is and how long it has taken, and removes the line at the end. */
export async function withProgress<T>(
  label: string,
  work: () => Promise<T>,
  stream: ProgressStream = process.stderr,
): Promise<T> {
  if (stream.isTTY !== true) return work();
  const start = performance.now();
  let isShown = false;
  const timer = setInterval(() => {
    const elapsedMs = performance.now() - start;
    if (elapsedMs < FIRST_MS) return;
    isShown = true;
    stream.write(`${CLEAR_LINE}${label} … ${Math.floor(elapsedMs / 1_000)} s`);
  }, EVERY_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
    if (isShown) stream.write(CLEAR_LINE);
  }
}
