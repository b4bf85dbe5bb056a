// A second process that exchanges two names in a loop (renameat2 RENAME_EXCHANGE) until its input ends.
import { createRequire } from "node:module";

const koffi = createRequire(import.meta.url)(`@koromix/koffi-${process.platform}-${process.arch}`);

const [a, b] = process.argv.slice(2);
const renameat2 = koffi.load(null).func("renameat2", "int", ["int", "str", "int", "str", "uint"]);
process.stdin.on("end", () => process.exit(0)).resume();
process.stdout.write("ready\n");

// Pauses of different length, so that every moment of a victim's work meets a swap sooner or later.
let idle = 0;
function burst() {
  for (let i = 0; i < 2000; i++) {
    renameat2(-100, a, -100, b, 2);
    for (let wait = (i % 64) * 200; wait > 0; wait--) idle++;
  }
  setImmediate(burst);
}
burst();
