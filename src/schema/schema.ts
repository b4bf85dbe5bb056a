// A schema ready to judge values. Nearly always the answer is immediate. Only when a pattern without a known bound
// meets a text does a worker have to be asked, and then the answer is a promise.

import type { JsonValue } from "../mcp/index.js";
import { type Compiled, compileSchema } from "./compile.js";
import type { SchemaDocument } from "./document.js";
import type { Dialect } from "./documents/index.js";
import type { Matcher } from "./pattern/matcher.js";
import { type PatternWorkers, patternWorkers } from "./pattern/worker.js";
import { type FoundProblems, instancePathOf, type PatternAnswers, Undecided, ValidationRun } from "./run.js";
import {
  DEFAULT_SCHEMA_LIMITS,
  frozenJson,
  type JsonSchema,
  type Problem,
  type SchemaLimits,
  type Validation,
} from "./types.js";

export interface SchemaOptions {
  limits?: Partial<SchemaLimits>;
  /** Where unproved patterns run; one pool for the process unless told otherwise. */
  workers?: PatternWorkers;
}

/** A validation asks again with every answer it got; each round knows more, and this many are plenty. */
const MAX_ROUNDS = 8;
const MAX_QUESTIONS = 10_000;
const OK: Validation = Object.freeze({ ok: true });

export class Schema {
  readonly source: JsonSchema;
  readonly limits: Readonly<SchemaLimits>;
  readonly #workers: PatternWorkers | undefined;
  #compiled: Compiled | undefined;

  /** Throws a `SchemaError` when the schema cannot be used. */
  constructor(source: JsonSchema, { limits, workers }: SchemaOptions = {}) {
    this.limits = { ...DEFAULT_SCHEMA_LIMITS, ...limits };
    this.#workers = workers;
    // Compiled here only to find mistakes. Of thousands of tools that are listed few are ever called, so the closures
    // are made again, from a frozen copy, and kept, when the first value comes.
    compileSchema(source, this.limits);
    this.source = Object.isFrozen(source) ? source : frozenJson(source, "the schema");
  }

  get document(): SchemaDocument {
    return this.#use().document;
  }

  get dialect(): Dialect {
    return this.document.dialect;
  }

  validate(value: JsonValue): Validation | Promise<Validation> {
    const first = this.#judge(value, new Map());
    return "questions" in first ? this.#ask(value, first.questions) : first;
  }

  /** The answer without asking a worker; undefined when it would need one. */
  validateNow(value: JsonValue): Validation | undefined {
    const first = this.#judge(value, new Map());
    return "questions" in first ? undefined : first;
  }

  #use(): Compiled {
    this.#compiled ??= compileSchema(this.source, this.limits);
    return this.#compiled;
  }

  #judge(value: JsonValue, answers: PatternAnswers): Validation | { questions: ValidationRun["questions"] } {
    const { check } = this.#use();
    try {
      const run = new ValidationRun(this.limits, answers, false);
      const ok = check(value, undefined, run, undefined);
      if (run.questions.length > 0) return { questions: run.questions };
      return ok ? OK : failed(this.#explain(value, answers));
    } catch (error) {
      if (error instanceof Undecided) return failed([{ path: "", message: `could not be checked: ${error.message}` }]);
      // The stack ran out: the value or the schema is nested in a way no honest one is.
      if (error instanceof RangeError)
        return failed([{ path: "", message: "could not be checked: nested too deeply" }]);
      throw error;
    }
  }

  /** The decision has been made; whatever happens while looking for words cannot change it. */
  #explain(value: JsonValue, answers: PatternAnswers): Problem[] {
    const run = new ValidationRun(this.limits, answers, true);
    const found = run.problems ?? [];
    try {
      this.#use().check(value, undefined, run, undefined);
    } catch (error) {
      if (!(error instanceof Undecided) && !(error instanceof RangeError)) throw error;
    }
    return found.length > 0 ? plain(found) : [{ path: "", message: "does not fit the schema" }];
  }

  async #ask(value: JsonValue, questions: ValidationRun["questions"]): Promise<Validation> {
    const workers = this.#workers ?? patternWorkers();
    const answers = new Map<Matcher, Map<string, boolean>>();
    const deadline = performance.now() + this.limits.timeoutMs;
    for (let round = 0; round < MAX_ROUNDS && questions.length <= MAX_QUESTIONS; round++) {
      const plain = questions.map(({ matcher: { source, flags }, text }) => ({ source, flags, text }));
      try {
        const replies = await workers.ask(this, plain, Math.max(1, deadline - performance.now()));
        for (const [index, { matcher, text }] of questions.entries())
          note(answers, matcher, text, replies[index] === true);
      } catch {
        break;
      }
      const next = this.#judge(value, answers);
      if (!("questions" in next)) return next;
      questions = next.questions;
    }
    return failed([
      {
        path: "",
        message: `could not be checked within ${this.limits.timeoutMs} ms: a pattern in the schema takes too long on this text`,
        suggestion: "Send shorter text",
      },
    ]);
  }
}

function note(answers: Map<Matcher, Map<string, boolean>>, matcher: Matcher, text: string, reply: boolean): void {
  const known = answers.get(matcher);
  if (known === undefined) answers.set(matcher, new Map([[text, reply]]));
  else known.set(text, reply);
}

/** Without the weights, and each thing said once, however many branches of the schema say it. */
function plain(found: readonly FoundProblems[]): Problem[] {
  const unique = new Map<string, Problem>();
  for (const { at, message, expected, suggestion } of found) {
    const path = instancePathOf(at);
    const more = {
      ...(expected === undefined ? {} : { expected }),
      ...(suggestion === undefined ? {} : { suggestion }),
    };
    unique.set(`${path} ${message}`, { path, message, ...more });
  }
  return [...unique.values()];
}

function failed(problems: Problem[]): Validation {
  return { ok: false, problems };
}
