// The text of an OpenAPI document as a value. JSON is parsed here, within a number of values; YAML, which takes a hundred
// times as long, in a thread that can be ended.

import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import { type JsonValue, valuesIn } from "../../mcp/index.js";

export const MAX_API_DOCUMENT_BYTES = 32 * 1024 * 1024;
const MAX_VALUES = 500_000;
const MAX_YAML_BYTES = 4 * 1024 * 1024;
const YAML_MS = 60_000;
const YAML_MEMORY_MB = 512;

/** The value, and how many values it has. Throws a TypeError for what cannot be read within the bounds. */
export async function parsedDocument(text: string): Promise<{ readonly document: JsonValue; readonly values: number }> {
  const json = /^\s*\{/.test(text) ? text : await fromYaml(text);
  const values = valuesIn(json);
  if (values > MAX_VALUES) throw new TypeError(`it has more than ${MAX_VALUES} values`);
  return { document: JSON.parse(json) as JsonValue, values };
}

// Plain JavaScript, so that it runs the same from sources, from the package and from a bundle. A document with aliases to
// aliases would grow without end.
const PROGRAM = `
const { parentPort, workerData } = require("node:worker_threads");
const { parse } = require(workerData.yaml);
const json = JSON.stringify(parse(workerData.text, { maxAliasCount: 1000 })) ?? "null";
parentPort.postMessage(json.length > workerData.maxChars ? null : json);`;

/** One document after another: each may take as much memory as all of them together may. */
let last: Promise<unknown> = Promise.resolve();

function fromYaml(text: string): Promise<string> {
  if (Buffer.byteLength(text) > MAX_YAML_BYTES) {
    return Promise.reject(new TypeError(`it is YAML of more than ${MAX_YAML_BYTES} bytes; write it as JSON`));
  }
  const read = last.then(() => inThread(text));
  last = read.catch(() => {});
  return read;
}

function inThread(text: string): Promise<string> {
  const yaml = createRequire(import.meta.url).resolve("yaml");
  const worker = new Worker(PROGRAM, {
    eval: true,
    workerData: { yaml, text, maxChars: MAX_API_DOCUMENT_BYTES },
    resourceLimits: { maxOldGenerationSizeMb: YAML_MEMORY_MB },
    execArgv: [],
  });
  const timer = setTimeout(() => void worker.terminate(), YAML_MS);
  return new Promise<string>((resolve, reject) => {
    worker.once("message", (json: string | null) => {
      if (json === null) reject(new TypeError(`it has more than ${MAX_API_DOCUMENT_BYTES} bytes as JSON`));
      else resolve(json);
    });
    worker.once("error", (error) => reject(new TypeError(error.message)));
    worker.once("exit", () => reject(new TypeError("it is YAML that takes too long to read; write it as JSON")));
  }).finally(() => {
    clearTimeout(timer);
    void worker.terminate();
  });
}
