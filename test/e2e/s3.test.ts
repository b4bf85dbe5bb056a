// The example of the document: application "blog" calls community.aws.s3.putObject, and its own S3 server, with its own
// credentials, receives putObject. The far end speaks S3 and checks signatures.

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createSealer, loadSealKeys } from "../../src/storage/index.js";
import { type Deployment, deploy } from "./gateway-world.js";

const S3rver = createRequire(import.meta.url)("s3rver");
const root = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "portcullis-s3-"));
let store: { run(): Promise<{ port: number }>; close(): Promise<void> };
let deployment: Deployment;
let endpoint: string;

beforeAll(async () => {
  // The only credentials it takes are its own; whoever comes with others is refused.
  store = new S3rver({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: folder,
    configureBuckets: [{ name: "blog-bucket" }, { name: "shop-bucket" }],
  });
  endpoint = `http://127.0.0.1:${(await store.run()).port}`;
  deployment = await deploy("permit (principal, action, resource);");
  const sealer = createSealer(loadSealKeys({ defaultFile: join(deployment.dir, "seal.key") }));
  for (const [app, secret] of [
    ["blog", "S3RVER"],
    ["shop", "NOBODY"],
  ] as const) {
    await deployment.put(app, {
      servers: {
        s3: {
          command: process.execPath,
          args: [join(root, "examples", "s3-server.mjs")],
          env: {
            S3_ENDPOINT: endpoint,
            S3_BUCKETS: `${app}-bucket`,
            AWS_ACCESS_KEY_ID: "${secret:S3_KEY}",
            AWS_SECRET_ACCESS_KEY: "S3RVER",
          },
          noGuardrail: ["*"],
        },
      },
      routes: { "community.aws.s3": { server: "s3" } },
    });
    const sealed = sealer.seal({ kind: "secret", app, name: "S3_KEY" }, secret);
    await deployment.runtime.storage.secrets.put(app, "S3_KEY", sealed, "test");
  }
});
afterAll(async () => {
  await deployment.close();
  await store.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("community.aws.s3.putObject", () => {
  it("community.aws.s3.putObject of the blog reaches the blog's own server as putObject, and the object is in the blog's bucket [H13]", async () => {
    const client = await deployment.client(await deployment.key("blog", "writer"));
    expect((await client.listTools()).map((tool) => tool.name)).toEqual(["community.aws.s3.putObject"]);
    const result = await client.callTool("community.aws.s3.putObject", {
      bucket: "blog-bucket",
      key: "posts/one.md",
      data: "# One",
    });
    expect(result.structuredContent).toEqual({ bucket: "blog-bucket", key: "posts/one.md", bytes: 5 });
    await client.close();
    expect(readdirSync(join(folder, "blog-bucket"), { recursive: true }).join()).toContain("one.md");
  });

  it("community.aws.s3.putObject of another application runs with that application's credentials, and theirs alone [H13]", async () => {
    const client = await deployment.client(await deployment.key("shop", "seller"));
    const refused = await client.callTool("community.aws.s3.putObject", {
      bucket: "shop-bucket",
      key: "x",
      data: "y",
    });
    expect(refused).toMatchObject({ isError: true, content: [{ text: "the store answered 403" }] });
    await client.close();
    expect(readdirSync(join(folder, "shop-bucket"), { recursive: true }).join()).not.toContain("x");
  });

  it.each([
    ["a bucket of another application", { bucket: "shop-bucket", key: "x", data: "y" }],
    ["a key that leads to another bucket", { bucket: "blog-bucket", key: "../shop-bucket/x", data: "y" }],
    ["the old parameters", { key: "x", body: "y" }],
  ])("community.aws.s3.putObject is refused with %s, and nothing is written [H13]", async (_what, args) => {
    const client = await deployment.client(await deployment.key("blog", `writer-${Object.values(args)[1]?.length}`));
    const refused = await client.callTool("community.aws.s3.putObject", args).catch((error: Error) => error.message);
    expect(JSON.stringify(refused)).toMatch(/bucket|plain path/);
    await client.close();
    expect(readdirSync(join(folder, "shop-bucket"), { recursive: true }).join()).not.toContain("x");
  });

  it("community.aws.s3.putObject does not exist under another name, nor for an application without the route [H13]", async () => {
    const client = await deployment.client(await deployment.key("blog", "guest"));
    for (const name of ["putObject", "s3.putObject", "community.aws.putObject", "community.aws.s3.getObject"]) {
      await expect(client.callTool(name, { bucket: "blog-bucket", key: "x", data: "y" })).rejects.toThrow(
        /there is no tool/,
      );
    }
    await client.close();
  });
});
