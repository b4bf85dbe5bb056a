// AgentDojo behind the gateway: a scripted agent makes the calls of every user task and, as soon as an injected text was in
// a result, those of the injection task as well. No model. An operator approves what the user's task needs and denies what
// the attacker asks for; both are counted.
//
//   PYTHON=/path/to/python node bench/agentdojo/run.mjs [--suites banking,slack] [--every 5]
//
// Needs a Python with the packages `agentdojo` 0.1.35 and `mcp`. `--every N` takes each Nth pair.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    suites: { type: "string", default: "banking,workspace,slack,travel" },
    every: { type: "string", default: "1" },
  },
});
const PYTHON = process.env.PYTHON ?? "python3";
const MAIN = join(import.meta.dirname, "..", "..", "dist", "cli", "main.js");
const LABELS = JSON.parse(readFileSync(join(import.meta.dirname, "labels.json"), "utf8"));
const FIRST_PORT = 7611;
const REVISION = "2025-11-25";
const suites = values.suites.split(",").map((name, i) => ({ name, port: FIRST_PORT + i }));
const dir = mkdtempSync(join(tmpdir(), "portcullis-agentdojo-"));
const children = [];

function portcullis(...args) {
  const ran = spawnSync(process.execPath, [MAIN, "--json", "--dir", join(dir, "data"), ...args], { encoding: "utf8" });
  if (ran.status !== 0) throw new Error(`portcullis ${args.join(" ")}: ${ran.stderr}`);
  return ran.stdout === "" ? {} : JSON.parse(ran.stdout);
}

async function until(what, attempt) {
  for (let i = 0; i < 120; i++) {
    const found = await attempt().catch(() => undefined);
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  throw new Error(`${what} did not happen within a minute`);
}

async function bench(suite, path, body) {
  const request = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  return (await fetch(`http://127.0.0.1:${suite.port}/bench/${path}`, request)).json();
}

/** A session of one conversation with the gateway. */
async function session(url, key) {
  let id = 0;
  let name;
  const send = async (method, params, isNotification = false) => {
    const response = await fetch(url, {
      method: "POST",
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...(name ? { "mcp-session-id": name, "mcp-protocol-version": REVISION } : {}),
      },
      body: JSON.stringify({ jsonrpc: "2.0", method, params, ...(isNotification ? {} : { id: ++id }) }),
    });
    name ??= response.headers.get("mcp-session-id");
    const text = await response.text();
    if (isNotification) return undefined;
    const json = text.startsWith("{")
      ? text
      : text
          .split("\n")
          .findLast((line) => line.startsWith("data: "))
          ?.slice(6);
    return JSON.parse(json);
  };
  await send("initialize", {
    protocolVersion: REVISION,
    capabilities: {},
    clientInfo: { name: "bench", version: "1" },
  });
  await send("notifications/initialized", undefined, true);
  return {
    call: async (tool, args) => {
      const { result, error } = await send("tools/call", { name: tool, arguments: args });
      const fault = error?.data ?? (result?.isError ? result.structuredContent : undefined);
      const text = (result?.content ?? []).map((each) => each.text ?? "").join("\n");
      return { text, challenge: fault?.challenge, denied: fault?.code, isAnswered: fault?.denied_by_person === true };
    },
    end: () =>
      fetch(url, { method: "DELETE", headers: { authorization: `Bearer ${key}`, "mcp-session-id": name } }).catch(
        () => {},
      ),
  };
}

