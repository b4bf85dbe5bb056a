#!/usr/bin/env node
// A community server: one tool, `putObject`, which writes to any store that speaks S3. Its credentials are its own; a
// gateway gives each application another instance with that application's. S3_BUCKETS, if set, names the only buckets it writes to.
//   S3_ENDPOINT=http://127.0.0.1:4568 AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… S3_BUCKETS=blog,images node examples/s3-server.mjs
import { createHash, createHmac } from "node:crypto";
import { createServer, permitAll, structured } from "portcullis/server";

const { S3_ENDPOINT, S3_BUCKETS, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, S3_REGION = "us-east-1" } = process.env;
for (const name of ["S3_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]) {
  if (!process.env[name]) {
    console.error(`set ${name}`);
    process.exit(64);
  }
}

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const hmac = (key, text) => createHmac("sha256", key).update(text).digest();

/** The headers of AWS Signature Version 4 for one PUT. */
function signed(url, body) {
  const date = new Date().toISOString().replace(/[-:]|\.\d+/g, "");
  const day = date.slice(0, 8);
  const headers = { host: url.host, "x-amz-content-sha256": sha256(body), "x-amz-date": date };
  const names = Object.keys(headers).join(";");
  const lines = Object.entries(headers).map(([name, value]) => `${name}:${value}\n`);
  const request = ["PUT", url.pathname, "", lines.join(""), names, headers["x-amz-content-sha256"]].join("\n");
  const scope = `${day}/${S3_REGION}/s3/aws4_request`;
  const key = [day, S3_REGION, "s3", "aws4_request"].reduce(hmac, `AWS4${AWS_SECRET_ACCESS_KEY}`);
  const signature = hmac(key, ["AWS4-HMAC-SHA256", date, scope, sha256(request)].join("\n")).toString("hex");
  const credential = `Credential=${AWS_ACCESS_KEY_ID}/${scope}`;
  return {
    ...headers,
    authorization: `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=${names}, Signature=${signature}`,
  };
}

const server = createServer({ name: "s3", version: "1.0.0" }, { policy: permitAll });
server.tool(
  "putObject",
  "Writes an object to a bucket.",
  {
    type: "object",
    properties: {
      bucket: S3_BUCKETS
        ? { enum: S3_BUCKETS.split(",") }
        : { type: "string", pattern: "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$" },
      key: { type: "string", pattern: "^[A-Za-z0-9._/-]{1,512}$" },
      data: { type: "string" },
    },
    required: ["bucket", "key", "data"],
    additionalProperties: false,
  },
  async ({ bucket, key, data }) => {
    const url = new URL(`/${bucket}/${key}`, S3_ENDPOINT);
    // A key with dots would be another path, and so another bucket.
    if (url.pathname !== `/${bucket}/${key}`) throw new Error("the key is not a plain path");
    const response = await fetch(url, { method: "PUT", headers: signed(url, data), body: data });
    if (!response.ok) throw new Error(`the store answered ${response.status}`);
    return structured({ bucket, key, bytes: Buffer.byteLength(data) });
  },
  { noGuardrailRequired: true },
);
await server.listen({ transport: "stdio" });
