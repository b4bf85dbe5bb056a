import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { checkSignatures, type SignatureCheck } from "./fixtures/signature-check.js";
import { createS3Client, type S3Client, signedHeaders } from "./s3.js";

const S3rver = createRequire(import.meta.url)("s3rver");
const directory = mkdtempSync(join(tmpdir(), "portcullis-s3-client-"));
const credentials = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };
let store: { run(): Promise<{ port: number }>; close(): Promise<void> };
let check: SignatureCheck;
let endpoint: string;
const clients: S3Client[] = [];

beforeAll(async () => {
  store = new S3rver({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: directory,
    configureBuckets: [{ name: "ledgers" }],
  });
  // The store does not check signatures of version 4: every request passes a server that does.
  check = await checkSignatures(`http://127.0.0.1:${(await store.run()).port}`, {
    ...credentials,
    region: "us-east-1",
  });
  endpoint = check.url;
});
afterAll(async () => {
  for (const client of clients) await client.close();
  await check.close();
  await store.close();
  rmSync(directory, { recursive: true, force: true });
});

function client(more: object = {}): S3Client {
  const made = createS3Client({ endpoint, region: "us-east-1", bucket: "ledgers", ...credentials, ...more });
  clients.push(made);
  return made;
}

describe("the S3 client", () => {
  it("puts, gets, measures and lists objects, and tells a missing one from an empty one", async () => {
    const s3 = client();
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
    await s3.put("a/b/one.gz", bytes);
    await s3.put("a/b/empty", Buffer.alloc(0));
    await s3.put("a/c/two", Buffer.from("2"));
    expect(await s3.get("a/b/one.gz", 1 << 20)).toEqual(bytes);
    expect(await s3.get("a/b/empty", 1 << 20)).toEqual(Buffer.alloc(0));
    expect(await s3.get("a/b/none", 1 << 20)).toBeUndefined();
    expect(await s3.head("a/b/one.gz")).toBe(300_000);
    expect(await s3.head("a/b/none")).toBeUndefined();
    expect((await s3.list("a/b/")).sort()).toEqual(["a/b/empty", "a/b/one.gz"]);
    expect(await s3.list("nothing/")).toEqual([]);
    expect(check.refused).toEqual([]);
    expect(check.passed).toBeGreaterThan(9);
  });

  it("the S3 client lists more objects than one page holds", async () => {
    const s3 = client({ pageSize: 3 });
    const keys = Array.from({ length: 10 }, (_, i) => `many/${i}`);
    for (const key of keys) await s3.put(key, Buffer.from("x"));
    expect(await s3.list("many/")).toEqual(keys);
  });

  it("refuses an object that is larger than expected", async () => {
    const s3 = client();
    await s3.put("large", Buffer.alloc(10_000));
    await expect(s3.get("large", 9_999)).rejects.toThrow("over 9999 bytes");
  });

  it("the S3 client says what the store answered, and never the secret, when the credentials or the bucket are wrong", async () => {
    const wrong = client({ accessKeyId: "not-known", secretAccessKey: "not-the-secret" });
    const error = await wrong.put("x", Buffer.from("y")).catch((caught: Error) => caught);
    expect(String(error)).toContain("403 InvalidAccessKeyId to PUT ledgers/x");
    expect(JSON.stringify(error) + String(error)).not.toContain("not-the-secret");
    await expect(client({ bucket: "nowhere" }).put("x", Buffer.from("y"))).rejects.toThrow("404 NoSuchBucket");
    await expect(client().put("a b", Buffer.from("y"))).rejects.toThrow("is not an object name");
  });

  it("the S3 client is refused by a store that checks signatures when secret, region or session token differ", async () => {
    await expect(client({ secretAccessKey: "S3RVEX" }).put("x", Buffer.from("y"))).rejects.toThrow(
      "403 SignatureDoesNotMatch",
    );
    await expect(client({ region: "eu-central-1" }).get("x", 1_000)).rejects.toThrow(
      "403 AuthorizationHeaderMalformed",
    );
    expect(await client({ sessionToken: "part of what is signed" }).get("a/b/empty", 10)).toEqual(Buffer.alloc(0));
    expect(await client().head("x")).toBeUndefined();
  });

  it("signs queries whose values have to be encoded", async () => {
    const s3 = client();
    await s3.put("enc/one", Buffer.from("1"));
    expect(await s3.list("enc/")).toEqual(["enc/one"]);
    expect(await s3.list("enc/ +&=%*~'()é")).toEqual([]);
  });

  it("the S3 client is refused when the body or the time of a signed request was changed on the way", async () => {
    const body = Buffer.from("signed");
    const url = new URL(`${endpoint}/ledgers/changed`);
    const signing = { ...credentials, region: "us-east-1" };
    const put = async (at: Date, sent: string, more: Record<string, string> = {}): Promise<string> => {
      const toSign = { method: "PUT", host: url.host, path: url.pathname, search: "", body, at };
      const headers = { ...signedHeaders(signing, toSign), ...more };
      const answer = await fetch(url, { method: "PUT", headers, body: sent });
      return `${answer.status} ${/<Code>(.*)<\/Code>/.exec(await answer.text())?.[1] ?? ""}`.trim();
    };
    expect(await put(new Date(), "changed")).toBe("403 XAmzContentSHA256Mismatch");
    expect(await put(new Date(Date.now() - 3_600_000), "signed")).toBe("403 RequestTimeTooSkewed");
    expect(await put(new Date(), "signed", { "x-amz-acl": "public-read" })).toBe("403 AccessDenied");
    expect(await put(new Date(), "signed")).toBe("200");
  });

  it.each([
    ["max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"],
    ["lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"],
  ])("signs the request ?%s as the example in the documentation of S3 does", (search, signature) => {
    const example = {
      region: "us-east-1",
      accessKeyId: "AKIAIOSFODNN7EXAMPLE",
      secretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    };
    const host = "examplebucket.s3.amazonaws.com";
    const at = new Date("2013-05-24T00:00:00Z");
    const headers = signedHeaders(example, { method: "GET", host, path: "/", search, body: Buffer.alloc(0), at });
    expect(headers.authorization).toBe(
      `AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=${signature}`,
    );
  });

  it("the S3 client says that the store cannot be reached", async () => {
    const port = await new Promise<number>((resolve) => {
      const server = createServer().listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo;
        server.close(() => resolve(port));
      });
    });
    const away = client({ endpoint: `http://127.0.0.1:${port}` });
    await expect(away.get("x", 10)).rejects.toThrow("cannot be reached");
  });
});
