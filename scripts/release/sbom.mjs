// Software bill of materials of an archive, as CycloneDX 1.5, from the lock file alone.

/** `included` tells which of the lock file's paths are in the archive. Workspaces are not packages of a registry. */
export function sbomOf(manifest, version, lock, included) {
  const own = purl(manifest.name, version);
  const packages = Object.entries(lock.packages).filter(
    ([path, { link }]) => path.startsWith("node_modules/") && !link && included(path),
  );
  const refs = new Map(packages.map(([path, facts]) => [path, purl(nameOf(path, facts), facts.version)]));
  const components = new Map(packages.map(([path, facts]) => [refs.get(path), componentOf(path, facts)]));
  const dependencies = new Map();
  for (const [path, facts] of [["", lock.packages[""]], ...packages]) {
    const ref = refs.get(path) ?? own;
    const names = Object.keys({ ...facts.dependencies, ...facts.optionalDependencies, ...facts.peerDependencies });
    const on = names.map((name) => refs.get(resolvePath(path, name, refs))).filter((found) => found !== undefined);
    // One version can be installed at two paths, whose dependencies resolve differently.
    const known = dependencies.get(ref)?.dependsOn ?? [];
    dependencies.set(ref, { ref, dependsOn: [...new Set([...known, ...on])].sort() });
  }
  const bySort = ([a], [b]) => (a < b ? -1 : 1);
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.5.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: {
      component: {
        type: "application",
        "bom-ref": own,
        name: manifest.name,
        version,
        purl: own,
        ...license(manifest.license),
      },
    },
    components: [...components].sort(bySort).map(([, component]) => component),
    dependencies: [...dependencies].sort(bySort).map(([, each]) => each),
  };
}

function componentOf(path, facts) {
  const name = nameOf(path, facts);
  const ref = purl(name, facts.version);
  const [, algorithm, digest] = /^(sha512|sha256)-(.+)$/.exec(facts.integrity ?? "") ?? [];
  return {
    type: "library",
    "bom-ref": ref,
    name,
    version: facts.version,
    purl: ref,
    scope: facts.optional || facts.devOptional ? "optional" : "required",
    ...(digest === undefined
      ? {}
      : {
          hashes: [{ alg: algorithm.replace("sha", "SHA-"), content: Buffer.from(digest, "base64").toString("hex") }],
        }),
    ...license(facts.license),
  };
}

function license(text) {
  if (typeof text !== "string") return {};
  return /[ ()]/.test(text) ? { licenses: [{ expression: text }] } : { licenses: [{ license: { id: text } }] };
}

/** An alias is installed under another name than its own. */
function nameOf(path, facts) {
  return facts.name ?? path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
}

function purl(name, version) {
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

/** Resolves like Node: beside the package, then further up. */
function resolvePath(from, name, known) {
  for (let at = from; at !== ""; at = at.slice(0, Math.max(0, at.lastIndexOf("/node_modules/")))) {
    const path = `${at}/node_modules/${name}`;
    if (known.has(path)) return path;
  }
  return `node_modules/${name}`;
}
