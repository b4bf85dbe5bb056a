// Targets in processes of their own, loaded in turn, round after round: what is compared was measured side by side.
import { fork } from "node:child_process";
import { join } from "node:path";

const here = import.meta.dirname;

/** Messages in order, none lost between two questions. */
const inboxes = new WeakMap();
function once(child) {
  let inbox = inboxes.get(child);
  if (!inbox) {
    inbox = { waiting: [], messages: [] };
    inboxes.set(child, inbox);
    child.on("message", (message) => {
      const next = inbox.waiting.shift();
      if (next) next(message);
      else inbox.messages.push(message);
    });
  }
  if (inbox.messages.length > 0) return Promise.resolve(inbox.messages.shift());
  return new Promise((resolve) => inbox.waiting.push(resolve));
}
export async function ask(child, question) {
  const answer = once(child);
  child.send(question);
  return answer;
}

export async function startTarget(target) {
  const child = fork(join(here, "targets", target.file), {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    env: { ...process.env, ...target.env },
  });
  const { url, headers } = await once(child);
  return { ...target, child, url, headers, total: 0 };
}

export async function measure(target, concurrency, options) {
  const settings = {
    url: target.url,
    concurrency,
    seconds: Number(options.seconds),
    warmupSeconds: Number(options.warmup),
    revision: target.revision,
    expect: target.expect,
    headers: target.headers,
  };
  const load = fork(join(here, "load.mjs"), [JSON.stringify(settings)]);
  await once(load);
  const before = await ask(target.child, "usage");
  await once(load);
  const after = await ask(target.child, "usage");
  const result = await once(load);
  if (load.exitCode === null) await new Promise((resolve) => load.once("exit", resolve));
  if (result.errors > 0) throw new Error(`${target.name}: ${result.errors} wrong answers`);
  return { ...result, cpuUsPerCall: (after.cpuUs - before.cpuUs) / result.calls, rssMb: after.rssBytes / 2 ** 20 };
}

export const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Rows of medians; a ratio is taken within a round, where the machine was as noisy for the one as for the other. */
export async function compare(targets, options, ratios) {
  const rows = [];
  for (const concurrency of options.concurrency.split(",").map(Number)) {
    const rounds = [];
    for (let round = 0; round < Number(options.rounds); round++) {
      const results = {};
      for (const target of targets) results[target.name] = await measure(target, concurrency, options);
      rounds.push(results);
      const costs = targets.map((target) => `${results[target.name].cpuUsPerCall.toFixed(1)} µs`).join("  ");
      process.stderr.write(`${concurrency} in flight, round ${round + 1}: ${costs}\n`);
    }
    for (const target of targets) {
      const of = (pick) => median(rounds.map((round) => pick(round[target.name])));
      const ratio = (other) =>
        median(rounds.map((round) => round[target.name].cpuUsPerCall / round[other].cpuUsPerCall));
      rows.push({
        inFlight: concurrency,
        target: target.name,
        cpuUs: of((r) => r.cpuUsPerCall),
        ...Object.fromEntries(
          Object.entries(ratios(target)).map(([label, other]) => [
            label,
            other === undefined ? undefined : ratio(other),
          ]),
        ),
        perSecond: of((r) => r.perSecond),
        p50Ms: of((r) => r.p50Ms),
        p99Ms: of((r) => r.p99Ms),
        rssMb: of((r) => r.rssMb),
      });
    }
  }
  return rows;
}

export function show(rows) {
  const round = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toFixed(2)) : value);
  console.table(rows.map((row) => Object.fromEntries(Object.entries(row).map(([key, value]) => [key, round(value)]))));
}
