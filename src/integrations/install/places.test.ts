// Where things are put on each platform, and what is said where they are not ours to put: the platform's facts as input.

import { describe, expect, it } from "vitest";
import { checkUrl } from "./download.js";
import { defaultRoot } from "./home.js";
import { shimText } from "./operations.js";
import { checkReleaseOrigin, originOf } from "./request.js";

it("uses the directory for programs of each platform", () => {
  expect(defaultRoot("linux", {}, "/home/o")).toBe("/home/o/.local/share/portcullis");
  expect(defaultRoot("linux", { XDG_DATA_HOME: "/data" }, "/home/o")).toBe("/data/portcullis");
  expect(defaultRoot("linux", { XDG_DATA_HOME: "data" }, "/home/o")).toBe("/home/o/.local/share/portcullis");
  expect(defaultRoot("darwin", {}, "/Users/o")).toBe("/Users/o/Library/Application Support/portcullis");
  expect(defaultRoot("win32", { LOCALAPPDATA: "D:\\L" }, "C:\\Users\\o")).toBe("D:\\L\\portcullis");
  expect(defaultRoot("win32", {}, "C:\\Users\\o")).toBe("C:\\Users\\o\\AppData\\Local\\portcullis");
});

describe("how it was started decides what brings a newer version", () => {
  const origin = (packageRoot: string, present: string[] = [], env: NodeJS.ProcessEnv = {}) =>
    originOf({ packageRoot, env, exists: (path) => present.includes(path) });
  it.each([
    [
      "npx",
      origin("/home/o/.npm/_npx/1a2b/node_modules/portcullis", ["/home/o/.npm/_npx/1a2b/package.json"]),
      "npx portcullis@latest",
    ],
    ["npx on Windows", origin("C:\\Users\\o\\npm-cache\\_npx\\1a\\node_modules\\portcullis"), "npx portcullis@latest"],
    ["npm, globally", origin("/usr/lib/node_modules/portcullis"), "npm install --global portcullis@latest"],
    ["npm, in a project", origin("/p/node_modules/portcullis", ["/p/package.json"]), "npm install portcullis@latest"],
    ["docker", origin("/app", ["/.dockerenv"]), "docker pull"],
    ["podman", origin("/app", ["/run/.containerenv"]), "docker pull"],
    ["a pod", origin("/app", [], { KUBERNETES_SERVICE_HOST: "10.0.0.1" }), "docker pull"],
  ])("%s", (_, found, command) => {
    let help = "";
    try {
      checkReleaseOrigin("update", found);
    } catch (error) {
      help = (error as { help: string }).help;
    }
    expect(help).toContain(command);
  });

  it("updates its own directory and a checkout by itself", () => {
    expect(origin("/home/o/.local/share/portcullis/versions/1.0.0")).toBe("own");
    expect(() => checkReleaseOrigin("install", "own")).not.toThrow();
  });
});

it("starts the version of `current` by the shim of Windows, with the Node that installed it if it exists", () => {
  const text = shimText("win32", "C:\\x", "C:\\100% node\\node.exe");
  expect(text).toContain('set /p version=<"%~dp0..\\current"');
  expect(text).toContain('set "node=C:\\100%% node\\node.exe"');
  expect(text.endsWith("\r\n")).toBe(true);
});

it("fetches releases by https, or by http from this machine", () => {
  for (const url of ["https://example.com/r/", "http://127.0.0.1:8080/", "http://[::1]/", "http://localhost/"]) {
    expect(checkUrl(url).href).toBe(url);
  }
  for (const url of [
    "http://example.com/",
    "file:///etc/",
    "ftp://example.com/",
    "http://127.0.0.1.example.com/",
    "x",
  ]) {
    expect(() => checkUrl(url), url).toThrow();
  }
});
