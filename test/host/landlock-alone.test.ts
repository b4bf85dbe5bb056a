// Where user namespaces are closed, Landlock and seccomp hold a command by themselves. Landlock knows neither sockets nor
// modes nor what lasts beyond a process, so these are looked at here, as an ordinary user who owns files outside.

import { beforeAll, describe, expect, test } from "vitest";
import type { Protections } from "../../src/host/index.js";
import { has } from "../setup/programs.js";
import { asOrdinaryUser } from "./support/as-user.js";
import { unreachableForOthers } from "./support/machine.js";

const TOOLS = ["perl", "prlimit"].filter((program) => !has(program));
const closed = process.platform === "linux" ? unreachableForOthers() : "skipped: Linux only";
const why = closed ?? (TOOLS.length > 0 ? `skipped: needs ${TOOLS.join(", ")}` : undefined);

interface Report {
  readonly said: Record<string, string>;
  readonly mode: string;
  readonly year: number;
  readonly heard: string[];
  readonly limit: string;
  readonly protections: Protections;
}

/** Each prints `open` when it succeeds. */
const ATTEMPTS = {
  chmod: "chmod 666 $O/own && echo open",
  touch: "touch -d 2001-01-01 $O/own && echo open; cp -p --attributes-only readme.md $O/own && echo open",
  chgrp: "chgrp $(id -g) $O/own && echo open",
  utime: `perl -e 'utime(1, 1, $ARGV[0]) and print "open"' $O/own`,
  truncate: `perl -e 'truncate($ARGV[0], 0) and print "open"' $O/own`,
  shm: `perl -e 'defined($i = shmget(0, 100, 0600)) and print("open") and shmctl($i, 0, 0)'`,
  queue: `perl -e 'defined($i = msgget(0, 0600)) and print("open") and msgctl($i, 0, 0)'`,
  semaphore: `perl -e 'defined($i = semget(0, 1, 0600)) and print("open") and semctl($i, 0, 0, 0)'`,
  socket: `perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => $ARGV[0]) and print $s "hello"' $O/s`,
  pair: `perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) and print "open"'`,
  // Another process of the machine may be debugged at the same port: then both looks find it.
  debugger: `look() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => "127.0.0.1:9229") ? 1 : 0'; }; before=$(look); kill -USR1 $PPID; sleep 0.5; [ "$before" = "$(look)" ] || echo open`,
  // Last: unhindered, it takes what every later command would need.
  prlimit: "prlimit --pid $PPID --nofile=20:20 && echo open",
};

/** What builds do in their own directories. */
const ORDINARY = {
  copy: "cp -p readme.md out/copy && echo done",
  touch: "touch -d 2001-01-01 out/copy && echo done",
  replace: "sed -i s/hello/bye/ out/copy && echo done",
  move: "mkdir out/d && mv out/copy out/d/copy && rm -r out/d && echo done",
  pipes: "echo a | cat | sed s/a/done/",
  ownLimit: "ulimit -n 20 && echo done",
};

async function play(mode: "off" | "preferred" | "required"): Promise<Report> {
  return asOrdinaryUser(`
    const { createServer } = await import("node:net");
    const { chmodSync, readFileSync, statSync, writeFileSync } = await import("node:fs");
    const world = makeWorld(\`
  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, network: true }\`,
      "sandbox: ${mode}", { userNamespace: true });
    const own = world.outside + "/own";
    writeFileSync(own, "mine", { mode: 0o600 });
    const heard = [];
    const server = createServer((socket) => socket.on("data", (text) => heard.push(String(text))).on("error", () => 0));
    await new Promise((done) => server.listen(world.outside + "/s", done));
    const said = {};
    let protections;
    for (const [name, script] of ${JSON.stringify(Object.entries({ ...prefixed(ORDINARY), ...ATTEMPTS }))}) {
      const outcome = await world.run("sh", ["-c", "O=" + world.outside + "; " + script]);
      said[name] = outcome.ok ? outcome.result.stdout.trim() : JSON.stringify(outcome.denial);
      protections = outcome.result?.protections ?? protections;
    }
    const { mode, mtime } = statSync(own);
    const limit = /open files\\s+(\\d+)/.exec(readFileSync("/proc/" + (world.sandbox.supervisorPids[0] ?? "self") + "/limits", "utf8"))[1];
    server.close();
    await world.close();
    return { said, mode: (mode & 0o777).toString(8), year: mtime.getFullYear(), heard, limit, protections };`);
}

function prefixed(scripts: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(scripts).map(([name, script]) => [`ordinary ${name}`, script]));
}

describe.skipIf(why !== undefined)(`Landlock alone${why === undefined ? "" : ` [${why}]`}`, () => {
  let held: Report;
  beforeAll(async () => {
    held = await play("required");
  });

  test("the result names Landlock as the protection in force, and what it leaves open", () => {
    expect(held.protections).toMatchObject({ files: "landlock", seccomp: true, openMounts: [] });
    expect(held.protections.gaps.join("\n")).toMatch(/names, sizes and times[^]*no \/tmp[^]*by descriptor/);
  });

  test.each(Object.keys(ATTEMPTS))("with Landlock alone, %s reaches nothing outside", (name) =>
    expect(held.said[name]).toBe(""),
  );

  test("with Landlock alone, no file outside has changed [M12]", () => {
    expect(held).toMatchObject({ mode: "600", heard: [] });
    expect(held.year).toBeGreaterThan(2001);
    expect(Number(held.limit)).toBeGreaterThan(20);
  });

  test.each(Object.keys(ORDINARY))("with Landlock alone, %s works in the policy's directories", (name) => {
    expect(held.said[`ordinary ${name}`]).toBe("done");
  });

  test("sandbox: preferred permits builds to set modes, says so, and confines the rest", async () => {
    const loose = await play("preferred");
    expect(loose.protections.gaps).toContain("mode, owner and times of files outside can be changed");
    expect(loose.said).toMatchObject({ chmod: "open", utime: "open" });
    for (const name of ["truncate", "prlimit", "shm", "queue", "semaphore", "socket", "pair", "debugger"])
      expect(loose.said[name], name).toBe("");
  });

  test("without a sandbox, the attempts that Landlock stops succeed", async () => {
    const free = await play("off");
    for (const name of ["chmod", "chgrp", "utime", "truncate", "shm", "queue", "semaphore", "pair", "prlimit"])
      expect(free.said[name], name).toMatch(/open/);
    expect(free.mode).not.toBe("600");
    expect(free.heard).toEqual(["hello"]);
  });
});
