import { describe, expect, it } from "vitest";
import {
  consistencyPath,
  consistent,
  edgeAt,
  HASH_BYTES,
  type HashSource,
  inclusionPath,
  leafHash,
  rootAt,
  rootFromInclusion,
  Tree,
} from "./tree.js";

// The reference leaves and roots that certificate transparency implementations share.
const LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
const ROOTS = [
  "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
  "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
  "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
  "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
  "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
  "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
  "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
  "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/** A tree that keeps its tile hashes in memory, as the tile files keep them on disk. */
function grow(leaves: readonly string[]): { tree: Tree; source: HashSource } {
  const levels: Buffer[][] = [];
  const tree = new Tree((level, bytes, at) => {
    const hashes = (levels[level] ??= []);
    hashes.push(Buffer.from(bytes.subarray(at, at + HASH_BYTES)));
  });
  for (const leaf of leaves) tree.push(leaf);
  const source: HashSource = async (level, first, count) => {
    const hashes = levels[level]?.slice(first, first + count) ?? [];
    if (hashes.length !== count) throw new Error(`level ${level} has no hashes ${first}+${count}`);
    return Buffer.concat(hashes);
  };
  return { tree, source };
}

const leafOf = (i: number): string => leafHash(`leaf ${i}`);
const range = (n: number): string[] => Array.from({ length: n }, (_, i) => leafOf(i));

describe("the Merkle tree", () => {
  it("the Merkle tree has the reference roots of RFC 6962 for one to eight leaves", () => {
    const tree = new Tree();
    expect(Buffer.from(tree.root(), "base64").toString("hex")).toBe(
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    );
    for (const [i, leaf] of LEAVES.entries()) {
      tree.push(leafHash(Buffer.from(leaf, "hex")));
      expect(Buffer.from(tree.root(), "base64").toString("hex")).toBe(ROOTS[i]);
    }
  });

  it("the Merkle tree has the reference inclusion paths", async () => {
    const { source } = grow(LEAVES.map((leaf) => leafHash(Buffer.from(leaf, "hex"))));
    const path = async (index: number, size: number) =>
      (await inclusionPath(source, index, size)).map((hash) => hash.toString("hex"));
    expect(await path(0, 8)).toEqual([
      "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]);
    expect(await path(5, 8)).toEqual([
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
      "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
      "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]);
    expect(await path(1, 5)).toEqual([
      "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ]);
  });

  it("proves every leaf in every tree of up to 40 leaves, and no leaf in another's place", async () => {
    const { source } = grow(range(40));
    for (let size = 1; size <= 40; size++) {
      const root = await rootAt(source, size);
      for (let index = 0; index < size; index++) {
        const path = await inclusionPath(source, index, size);
        const leaf = Buffer.from(leafOf(index), "base64");
        expect(rootFromInclusion(leaf, index, size, path)?.toString("base64")).toBe(root);
        const other = (index + 1) % size;
        if (other !== index) expect(rootFromInclusion(leaf, other, size, path)?.toString("base64")).not.toBe(root);
        expect(rootFromInclusion(leaf, index, size, [...path, leaf])).toBeUndefined();
        if (path.length > 0) expect(rootFromInclusion(leaf, index, size, path.slice(0, -1))).toBeUndefined();
      }
    }
  });

  it("proves that every older tree of up to 40 leaves is a prefix, and rejects another older root", async () => {
    const { source } = grow(range(40));
    for (let newer = 1; newer <= 40; newer++) {
      const newerRoot = await rootAt(source, newer);
      for (let older = 0; older <= newer; older++) {
        const path = await consistencyPath(source, older, newer);
        expect(consistent(older, await rootAt(source, older), newer, newerRoot, path)).toBe(true);
        const wrong = leafOf(older + 1000);
        expect(consistent(older, wrong, newer, newerRoot, path)).toBe(false);
        if (older > 0 && older < newer) {
          expect(consistent(older, await rootAt(source, older), newer, wrong, path)).toBe(false);
          expect(consistent(older, await rootAt(source, older), newer, newerRoot, path.slice(1))).toBe(false);
        }
      }
    }
  });

  it("keeps tiles that give the same roots, edges and proofs across three levels", async () => {
    const size = 256 * 256 + 300;
    const { tree, source } = grow(range(size));
    expect(await rootAt(source, size)).toBe(tree.root());
    expect((await edgeAt(source, size)).map(String)).toEqual(tree.edge().map(String));
    for (const index of [0, 255, 256, 65_535, 65_536, size - 1]) {
      const path = await inclusionPath(source, index, size);
      const root = rootFromInclusion(Buffer.from(leafOf(index), "base64"), index, size, path);
      expect(root?.toString("base64")).toBe(tree.root());
    }
    for (const older of [1, 255, 256, 257, 65_536, 65_537]) {
      const path = await consistencyPath(source, older, size);
      expect(consistent(older, await rootAt(source, older), size, tree.root(), path)).toBe(true);
    }
  });

  it("continues from a right edge as if it had never stopped", () => {
    for (const cut of [0, 1, 2, 3, 7, 8, 255, 256, 300]) {
      const { tree } = grow(range(cut));
      const resumed = new Tree();
      resumed.resume(cut, tree.edge());
      for (let i = cut; i < 310; i++) {
        tree.push(leafOf(i));
        resumed.push(leafOf(i));
      }
      expect(resumed.root()).toBe(tree.root());
    }
    expect(() => new Tree().resume(3, [Buffer.alloc(32)])).toThrow(/right edge/);
    expect(() => new Tree().resume(2, [Buffer.alloc(32), Buffer.alloc(32)])).toThrow(/edge hashes/);
  });
});
