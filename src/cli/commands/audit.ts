import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import {
  archiveSegments,
  exportRecords,
  followSeveral,
  keptFrom,
  type LedgerRecord,
  type NamedLedger,
  type RecordOfLedger,
  readLastOfSeveral,
  restoreSegments,
  verify,
} from "../../ledger/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { type Cell, effectWord, fitted, paint, shellWord } from "../../lib/print.js";
import { withProgress } from "../../lib/progress.js";
import { METHODS } from "../../policy/index.js";
import { parserOf } from "../../runtime/config.js";
import {
  proofsOf,
  registeredAt,
  registeredLedgers,
  rotateKeyOf,
  unlessLocked,
  type VerifyFlags,
  verified,
  withWriter,
  writeWhole,
} from "../../runtime/ledger-work.js";
import { explainCall, ledgersFor, oneLedger } from "../../runtime/ledgers.js";
import { outFor } from "../../runtime/options.js";
import { recorded } from "../../runtime/recorded-requests.js";
import { LOCATION_HELP, openArchive, type RetentionFlags, retentionOf } from "../../runtime/retention.js";
import { type ServedOptions, servedBy } from "../../runtime/served.js";
import { operator, type StoreOptions, withStore, withStoreOptions } from "../../runtime/store/open.js";
import type { RegisteredLedger } from "../../storage/index.js";
import { changeLine } from "./policy.js";

const DEFAULT_LINES = 20;
const VERIFY_PROOF = fileURLToPath(new URL("../../../examples/verify-proof.mjs", import.meta.url));

