// `npm start`: install, build, serve on embedded defaults. Arguments after `--` go to `portcullis serve`.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { build, checkNode, install, root } from "./steps.mjs";

checkNode();
install();
build();
const child = spawn(process.execPath, [join(root, "dist", "cli", "main.js"), "serve", ...process.argv.slice(2)], {
  stdio: "inherit",
});
// npm passes a signal on to the shell between it and this process, and the shell ends without passing it further.
const parent = process.ppid;
if (process.env.npm_lifecycle_event !== undefined && process.platform !== "win32") {
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    child.kill("SIGTERM");
  }, 200);
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => process.exit(code ?? (signal ? 1 : 0)));
