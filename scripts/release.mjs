// Makes a release that `portcullis install` and `update` take:
//
//   node scripts/release.mjs keys --secret-key release.pem            a new key; its public half beside it as .pub
//   node scripts/release.mjs --secret-key release.pem --out releases --url https://example.com/portcullis
//
// Into <out>/<version>/ go an archive for this machine (the package with its locked production dependencies, and
// sbom.cdx.json, a CycloneDX list of them), SHA256SUMS
// over all archives there, and its signature, whose comment carries version and channel; <out>/<channel>.json names the
// version. Archives made on other machines are put into the folder first and signed along. The public key and --url
// travel inside the archive: that is how an installation knows whom to trust for the next one (another --next-key
// changes it). A key with a passphrase takes it from PORTCULLIS_RELEASE_PASSPHRASE.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { parseArgs } from "node:util";
import { sbomOf } from "./release/sbom.mjs";
import { makeKey, parseSecret, publicKeyText, releaseComment, secretPem, signFile } from "./release/signing.mjs";
import { tarGz } from "./release/tar.mjs";
import { build, root, say } from "./steps.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "secret-key": { type: "string" },
    "next-key": { type: "string" },
    out: { type: "string", default: "releases" },
    channel: { type: "string", default: "stable" },
    version: { type: "string" },
    url: { type: "string" },
    package: { type: "string", default: root },
    "no-build": { type: "boolean", default: false },
  },
});
const passphrase = process.env.PORTCULLIS_RELEASE_PASSPHRASE;
const secretFile = values["secret-key"];
if (secretFile === undefined) fail("say which key signs: --secret-key FILE (`keys` makes one)");
if (positionals[0] === "keys") makeKeys(secretFile);
else release();

function fail(text) {
  say(text);
  process.exit(64);
}

function makeKeys(path) {
  const key = makeKey();
  writeFileSync(path, secretPem(key, passphrase), { mode: 0o600, flag: "wx" });
  writeFileSync(`${path}.pub`, publicKeyText(key), { flag: "wx" });
  say(`wrote ${path} (keep it secret${passphrase ? "" : "; it has no passphrase"}) and ${path}.pub`);
}

function release() {
  const folder = resolve(values.package);
  if (folder === root && !values["no-build"]) build();
  const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const version = values.version ?? manifest.version;
  const key = parseSecret(readFileSync(secretFile, "utf8"), passphrase);
  const trusted = values["next-key"] ? readFileSync(values["next-key"], "utf8") : publicKeyText(key);
  const source = { ...(values.url ? { url: values.url } : {}), key: trusted.trim().split("\n").at(-1) };
  const top = `portcullis-${version}`;
  const entries = [
    ...files(folder, manifest),
    { name: "package.json", bytes: json({ ...manifest, version, devDependencies: undefined, scripts: undefined }) },
    { name: "release-source.json", bytes: json(source) },
    ...sbom(folder, manifest, version),
  ]
    .map((entry) => ({ ...entry, name: `${top}/${entry.name}` }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const target = resolve(values.out, version);
  mkdirSync(target, { recursive: true });
  writeFileSync(join(target, `portcullis-${version}-${machine()}.tar.gz`), tarGz(entries));
  const sums = readdirSync(target)
    .filter((name) => name.startsWith(`portcullis-${version}-`) && name.endsWith(".tar.gz"))
    .sort()
    .map(
      (name) =>
        `${createHash("sha256")
          .update(readFileSync(join(target, name)))
          .digest("hex")}  ${name}\n`,
    )
    .join("");
  writeFileSync(join(target, "SHA256SUMS"), sums);
  const now = Number(process.env.SOURCE_DATE_EPOCH ?? Math.floor(Date.now() / 1000));
  const signature = signFile(Buffer.from(sums), key, releaseComment(version, values.channel, now));
  writeFileSync(join(target, "SHA256SUMS.minisig"), signature);
  writeFileSync(resolve(values.out, `${values.channel}.json`), `${JSON.stringify({ version })}\n`);
  say(`release ${version} (${values.channel}) is in ${target}: ${entries.length} files`);
}

function json(value) {
  return Buffer.from(`${JSON.stringify(value, null, 2)}\n`);
}

/** What the package publishes, and every production dependency at its locked version, as it lies on the disk. */
function files(folder, manifest) {
  const wanted = manifest.files ?? ["dist"];
  const left = new Set(wanted.filter((name) => name.startsWith("!")).map((name) => name.slice(1)));
  const own = wanted.filter((name) => !name.startsWith("!")).flatMap((name) => walk(folder, join(folder, name)));
  const skip = new Set(["package.json", "release-source.json", "sbom.cdx.json", ...left]);
  return [...own.filter((entry) => !skip.has(entry.name)), ...dependencies(folder)];
}

/** Of a package without a lock file nothing is known. */
function sbom(folder, manifest, version) {
  const lock = join(folder, "package-lock.json");
  if (!existsSync(lock)) return [];
  const parsed = JSON.parse(readFileSync(lock, "utf8"));
  const included = (path) => isShipped(path, parsed.packages[path]) && existsSync(join(folder, path));
  return [{ name: "sbom.cdx.json", bytes: json(sbomOf(manifest, version, parsed, included)) }];
}

function isShipped(path, facts) {
  return path.startsWith("node_modules/") && !facts.dev && !facts.link;
}

function dependencies(folder) {
  const lock = join(folder, "package-lock.json");
  if (!existsSync(lock)) return [];
  const { packages } = JSON.parse(readFileSync(lock, "utf8"));
  const entries = new Map();
  for (const [path, facts] of Object.entries(packages)) {
    if (!isShipped(path, facts)) continue;
    // Builds for other machines are not there, and not missed.
    if (!existsSync(join(folder, path))) {
      if (facts.optional || facts.devOptional || facts.peer) continue;
      fail(`${path} is not installed: run npm install first`);
    }
    for (const entry of walk(folder, join(folder, path), true)) entries.set(entry.name, entry);
  }
  return [...entries.values()];
}

/** Types, maps and readmes of dependencies are of no use to a program that runs; licences stay. */
function useless(name) {
  return /\.(map|[cm]?ts|md|markdown)$/i.test(name) && !/licen[cs]e|notice|copying/i.test(name);
}

/** Regular files only; a dependency's own dependencies are in the lock file under their own names. */
function walk(folder, path, isPackage = false) {
  if (!existsSync(path)) return [];
  const facts = statSync(path);
  if (facts.isFile()) {
    const name = relative(folder, path).split(sep).join("/");
    return [{ name, bytes: readFileSync(path), mode: facts.mode & 0o111 ? 0o755 : 0o644 }];
  }
  return readdirSync(path, { withFileTypes: true })
    .filter((entry) => !(isPackage && useless(entry.name)))
    .filter((entry) => entry.isFile() || (entry.isDirectory() && !(isPackage && entry.name === "node_modules")))
    .flatMap((entry) => walk(folder, join(path, entry.name), isPackage));
}

function machine() {
  const musl = process.platform === "linux" && process.report.getReport().header.glibcVersionRuntime === undefined;
  return `${process.platform}-${process.arch}${musl ? "-musl" : ""}`;
}