export function addAuditCommands(program: Command): void {
  const audit = program.command("audit").description("read, verify, prove, export, archive, prune and replay ledgers");

  audit
    .command("tail [ledger...]")
    .description("show the last records of all ledgers by time, or of the named ones; `audit prove` takes the numbers")
    .option("-n, --lines <number>", "number of records", Number, DEFAULT_LINES)
    .option("-f, --follow", "print new records as they are written")
    .option("--all", "include starts, keys and lists")
    .action(async (names: string[], options: { lines: number; follow?: boolean; all?: boolean }, command: Command) => {
      const out = outFor(command);
      const ledgers = ledgersFor(command, names);
      const filter = (record: LedgerRecord): boolean => options.all === true || isOfInterest(record);
      const show = ({ ledger, record }: RecordOfLedger): void => {
        const id = ledgers.length === 1 ? `${record.seq}` : `${ledger.name}#${record.seq}`;
        const explain = explainCommand(command, record);
        const facts = { ledger: ledger.name, ...record, ...(explain === undefined ? {} : { explain }) };
        out.line(facts, () => recordLines(id, record, explain));
      };
      const { records, next, complete } = await readLastOfSeveral(ledgers, wholeNumber("--lines", options.lines), {
        filter,
      });
      if (!complete) out.note("there may be older ones: `audit export` has them all");
      for (const each of records) show(each);
      if (!options.follow) return;
      const stop = new AbortController();
      process.once("SIGINT", () => stop.abort());
      for await (const each of followSeveral(next, { filter, signal: stop.signal })) show(each);
    });

  audit
    .command("verify [path...]")
    .description("verify every record of ledgers or exported files; exit 1 when one is damaged")
    .option("--checkpoint <file...>", "signed checkpoints kept outside the ledger")
    .option("--key <verifier...>", "trusted public keys of ledgers")
    .option("--archive <location>", `also verify pruned records in their archive: ${LOCATION_HELP}`)
    .option("--storage <address>", "store whose registry lists the ledgers, also PORTCULLIS_STORAGE")
    .action(async (paths: string[], options: VerifyFlags, command: Command) => {
      const out = outFor(command);
      const checkpoints = (options.checkpoint ?? []).map((file) => readFileSync(file, "utf8"));
      // Several replicas write one ledger each; together they are one account.
      const ledgers = verified(command, paths);
      // A caller who names paths asks for those; the registry is then read only on request.
      const isAll = paths.length === 0 || options.storage !== undefined;
      const registered = isAll ? await registeredLedgers(command, options) : [];
      const opened = options.archive === undefined ? undefined : await openArchive(options.archive);
      const results: (NamedLedger & Awaited<ReturnType<typeof verify>>)[] = [];
      const checked = new Set<RegisteredLedger>();
      for (const { name, path } of ledgers) {
        const found = registeredAt(registered, path);
        if (found) checked.add(found);
        const expected = found ? [found.note] : [];
        const check = () =>
          verify(path, {
            checkpoints: [...checkpoints, ...expected],
            publicKeys: options.key,
            archive: opened?.archive,
          });
        results.push({ name, path, ...(await withProgress(`verifying ${name}`, check)) });
      }
      await opened?.close();
      const missing = registered.filter((each) => !checked.has(each));
      const isGood = results.every((result) => result.ok) && missing.length === 0;
      const facts = missing.map(({ origin, place, size }) => ({ origin, place, size }));
      out.data(
        results.length === 1 && facts.length === 0 ? results[0] : { ok: isGood, ledgers: results, missing: facts },
        () =>
          [
            ...facts.map(({ origin, place, size }) =>
              paint.red(
                `✗ ledger ${origin} with ${size} records or more was not checked: it was written at ${place}. Name its directory, or give it up: portcullis audit forget ${origin}`,
              ),
            ),
            ...results.flatMap((result) => [
              result.path,
              ...result.problems.map((problem) => paint.red(`✗ ${problem.message}`)),
              ...result.notes.map((note) => `  ${note}`),
              result.ok
                ? `${paint.green("good")}: ${result.to - result.from} records, ${result.covered - result.from} under a signed checkpoint${result.pruned > 0 ? `, ${result.pruned} pruned before them` : ""}`
                : paint.red(result.problemCount === 1 ? "1 problem" : `${result.problemCount} problems`),
            ]),
          ].join("\n"),
      );
      if (!isGood) process.exitCode = EXIT.error;
    });

  withStoreOptions(
    audit
      .command("forget <origin>")
      .description("remove a lost ledger from the registry of the store; the next gateway records it"),
  ).action(async (origin: string, options: StoreOptions, command: Command) => {
    const isGone = await withStore(command, options, (storage) => storage.ledgers.remove(origin, operator()));
    if (!isGone)
      throw new CliError(`no ledger \`${origin}\` is registered`, undefined, "portcullis audit verify names them");
    outFor(command).note(`ledger ${origin} is not expected any more`);
  });

  withStoreOptions(audit.command("rotate-key [path...]"))
    .description("replace the signing key of ledgers; a running gateway replaces its own; the change is recorded")
    .action(async (paths: string[], options: StoreOptions, command: Command) => {
      const out = outFor(command);
      for (const { path } of ledgersFor(command, paths)) {
        const { old, new: fresh } = await rotateKeyOf(path, (origin) =>
          withStore(command, options, (storage) =>
            storage.feed.announce({ topic: "ledger", action: "rotate", name: origin, by: operator() }),
          ),
        );
        out.line({ path, old, new: fresh }, () => `${path}\n  old ${old}\n  new ${fresh}`);
      }
    });

  audit
    .command("prove <record>")
    .description("write an inclusion proof for a record (its number as `audit tail` shows it, or a call id)")
    .option("-o, --out <file>", "file to write (default: standard output)")
    .option("--archive <location>", `where pruned records are: ${LOCATION_HELP}`)
    .action(async (which: string, options: { out?: string; archive?: string }, command: Command) => {
      const opened = options.archive === undefined ? undefined : await openArchive(options.archive);
      const proofs = await proofsOf(command, which, opened?.archive).finally(() => opened?.close());
      const text = `${JSON.stringify(proofs.length === 1 ? proofs[0] : proofs, null, 2)}\n`;
      if (options.out === undefined) process.stdout.write(text);
      else {
        writeFileSync(options.out, text);
        const check = `portcullis audit verify-proof ${shellWord(options.out)}`;
        outFor(command).note(`wrote ${options.out}; check it with: ${check}`);
      }
    });

  audit
    .command("verify-proof <file>")
    .description("verify an inclusion proof (- for standard input); exit 1 when it is not valid")
    .option("--key <verifier>", "public key of the ledger, from another source than the proof")
    .action((file: string, options: { key?: string }) => {
      // The stand-alone script is what an auditor reads and runs without this package.
      const args = [VERIFY_PROOF, file, ...(options.key === undefined ? [] : [options.key])];
      const { status } = spawnSync(process.execPath, args, { stdio: "inherit" });
      if (status !== 0) process.exitCode = EXIT.error;
    });

  audit
    .command("archive [path...]")
    .description("copy closed files of ledgers to an archive and verify each copy; existing copies stay")
    .requiredOption("--to <location>", LOCATION_HELP)
    .action(async (paths: string[], options: { to: string }, command: Command) => {
      const out = outFor(command);
      const { archive, close } = await openArchive(options.to);
      for (const { path } of ledgersFor(command, paths)) {
        const result = await archiveSegments(path, archive);
        const { copied, present, bytes, to, directory } = result;
        out.line({ path, archive: archive.location, ...result }, () =>
          [
            `${path}: ${copied} files copied (${bytes} bytes), ${present} were there; records before ${to} are in`,
            `  ${archive.location}/${directory}`,
          ].join("\n"),
        );
      }
      await close();
    });

  audit
    .command("prune [path...]")
    .description("remove archived files of ledgers that no gateway is writing; a signed statement is recorded")
    .requiredOption("--archive <location>", `where the copies are: ${LOCATION_HELP}`)
    .option("--keep-days <days>", "keep files with a record that is younger than this", parserOf("keepDays"))
    .option("--keep-size <mib>", "keep the newest files up to this many MiB", parserOf("keepSize"))
    .option("--all", "remove every archived file; the last file always stays")
    .action(async (paths: string[], options: PruneFlags, command: Command) => {
      const out = outFor(command);
      if (options.all !== true && options.keepDays === undefined && options.keepSize === undefined) {
        throw new CliError("nothing says what to keep", EXIT.usage, "add --keep-days, --keep-size or --all");
      }
      const { archive, close } = await openArchive(options.archive);
      for (const { path } of ledgersFor(command, paths)) {
        const result = await withWriter(path, async (ledger) => {
          const before = options.all === true ? ledger.status().size : await keptFrom(path, retentionOf(options));
          return ledger.prune({ archive, before, by: operator() });
        });
        out.line({ path, archive: archive.location, ...result }, () =>
          [
            `${path}: ${result.segments} files removed; its first record is ${result.from}`,
            ...result.statements.map(
              ({ from, to, root }) => `  statement over records ${from} to ${to - 1}, root ${root}`,
            ),
          ].join("\n"),
        );
      }
      await close();
    });

  audit
    .command("restore [path...]")
    .description("restore pruned files from the archive to ledgers that no gateway is writing")
    .requiredOption("--archive <location>", `where the copies are: ${LOCATION_HELP}`)
    .action(async (paths: string[], options: { archive: string }, command: Command) => {
      const out = outFor(command);
      const { archive, close } = await openArchive(options.archive);
      for (const { path } of ledgersFor(command, paths)) {
        const restored = await restoreSegments(path, archive).catch(unlessLocked(path));
        out.line({ path, restored }, () => `${path}: ${restored} files restored`);
      }
      await close();
    });

  audit
    .command("export")
    .description("write one ledger as a file that `audit verify` and other programs can read")
    .option("--ledger <name>", "name of the ledger as `audit verify` prints it (default: the only one)")
    .option("-o, --out <file>", "file to write (default: standard output)")
    .option("--from <number>", "first record", Number)
    .option("--to <number>", "the record after the last", Number)
    .action(async (options: { ledger?: string; out?: string; from?: number; to?: number }, command: Command) => {
      const { path } = oneLedger(command, options.ledger);
      const lines = exportRecords(path, { from: options.from, to: options.to });
      if (options.out === undefined)
        await pipeline(Readable.from(lines), process.stdout, { end: false }).catch(unlessClosed);
      else await writeWhole(options.out, lines);
    });

  audit
    .command("replay <policy...>")
    .description("list recorded decisions that would change under this policy")
    .option("--app <name>", "application (default: the only one)")
    .option("--tools <file>", "file with a tools/list result (default: the tools that the application served last)")
    .option("--storage <address>", "sqlite:path or postgres://…, also PORTCULLIS_STORAGE")
    .action(async (paths: string[], options: Omit<ServedOptions, "policy">, command: Command) => {
      const out = outFor(command);
      const served = await servedBy(command, options);
      const candidate = await served.loadFiles(paths);
      let compared = 0;
      let skipped = 0;
      const changes: { ledger: string; seq: number; before: string; after: string; line: string }[] = [];
      for await (const { ledger, seq, request, effect, hasArguments } of recorded(served, candidate)) {
        if (!hasArguments) {
          skipped++;
          continue;
        }
        compared++;
        const after = candidate.decide(request).effect;
        if (after === effect) continue;
        changes.push({ ledger, seq, before: effect, after, line: changeLine(request, effect, after) });
      }
      out.data({ compared, skipped, changes }, () =>
        [
          ...changes.map(({ ledger, seq, line }) => `${served.ledgers.length === 1 ? "" : ledger}#${seq} ${line}`),
          `${changes.length} of ${compared} decisions would change`,
          ...(skipped > 0
            ? [`${skipped} were recorded without arguments and cannot be replayed (serve --keep-arguments)`]
            : []),
        ].join("\n"),
      );
    });
}

