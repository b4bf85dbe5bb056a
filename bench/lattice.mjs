// Workflow analysis at scale, against the plain way, in one run:
//   npm run build && node bench/lattice.mjs [agents …]
// A random graph with ten delegations an agent and 1,024 capabilities, dense: an agent is offered three of four, one
// agent in a hundred has authority of its own, and each may not have about four of those it is offered.
// The plain way is a bitset fixpoint, then one breadth-first search for each violation. Both must find the same.
const dist = new URL(process.env.PORTCULLIS_DIST ?? "../dist/", import.meta.url);
const { DelegationCheck, words } = await import(new URL("lattice/index.js", dist).href);

const CAPABILITIES = 1024;
const WORDS = words(CAPABILITIES);
const sizes = process.argv.slice(2).map(Number);

/** xorshift32: the same graph on every machine. */
function random(seed) {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

function generate(agents) {
  const next = random(agents + 1);
  const delegations = agents * 10;
  const from = Uint32Array.from({ length: delegations }, () => next() % agents);
  const to = Uint32Array.from({ length: delegations }, () => next() % agents);
  const holds = Uint32Array.from({ length: agents * WORDS }, () => (next() | next()) >>> 0);
  const allows = new Uint32Array(agents * WORDS).fill(0xffffffff);
  for (let i = 0; i < agents * 5; i++) {
    const capability = next() % CAPABILITIES;
    allows[(next() % agents) * WORDS + (capability >>> 5)] &= ~(1 << (capability & 31));
  }
  const roots = Array.from({ length: Math.ceil(agents / 100) }, (_, i) => i * 100);
  return { agents, capabilities: CAPABILITIES, from, to, holds, allows, roots };
}

/** Violations and all their witnesses, as one flat list of delegations. */
function ours(graph) {
  const started = performance.now();
  const check = new DelegationCheck(graph);
  const verdict = performance.now();
  const witnesses = [];
  let violations = 0;
  check.each((agent, capability) => {
    violations++;
    witnesses.push(...check.witness(agent, capability));
  });
  const done = performance.now();
  return { check, violations, steps: witnesses.length, verdictMs: verdict - started, witnessMs: done - verdict };
}

function rowsOf(nodes, ends, others) {
  const start = new Uint32Array(nodes + 1);
  for (const end of ends) start[end + 1]++;
  for (let i = 0; i < nodes; i++) start[i + 1] += start[i];
  const at = start.slice();
  const other = new Uint32Array(ends.length);
  for (let e = 0; e < ends.length; e++) other[at[ends[e]]++] = others[e];
  return { start, other };
}

function plain({ agents, from, to, holds, allows, roots }) {
  const started = performance.now();
  const out = rowsOf(agents, from, to);
  const scope = new Uint32Array(agents * WORDS);
  const isRoot = new Uint8Array(agents);
  const waiting = new Uint8Array(agents);
  const queue = [...roots];
  for (const root of roots) {
    isRoot[root] = waiting[root] = 1;
    scope.set(holds.subarray(root * WORDS, (root + 1) * WORDS), root * WORDS);
  }
  for (let head = 0; head < queue.length; head++) {
    const node = queue[head];
    waiting[node] = 0;
    for (let e = out.start[node]; e < out.start[node + 1]; e++) {
      const target = out.other[e];
      let changed = false;
      for (let w = 0; w < WORDS; w++) {
        const more = scope[node * WORDS + w] & holds[target * WORDS + w] & ~scope[target * WORDS + w];
        if (more !== 0) {
          scope[target * WORDS + w] |= more;
          changed = true;
        }
      }
      if (changed && waiting[target] === 0) {
        waiting[target] = 1;
        queue.push(target);
      }
    }
  }
  const verdict = performance.now();
  const back = rowsOf(agents, to, from);
  const seen = new Int32Array(agents);
  const cameFrom = new Int32Array(agents);
  const line = new Int32Array(agents);
  let [violations, steps] = [0, 0];
  for (let agent = 0; agent < agents; agent++) {
    for (let w = 0; w < WORDS; w++) {
      for (let bad = scope[agent * WORDS + w] & ~allows[agent * WORDS + w]; bad !== 0; bad &= bad - 1) {
        const bit = bad & -bad;
        violations++;
        let [head, tail, found] = [0, 1, -1];
        line[0] = agent;
        seen[agent] = violations;
        cameFrom[agent] = -1;
        while (found === -1) {
          const node = line[head++];
          if (isRoot[node] === 1) found = node;
          else {
            for (let e = back.start[node]; e < back.start[node + 1]; e++) {
              const before = back.other[e];
              if (seen[before] === violations || (scope[before * WORDS + w] & bit) === 0) continue;
              seen[before] = violations;
              cameFrom[before] = node;
              line[tail++] = before;
            }
          }
        }
        for (let node = found; cameFrom[node] !== -1; node = cameFrom[node]) steps++;
      }
    }
  }
  const done = performance.now();
  return { violations, steps, verdictMs: verdict - started, witnessMs: done - verdict };
}

function keysOf(check) {
  const keys = new Map();
  check.each((agent, capability) =>
    keys.set(agent * CAPABILITIES + capability, check.witness(agent, capability).length),
  );
  return keys;
}

/** Removes and adds delegations one by one, then compares with an analysis from scratch. */
function incremental(graph, check, rounds) {
  const next = random(7);
  const times = [];
  const alive = new Map(Array.from(graph.from, (from, i) => [i, [from, graph.to[i]]]));
  for (let i = 0; i < rounds; i++) {
    const gone = next() % graph.from.length;
    if (alive.delete(gone)) {
      const started = performance.now();
      check.remove(gone);
      times.push(performance.now() - started);
    }
    const [from, to] = [next() % graph.agents, next() % graph.agents];
    const started = performance.now();
    const { delegation } = check.add(from, to);
    times.push(performance.now() - started);
    alive.set(delegation, [from, to]);
  }
  const edges = [...alive.values()];
  const fresh = new DelegationCheck({ ...graph, from: edges.map(([from]) => from), to: edges.map(([, to]) => to) });
  const [kept, scratch] = [keysOf(check), keysOf(fresh)];
  const same = kept.size === scratch.size && [...kept].every(([key, length]) => scratch.get(key) === length);
  times.sort((a, b) => a - b);
  return {
    same,
    changes: times.length,
    medianMs: times[times.length >> 1],
    p99Ms: times[Math.floor(times.length * 0.99)],
  };
}

const ms = (value) => `${value.toFixed(value < 10 ? 2 : 0)} ms`;
let failed = false;
for (const agents of sizes.length > 0 ? sizes : [10_000, 100_000]) {
  const graph = generate(agents);
  const mine = ours(graph);
  const peakMiB = Math.round(process.resourceUsage().maxRSS / 1024);
  const theirs = plain(graph);
  const change = incremental(graph, mine.check, 1_000);
  const total = (run) => run.verdictMs + run.witnessMs;
  const agree = mine.violations === theirs.violations && mine.steps === theirs.steps && change.same;
  failed ||= !agree;
  console.log(
    `${agents} agents, ${graph.from.length} delegations, ${CAPABILITIES} capabilities: ${mine.violations} violations`,
  );
  console.log(
    `  ours   verdict ${ms(mine.verdictMs)}, all shortest witnesses ${ms(mine.witnessMs)}, total ${ms(total(mine))}, peak ${peakMiB} MiB`,
  );
  console.log(
    `  plain  verdict ${ms(theirs.verdictMs)}, one search a violation ${ms(theirs.witnessMs)}, total ${ms(total(theirs))}`,
  );
  console.log(
    `  ${(total(theirs) / total(mine)).toFixed(1)} times faster; same violations and lengths: ${agree ? "yes" : "NO"}`,
  );
  console.log(
    `  ${change.changes} changes: median ${ms(change.medianMs)}, 99th percentile ${ms(change.p99Ms)}; same as from scratch: ${change.same ? "yes" : "NO"}`,
  );
}
if (failed) process.exitCode = 1;
