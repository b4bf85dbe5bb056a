interface Component {
  type: string;
  "bom-ref": string;
  name: string;
  version: string;
  purl: string;
  scope: "required" | "optional";
  hashes?: { alg: string; content: string }[];
}

export interface Sbom {
  bomFormat: string;
  specVersion: string;
  version: number;
  metadata: { component: { "bom-ref": string; name: string; version: string; purl: string } };
  components: Component[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

export function sbomOf(
  manifest: { name: string; license?: string },
  version: string,
  lock: { packages: Record<string, object> },
  included: (path: string) => boolean,
): Sbom;
