// What the host's three tools cost, beside doing it in Node and beside the usual file-system server. One run, in turns.
//   node bench/host.mjs [--rounds 20] [--warmup 3] [--json]
// Reads of 5 MB, writes of 10 MB, `ls` of a small folder. Both servers are started as clients start them and spoken to
// over stdio, with their defaults; Portcullis decides, keeps its ledger on a real disk, and runs `ls` in its sandbox.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, promises, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    warmup: { type: "string", default: "3" },
    json: { type: "boolean", default: false },
  },
});
const READ_BYTES = 5_000_000;
const WRITE_BYTES = 10_000_000;
const root = realpathSync(mkdtempSync(join(tmpdir(), "portcullis-bench-host-")));
const files = join(root, "files");
const small = join(files, "small");
const big = join(files, "big.txt");
const out = join(files, "out.txt");
const text = `${"The quick brown fox jumps over the lazy dog; 0123456789.\n".repeat(200_000)}`;

/** A server on a line of JSON-RPC. */
class Line {
  #waiting = new Map();
  #next = 0;
  #parts = [];
  constructor(args) {
    this.child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "ignore"], cwd: root });
    this.child.stdout.on("data", (chunk) => this.#take(chunk));
  }
  #take(chunk) {
    for (let rest = chunk; ; ) {
      const end = rest.indexOf(10);
      if (end < 0) {
        this.#parts.push(rest);
        return;
      }
      const line = Buffer.concat([...this.#parts, rest.subarray(0, end)]).toString("utf8");
      this.#parts = [];
      rest = rest.subarray(end + 1);
      const answer = JSON.parse(line);
      this.#waiting.get(answer.id)?.(answer);
    }
  }
  async ask(method, params) {
    const id = ++this.#next;
    const answered = new Promise((resolve) => this.#waiting.set(id, resolve));
    this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    const answer = await answered;
    this.#waiting.delete(id);
    if (answer.error || answer.result?.isError) throw new Error(JSON.stringify(answer).slice(0, 500));
    return answer.result;
  }
  async initialize() {
    const clientInfo = { name: "bench", version: "1.0.0" };
    await this.ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
    this.child.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
  }
  call(name, args) {
    return this.ask("tools/call", { name, arguments: args });
  }
  close() {
    return new Promise((resolve) => {
      this.child.once("exit", resolve);
      this.child.stdin.end();
      setTimeout(() => this.child.kill("SIGKILL"), 3_000).unref();
    });
  }
}

/** Processor time of a server so far, in ms: on a busy machine it says more than the clock. Linux only. */
function cpuMs(line) {
  if (process.platform !== "linux" || line === undefined) return Number.NaN;
  const fields = readFileSync(`/proc/${line.child.pid}/stat`, "latin1").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

function plainSpawn() {
  return new Promise((resolve, reject) => {
    const child = spawn("/bin/ls", ["-l"], { cwd: small, stdio: ["ignore", "pipe", "pipe"] });
    let length = 0;
    child.stdout.on("data", (chunk) => {
      length += chunk.length;
    });
    child.on("error", reject);
    child.on("close", (code) => (code === 0 && length > 0 ? resolve() : reject(new Error(`ls ended with ${code}`))));
  });
}

function prepare() {
  mkdirSync(small, { recursive: true });
  for (let index = 0; index < 10; index += 1) writeFileSync(join(small, `file-${index}`), "x");
  writeFileSync(big, text.slice(0, READ_BYTES));
  writeFileSync(out, "");
  writeFileSync(
    join(root, "policy.yaml"),
    `version: 1
allowedRoots: ["${files}"]
writeRules:
  - { path: "${files}", recursive: true, maxFileBytes: 20_000_000, createIfMissing: true }
commands:
  - { id: ls, exec: /bin/ls, args: { allow: ["-l"] } }
limits: { maxReadBytes: ${READ_BYTES} }
sandbox: required
`,
    { mode: 0o600 },
  );
}

const figures = ({ times, cpu }) => {
  const sorted = [...times].sort((a, b) => a - b);
  return { min: sorted[0], median: sorted[Math.floor(sorted.length / 2)], cpu: cpu / times.length };
};

async function measure(host, other) {
  const data = text.slice(0, WRITE_BYTES);
  const expectLength = (length, wanted) => {
    if (length !== wanted) throw new Error(`got ${length} instead of ${wanted}`);
  };
  const ways = {
    "read 5 MB": {
      "fs.promises": async () => expectLength((await promises.readFile(big, "utf8")).length, READ_BYTES),
      "server-filesystem": async () =>
        expectLength((await other.call("read_text_file", { path: big })).content[0].text.length, READ_BYTES),
      portcullis: async () => expectLength((await host.ask("fs.read", { path: big })).data.length, READ_BYTES),
      "portcullis, as an MCP tool": async () =>
        expectLength((await host.call("fs.read", { path: big })).structuredContent.data.length, READ_BYTES),
    },
    "write 10 MB": {
      "fs.promises": () => promises.writeFile(out, data),
      "fs.promises, flushed": () => promises.writeFile(out, data, { flush: true }),
      "server-filesystem": () => other.call("write_file", { path: out, content: data }),
      portcullis: async () => {
        const { bytesWritten } = await host.ask("fs.write", { path: out, data, overwrite: true });
        expectLength(bytesWritten, WRITE_BYTES);
      },
    },
    "ls -l": {
      "child_process.spawn": plainSpawn,
      portcullis: async () => {
        const { exitCode, protections } = await host.ask("cmd.run", { commandId: "ls", args: ["-l"], cwd: small });
        expectLength(exitCode, 0);
        inForce = protections;
      },
    },
  };
  const results = {};
  for (const [task, targets] of Object.entries(ways)) {
    const samples = Object.fromEntries(Object.keys(targets).map((name) => [name, { times: [], cpu: 0 }]));
    for (let round = -Number(values.warmup); round < Number(values.rounds); round += 1) {
      // Another one first each time: nobody always pays for what the one before left behind.
      const names = Object.keys(targets);
      for (let turn = 0; turn < names.length; turn += 1) {
        const name = names[(turn + round + Number(values.warmup)) % names.length];
        const run = targets[name];
        const line = name.startsWith("portcullis") ? host : name === "server-filesystem" ? other : undefined;
        const used = cpuMs(line);
        const started = performance.now();
        await run();
        if (round < 0) continue;
        samples[name].times.push(performance.now() - started);
        samples[name].cpu += cpuMs(line) - used;
      }
    }
    results[task] = Object.fromEntries(Object.entries(samples).map(([name, list]) => [name, figures(list)]));
  }
  return results;
}

let inForce;
prepare();
const main = join(import.meta.dirname, "..", "dist", "cli", "main.js");
const manifest = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-filesystem/package.json");
const rival = join(dirname(manifest), JSON.parse(readFileSync(manifest, "utf8")).bin["mcp-server-filesystem"]);
const host = new Line([main, "host", "--config", join(root, "policy.yaml"), "--state", join(root, "state")]);
const other = new Line([rival, files]);
try {
  await Promise.all([host.initialize(), other.initialize()]);
  const results = await measure(host, other);
  if (values.json) console.log(JSON.stringify({ results, inForce }, null, 2));
  else print(results);
} finally {
  await Promise.all([host.close(), other.close()]);
  rmSync(root, { recursive: true, force: true });
}

function print(results) {
  console.log(`Node ${process.versions.node}, ${values.rounds} rounds; ms`);
  for (const [task, targets] of Object.entries(results)) {
    console.log(`\n${task}`);
    for (const [name, { min, median, cpu }] of Object.entries(targets)) {
      const [first] = Object.values(targets);
      const against = targets["server-filesystem"];
      const ratios = [`${(median / first.median).toFixed(2)} × plain`];
      if (against) ratios.push(`${(median / against.median).toFixed(2)} × server-filesystem`);
      if (against && !Number.isNaN(cpu)) ratios.push(`CPU ${cpu.toFixed(1)} = ${(cpu / against.cpu).toFixed(2)} ×`);
      console.log(`  ${name.padEnd(28)} median ${median.toFixed(2)}  min ${min.toFixed(2)}  ${ratios.join(", ")}`);
    }
  }
  const ls = results["ls -l"];
  const added = (kind) => (ls.portcullis[kind] - ls["child_process.spawn"][kind]).toFixed(2);
  console.log(`\nthe sandbox adds ${added("median")} ms (median), ${added("min")} ms (min) to a spawn`);
  console.log(`in force: ${JSON.stringify(inForce)}`);
}
