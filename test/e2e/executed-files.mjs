// Loaded with `--import`: on SIGUSR2 the process writes which files of dist executed a function since the last time.
import { renameSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector";

const session = new Session();
session.connect();
session.post("Profiler.enable");
session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
let round = 0;
process.on("SIGUSR2", () => {
  session.post("Profiler.takePreciseCoverage", (error, coverage) => {
    if (error) throw error;
    const ran = coverage.result.filter(({ functions }) => functions.some(({ ranges }) => ranges[0].count > 0));
    const files = ran.flatMap(({ url }) => url.split("/dist/")[1] ?? []);
    const file = `${process.env.EXECUTED_FILES}.${round++}`;
    writeFileSync(`${file}.draft`, files.join("\n"));
    renameSync(`${file}.draft`, file);
  });
});
