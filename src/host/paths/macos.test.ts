import { describe, expect, test } from "vitest";
import { checkMacPath, isWithinMac, type MacFacts, macFileSystem } from "./other-platforms.js";

describe("macOS paths", () => {
  test.each([["/Users/me/a.txt"], ["/private/tmp/x"], ["/Users/me/rsrc.txt"]])("%s is fine", (path) =>
    expect(checkMacPath(path)).toBeUndefined(),
  );
  test.each([
    ["/Users/me/a/..namedfork/rsrc", "namedFork"],
    ["/Users/me/a/rsrc", "namedFork"],
    ["/.vol/16777220/2", "volumePath"],
    ["/.nofollow/etc/passwd", "volumePath"],
    ["/dev/fd/0", "specialFile"],
  ])("%s is refused by %s", (path, rule) => expect(checkMacPath(path)?.rule).toBe(rule));
});

describe("judging an opened file by what macOS says of it", () => {
  const facts: MacFacts = {
    realPath: "/Users/me/code/a",
    typeName: "apfs",
    isLocal: true,
    caseSensitive: false,
    isFile: true,
  };
  const roots = ["/Users/me/Code"];

  test("case and normal form count only where the volume says so [M10]", () => {
    expect(macFileSystem(facts, roots, true)).toBeUndefined();
    expect(macFileSystem({ ...facts, caseSensitive: true }, roots, true)?.rule).toBe("outsideAllowedRoots");
    expect(isWithinMac("/Users/caf\u00e9/x", "/Users/cafe\u0301", true)).toBe(true);
    expect(isWithinMac("/Users/me/co\u017f/x", "/Users/me/cos", false)).toBe(false);
    expect(isWithinMac("/Users/me/Code-evil/x", "/Users/me/Code", false)).toBe(false);
  });

  test("the data volume's second path is the first one", () => {
    expect(macFileSystem({ ...facts, realPath: "/System/Volumes/Data/Users/me/Code/a" }, roots, true)).toBeUndefined();
  });

  test.each([["smbfs"], ["nfs"], ["afpfs"], ["webdav"], ["macfuse"]])("%s is a network file system", (typeName) =>
    expect(macFileSystem({ ...facts, typeName }, roots, true)?.rule).toBe("denyNetworkFS"),
  );

  test("whatever is not local is refused, whatever its name [M10]", () => {
    expect(macFileSystem({ ...facts, typeName: "newfs", isLocal: false }, roots, true)?.rule).toBe("denyNetworkFS");
    expect(macFileSystem({ ...facts, isLocal: false }, roots, false)).toBeUndefined();
    expect(macFileSystem({ ...facts, isFile: false }, roots, true)?.rule).toBe("specialFile");
  });
});
