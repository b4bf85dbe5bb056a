// Vitest's global set-up: one initialized PostgreSQL cluster, which test files copy.

import { prepareTemplate } from "../../src/storage/fixtures/postgres.js";

export default function setup(): (() => void) | undefined {
  // Both projects name this file.
  return process.env.PORTCULLIS_TEST_POSTGRES === undefined ? prepareTemplate() : undefined;
}