interface PruneFlags extends RetentionFlags {
  archive: string;
  all?: boolean;
}

/** A reader that needs no more, such as `head`, closes the pipe. */
function unlessClosed(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
}

function wholeNumber(option: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw new CliError(`${option}: give a whole number`, EXIT.usage);
  return value;
}

function isOfInterest(record: LedgerRecord): boolean {
  if (record.kind === "decision") return !record.rules.some((rule) => rule.startsWith("builtin."));
  if (record.kind === "outcome")
    return !Object.hasOwn(METHODS, record.tool) && !record.tool.endsWith("/list") && record.tool !== "tools/validate";
  return record.kind !== "start" && record.kind !== "key";
}

/** One line per record that fits the terminal; below a denial, the command that explains it. */
function recordLines(id: string, record: LedgerRecord, explain: string | undefined): string {
  const time = `${record.ts.slice(0, 10)} ${record.ts.slice(11, 23)}`;
  const call = "call" in record ? record.call : "-";
  const client = "actor" in record ? record.actor : "-";
  const line = fitted([
    { text: id },
    { text: time },
    { text: call },
    { text: client },
    ...("tool" in record ? [{ text: record.tool, paint: paint.bold }] : []),
    ...eventCells(record),
  ]);
  return explain === undefined ? line : `${line}\n    explain: ${explain}`;
}

