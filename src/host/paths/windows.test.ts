import { describe, expect, test } from "vitest";
import { checkWindowsPath, isWithinWindows, type WindowsFacts, windowsFileSystem } from "./other-platforms.js";

describe("Windows paths", () => {
  test.each([["C:\\Users\\me\\a.txt"], ["C:/Users/me/a.txt"], ["C:\\a\\..\\b"], ["D:\\notes v1.2.txt"], ["src\\a.ts"]])(
    "%s is fine",
    (path) => expect(checkWindowsPath(path)).toBeUndefined(),
  );
  test.each([
    ["\\\\server\\share\\x", "denyNetworkFS"],
    ["//server/share/x", "denyNetworkFS"],
    ["\\\\?\\C:\\x", "deviceNamespace"],
    ["\\\\.\\PhysicalDrive0", "deviceNamespace"],
    ["//?/C:/x", "deviceNamespace"],
    ["\\??\\C:\\x", "deviceNamespace"],
    ["C:secret.txt", "driveRelative"],
    ["\\Windows\\x", "driveRelative"],
    ["C:\\a\\readme.md::$DATA", "alternateStream"],
    ["C:\\a\\b:stream", "alternateStream"],
    ["C:\\a\\NUL", "deviceName"],
    ["C:\\a\\con.txt", "deviceName"],
    ["C:\\a\\COM1", "deviceName"],
    ["C:\\a\\lpt¹.log", "deviceName"],
    ["C:\\PROGRA~1\\x", "shortName"],
    ["C:\\a\\FILE~2.TXT", "shortName"],
    ["C:\\a\\x.", "trailingDotOrSpace"],
    ["C:\\a \\x", "trailingDotOrSpace"],
    ["C:\\a\\*.txt", "badName"],
  ])("%s is refused by %s", (path, rule) => expect(checkWindowsPath(path)?.rule).toBe(rule));
});

describe("judging an opened file by what Windows says of it", () => {
  const facts: WindowsFacts = {
    finalPath: "\\\\?\\C:\\Work\\a.txt",
    driveType: "fixed",
    isReparsePoint: false,
    isFile: true,
  };
  const roots = ["c:\\work"];

  test("case does not matter, a sibling that begins alike does", () => {
    expect(windowsFileSystem(facts, roots, true)).toBeUndefined();
    expect(windowsFileSystem({ ...facts, finalPath: "C:\\Work-evil\\a.txt" }, roots, true)?.rule).toBe(
      "outsideAllowedRoots",
    );
    expect(isWithinWindows("C:\\WORK\\ß", "c:\\work")).toBe(true);
    expect(isWithinWindows("C:\\work\u017f\\x", "c:\\works")).toBe(false);
  });

  test("network volumes, by drive type or by final path [M10]", () => {
    expect(windowsFileSystem({ ...facts, driveType: "remote" }, roots, true)?.rule).toBe("denyNetworkFS");
    expect(windowsFileSystem({ ...facts, finalPath: "\\\\?\\UNC\\server\\share\\a" }, roots, true)?.rule).toBe(
      "denyNetworkFS",
    );
    expect(windowsFileSystem({ ...facts, driveType: "remote" }, roots, false)).toBeUndefined();
  });

  test("an unresolved reparse point and a device are refused [M10]", () => {
    expect(windowsFileSystem({ ...facts, isReparsePoint: true }, roots, true)?.rule).toBe("reparsePoint");
    expect(windowsFileSystem({ ...facts, isFile: false }, roots, true)?.rule).toBe("specialFile");
  });
});
