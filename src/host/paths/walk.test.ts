import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { walkPath } from "./walk.js";

/** A file system of links; what is neither link nor listed does not exist. */
function links(tree: Record<string, string | null>) {
  return (path: string): string => {
    const target = tree[path];
    if (typeof target === "string") return target;
    throw Object.assign(new Error(path), { code: target === null ? "EINVAL" : "ENOENT" });
  };
}

const nothing = new Set<string>();

describe("walking a path by hand", () => {
  test("relative and absolute links are followed, and .. goes to the real parent", () => {
    const fs = links({ "/a": null, "/a/l": "../b", "/b": null, "/b/c": null, "/x": "/a" });
    expect(walkPath("/a/l/c", nothing, fs)).toEqual({ kind: "path", path: "/b/c", missing: false });
    expect(walkPath("/a/l/..", nothing, fs)).toEqual({ kind: "path", path: "/", missing: false });
    expect(walkPath("/x/l", nothing, fs)).toEqual({ kind: "path", path: "/b", missing: false });
  });

  test("what does not exist ends the walk, and .. after it does not lead up", () => {
    const fs = links({ "/a": null });
    expect(walkPath("/a/new/file", nothing, fs)).toEqual({ kind: "path", path: "/a/new/file", missing: true });
    expect(walkPath("/a/new/../b", nothing, fs)).toMatchObject({ kind: "refused", why: "missing" });
  });

  test("a closed mount is not stepped on, whichever way leads to it", () => {
    const touched: string[] = [];
    const fs = (path: string): string => {
      touched.push(path);
      return links({ "/a": null, "/a/l": "/net/share/f", "/net": null })(path);
    };
    expect(walkPath("/a/l", new Set(["/net/share"]), fs)).toMatchObject({
      kind: "refused",
      why: "mount",
      at: "/net/share",
    });
    expect(touched).not.toContain("/net/share");
  });

  test("a loop ends", () => {
    expect(walkPath("/a", nothing, links({ "/a": "b", "/b": "a" }))).toMatchObject({ kind: "refused", why: "loop" });
  });

  test("any tree of links ends, in a path without .. or a refusal", () => {
    const name = fc.constantFrom("a", "b", "c", "..", ".");
    const target = fc.array(name, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("/"));
    const tree = fc.dictionary(
      fc.constantFrom("/a", "/b", "/c", "/a/a", "/a/b", "/b/c"),
      fc.option(target.map((t) => (t.length % 2 ? t : `/${t}`))),
    );
    fc.assert(
      fc.property(tree, target, (fs, path) => {
        const walked = walkPath(`/${path}`, nothing, links(fs));
        if (walked.kind === "path") expect(walked.path.split("/")).not.toContain("..");
      }),
      { numRuns: 500 },
    );
  });
});
