import { describe, expect, test } from "vitest";
import { closedMounts, isNetworkType, isWithin, type Mount, mountOf, mountsBetween, parseMountInfo } from "./mounts.js";

const INFO = [
  "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
  "23 22 0:21 / /proc rw - proc proc rw",
  "30 22 0:40 / /srv/share rw shared:5 - nfs4 server:/x rw",
  "31 22 0:41 / /home/a\\040b/m rw - fuse.sshfs u@h:/ rw",
  "32 22 0:42 / /mnt/x rw - fuse /src rw",
  "33 22 254:0 /data /mnt/x rw - ext4 /dev/vda rw",
  "",
].join("\n");

test("mount information gives the mount point and the type, with escaped characters restored", () => {
  expect(parseMountInfo(INFO)).toMatchObject([
    { path: "/", type: "ext4" },
    { path: "/proc", type: "proc" },
    { path: "/srv/share", type: "nfs4" },
    { path: "/home/a b/m", type: "fuse.sshfs" },
    { path: "/mnt/x", type: "fuse" },
    { path: "/mnt/x", type: "ext4" },
  ]);
});

describe("network file systems", () => {
  test.each([
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "sshfs",
    "afpfs",
    "fuse",
    "fuse.sshfs",
    "fuse.bindfs",
    "fuseblk",
    "9p",
    "ceph",
    "davfs",
    "autofs",
  ])("%s counts as one", (type) => expect(isNetworkType(type)).toBe(true));
  test.each(["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "ntfs3", "fusectl", "nfsd"])(
    "%s does not",
    (type) => expect(isNetworkType(type)).toBe(false),
  );
});

test("the mount of a path is the longest mount point above it, the latest among equals", () => {
  const mounts = parseMountInfo(INFO);
  expect(mountOf("/srv/share/a", mounts)?.type).toBe("nfs4");
  expect(mountOf("/srv/shared/a", mounts)?.type).toBe("ext4");
  expect(mountOf("/mnt/x/a", mounts)?.type).toBe("ext4");
});

test("mounts between a directory and a path are those below the directory and above the path", () => {
  const mounts: Mount[] = [
    { path: "/r", type: "ext4" },
    { path: "/r/a", type: "fuse" },
    { path: "/r/b", type: "ext4" },
  ];
  expect(mountsBetween("/r", "/r/a/f", mounts)).toEqual([{ path: "/r/a", type: "fuse" }]);
  expect(mountsBetween("/r", "/r/ab", mounts)).toEqual([]);
});

test("a walk keeps off network and kernel mounts, but not off those the operator opened", () => {
  const mounts = parseMountInfo(INFO);
  expect([...closedMounts(mounts, new Set())].sort()).toEqual(["/home/a b/m", "/mnt/x", "/proc", "/srv/share"]);
  const nfs = mounts.filter((m) => m.type === "nfs4");
  expect(closedMounts(mounts, new Set(nfs)).has("/srv/share")).toBe(false);
});

test("a sibling whose name merely begins alike is not within", () => {
  expect(isWithin("/a/b", "/a")).toBe(true);
  expect(isWithin("/a", "/a")).toBe(true);
  expect(isWithin("/a-evil/b", "/a")).toBe(false);
  expect(isWithin("/a ", "/a")).toBe(false);
  expect(isWithin("/anything", "/")).toBe(true);
});
