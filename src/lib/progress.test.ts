import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { withProgress } from "./progress.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

async function shown(isTTY: boolean, ms: number): Promise<string[]> {
  const lines: string[] = [];
  const stream = { isTTY, write: (text: string) => lines.push(text) };
  const done = withProgress("verifying", () => new Promise((resolve) => setTimeout(resolve, ms)), stream);
  await vi.advanceTimersByTimeAsync(ms);
  await done;
  return lines;
}

it("shows long work with its duration on a terminal, and removes the line when it ends", async () => {
  const lines = await shown(true, 2_100);
  expect(lines[0]).toContain("verifying … 1 s");
  expect(lines.at(-2)).toContain("verifying … 2 s");
  expect(lines.at(-1)).toBe("\r\u001b[2K");
});

it("prints nothing for short work, or where the output is piped", async () => {
  expect(await shown(true, 900)).toEqual([]);
  expect(await shown(false, 5_000)).toEqual([]);
});

it("removes the line when the work fails", async () => {
  const lines: string[] = [];
  const fail = async (): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, 1_600));
    throw new Error("broken");
  };
  const outcome = withProgress("verifying", fail, { isTTY: true, write: (text) => lines.push(text) }).catch(
    (error: Error) => error.message,
  );
  await vi.advanceTimersByTimeAsync(1_600);
  expect(await outcome).toBe("broken");
  expect(lines.at(-1)).toBe("\r\u001b[2K");
});
