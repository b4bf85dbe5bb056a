import { signal } from "@preact/signals";
import { clockOffsetMs } from "../state.js";

/** The gateway's time, every second. */
const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now() + clockOffsetMs.value;
}, 1_000);

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const DAY_MS = 86_400_000;

/** The time of day, with the date when that is another day. */
export function Time({ at }: { at: string }) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  return (
    <time dateTime={at} title={full.format(date)}>
      {isToday ? clock.format(date) : `${day.format(date)} ${clock.format(date)}`}
    </time>
  );
}

/** How long ago, in words. */
export function Ago({ at }: { at: string }) {
  const ms = Math.max(0, now.value - Date.parse(at));
  return (
    <time dateTime={at} title={full.format(new Date(at))}>
      {ms < 5_000 ? "now" : `${duration(ms)} ago`}
    </time>
  );
}

/** Counts down; the last minute is urgent. */
export function Left({ until }: { until: string }) {
  const ms = Date.parse(until) - now.value;
  return (
    <time dateTime={until} class={ms < 60_000 ? "urgent" : undefined} title={`until ${full.format(new Date(until))}`}>
      {ms <= 0 ? "expired" : `${ms < 600_000 ? exact(ms) : duration(ms)} left`}
    </time>
  );
}

function exact(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Math.floor(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / DAY_MS)} days`;
}

export function timeOfDay(at: string): string {
  return clock.format(new Date(at));
}

const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

export function hourAndMinute(at: string): string {
  return minutes.format(new Date(at));
}