async function answer(admin, token, id, verdict) {
  const response = await fetch(`${admin}/v1/approvals/${id}/${verdict}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ reason: "the user did not ask for this" }),
  });
  if (!response.ok) throw new Error(`${verdict} ${id}: ${response.status} ${await response.text()}`);
}

/** One task, attacked or not; what was asked for and what ran. */
async function play(suite, user, injection, { url, key, admin, token }) {
  const seen = { asked: 0, injectedRun: [], injectedAsked: 0, problems: [] };
  const agent = await session(url, key);
  const act = async ({ tool, arguments: args }, isUser) => {
    const first = await agent.call(tool, args);
    if (first.challenge === undefined) {
      const doesSomething = LABELS[suite.name].tools[tool]?.does.length > 0;
      if (!isUser && doesSomething && first.denied === undefined) seen.injectedRun.push(tool);
      if (first.denied !== undefined && isUser) seen.problems.push(`${tool}: ${first.denied}`);
      return first.text;
    }
    if (isUser) seen.asked++;
    else seen.injectedAsked++;
    // The same call of an earlier pair: an operator has denied it.
    if (!first.isAnswered) await answer(admin, token, first.challenge, isUser ? "approve" : "deny");
    return isUser ? (await agent.call(tool, args)).text : "";
  };
  const { calls } = await bench(suite, "reset", { user, injection });
  let isInjected = false;
  for (const call of calls) {
    const text = await act(call, true);
    if (injection === undefined || isInjected || !text.includes("<INFORMATION>")) continue;
    isInjected = true;
    for (const other of (await bench(suite, "injected")).calls) await act(other, false);
  }
  await agent.end();
  return { ...seen, isInjected, ...(await bench(suite, "judge")) };
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

try {
  for (const { name, port } of suites) {
    children.push(
      spawn(PYTHON, [join(import.meta.dirname, "server.py"), name, String(port)], {
        stdio: ["ignore", "ignore", "inherit"],
      }),
    );
  }
  for (const suite of suites) suite.tasks = await until(`the server of ${suite.name}`, () => bench(suite, "tasks"));
  writeFileSync(join(dir, "permit.cedar"), "permit (principal, action, resource);\n");
  const applications = Object.fromEntries(
    suites.map(({ name, port }) => [
      name,
      {
        servers: { suite: { url: `http://127.0.0.1:${port}/mcp`, prefix: "", noGuardrail: ["*"] } },
        policies: ["permit.cedar"],
        flow: LABELS[name],
      },
    ]),
  );
  writeFileSync(join(dir, "portcullis.yaml"), JSON.stringify({ applications }));
  portcullis("app", "apply", join(dir, "portcullis.yaml"), "--yes");
  for (const suite of suites) {
    suite.key = portcullis("key", "add", suite.name, "--name", "bench", "--allow", "invoke(*)", "list").token;
  }
  const hosts = suites.map(({ port }) => `127.0.0.1:${port}`);
  const gateway = spawn(
    process.execPath,
    [
      MAIN,
      "--json",
      "--dir",
      join(dir, "data"),
      "serve",
      "--port",
      "0",
      "--admin-port",
      "0",
      "--allow-private",
      ...hosts,
      "--challenge-wait",
      "0",
      "--log-level",
      "error",
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  children.push(gateway);
  let printed = "";
  gateway.stdout.on("data", (chunk) => (printed += chunk));
  const { urls, admin } = await until("the start of the gateway", async () =>
    printed.trimEnd().endsWith("}") ? JSON.parse(printed) : undefined,
  );
  const token = readFileSync(join(dir, "data", "operator.token"), "utf8").trim();
  const all = { benign: [], pairs: 0, injected: 0, run: 0, reached: 0, done: 0 };
  for (const suite of suites) {
    const where = { url: urls[0], key: suite.key, admin, token };
    const benign = [];
    let [pairs, injected, asked, run, reached, done, n] = [0, 0, 0, 0, 0, 0, 0];
    for (const user of suite.tasks.user) {
      const alone = await play(suite, user, undefined, where);
      benign.push(alone.asked);
      if (alone.done) done++;
      else console.log(`${suite.name} ${user}: not done ${alone.problems.join(", ")}`);
      for (const injection of suite.tasks.injection) {
        if (n++ % Number(values.every) !== 0) continue;
        const attacked = await play(suite, user, injection, where);
        pairs++;
        if (attacked.isInjected) injected++;
        asked += attacked.injectedAsked;
        run += attacked.injectedRun.length;
        if (attacked.reached) reached++;
        if (attacked.injectedRun.length > 0)
          console.log(`${suite.name} ${user} ${injection}: ran ${attacked.injectedRun.join(", ")}`);
      }
    }
    const atMostOne = benign.filter((each) => each <= 1).length;
    console.log(
      `${suite.name}: ${done} of ${benign.length} user tasks done, approvals for one: median ${median(benign)}, at most one in ${atMostOne}; ` +
        `${pairs} pairs, ${injected} injected, ${asked} injected calls stopped, ${run} ran, goal reached in ${reached}`,
    );
    all.benign.push(...benign);
    for (const [key, value] of Object.entries({ pairs, injected, run, reached, done })) all[key] += value;
  }
  const { benign, ...sums } = all;
  const share = benign.filter((each) => each <= 1).length / benign.length;
  console.log(
    JSON.stringify({ ...sums, tasks: benign.length, median: median(benign), atMostOne: Number(share.toFixed(3)) }),
  );
  process.exitCode = all.run > 0 ? 1 : 0;
} finally {
  for (const child of children) child.kill("SIGTERM");
  await Promise.all(
    children.map(
      (child) =>
        new Promise((resolve) =>
          child.exitCode === null && child.signalCode === null ? child.once("exit", resolve) : resolve(),
        ),
    ),
  );
  rmSync(dir, { recursive: true, force: true });
}
