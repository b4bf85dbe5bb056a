// Prints every module that is loaded by importing the given one: what a user pays for a subpath.
import { createRequire, register } from "node:module";

const hook = `
import { writeSync } from "node:fs";
export function load(url, context, next) {
  writeSync(1, url + "\\n");
  return next(url, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
await import(process.argv[2]);
const { cache } = createRequire(import.meta.url);
for (const file of Object.keys(cache)) console.log(`file://${file}`);