function eventCells(record: LedgerRecord): Cell[] {
  switch (record.kind) {
    case "decision": {
      const why = record.rules.join(", ") || record.reason;
      const isObserved = record.mode === "observe";
      return [
        { text: record.effect, paint: effectWord, isKept: true },
        ...(isObserved ? [{ text: "(observed)" }] : []),
        { text: why },
      ];
    }
    case "outcome":
      return [{ text: record.outcome, isKept: true }, { text: `${record.latency_ms ?? "?"} ms` }];
    case "challenge":
      return [{ text: `challenge ${record.event} ${record.challenge}` }];
    case "approval":
      return [{ text: `${record.verdict} ${record.challenge} by ${record.approver} ${record.reason}` }];
    case "policy":
      return [{ text: `policy ${record.new.slice(0, 12)}` }];
    default:
      return [{ text: `${record.kind} ${JSON.stringify("detail" in record ? (record.detail ?? {}) : {})}` }];
  }
}

/** The command that explains a denied call of a tool; undefined for everything else. */
function explainCommand(command: Command, record: LedgerRecord): string | undefined {
  if (record.kind !== "decision" || record.effect !== "deny" || record.method !== "tools/call") return undefined;
  if (record.rules.includes("route") || record.rules.includes("halt")) return undefined;
  const { app, actor, tool, args } = record;
  return explainCall(command, { app, agent: actor, tool, ...(args === undefined ? {} : { arguments: args }) });
}
