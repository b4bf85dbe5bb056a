// What every target does: say where it listens, and what it has used when asked.

export function ready(url, more = {}) {
  process.on("message", async (question) => {
    if (question === "usage") {
      const { user, system } = process.cpuUsage();
      process.send({ cpuUs: user + system, rssBytes: process.memoryUsage.rss() });
    } else if (question === "gc") {
      globalThis.gc?.();
      process.send({ rssBytes: process.memoryUsage.rss(), heapBytes: process.memoryUsage().heapUsed });
    } else if (question === "stop") {
      process.send((await more.stop?.()) ?? {});
      process.disconnect();
      process.exit(0);
    }
  });
  process.send({ url, headers: more.headers ?? {} });
}
