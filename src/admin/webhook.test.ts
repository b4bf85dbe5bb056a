import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import type { Challenge } from "../policy/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { startWebhook } from "./webhook.js";

const ended: (() => void)[] = [];
afterEach(() => {
  for (const end of ended.splice(0)) end();
});

const challenge = {
  id: "ch_1",
  app: "blog",
  agent: "writer",
  tool: "mail.send",
  reason: "mail goes out",
  approvers: ["ops"],
  argumentsId: "bafy",
  argumentsText: '{"to":"secret@example.org"}',
  expiresAt: 1_700_000_000_000,
} as unknown as Challenge;

/** A receiver that answers with these statuses, one after the other. */
async function receiver(...statuses: number[]): Promise<{ url: string; got: { body: string; signature: string }[] }> {
  const got: { body: string; signature: string }[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    got.push({ body, signature: String(request.headers["portcullis-signature"]) });
    response.writeHead(statuses[got.length - 1] ?? 204).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  ended.push(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, got };
}

function start(url: string): (challenge: Challenge) => void {
  let open: (challenge: Challenge) => void = () => {};
  const webhook = startWebhook({
    url,
    secret: "shared",
    telemetry: createTelemetry({ log: { level: "critical" } }),
    approvals: {
      onOpen(listener) {
        open = listener;
        return () => {};
      },
    },
    approvalUrl: (id) => `http://admin.example/approve/${id}`,
    fetch: globalThis.fetch,
    retryMs: [5, 5],
  });
  ended.push(() => webhook.close());
  return (opened) => open(opened);
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 200 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
}

describe("the webhook", () => {
  it("says which call waits and where to answer it, signed, and nothing of its arguments", async () => {
    const { url, got } = await receiver();
    start(url)(challenge);
    await until(() => got.length === 1);
    const [{ body, signature }] = got as [{ body: string; signature: string }];
    expect(JSON.parse(body)).toMatchObject({ challenge: "ch_1", approval_url: "http://admin.example/approve/ch_1" });
    expect(body).not.toContain("secret@example.org");
    const [, seconds, mac] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(signature) as RegExpExecArray;
    expect(createHmac("sha256", "shared").update(`${seconds}.${body}`).digest("hex")).toBe(mac);
  });

  it("tries again, a few times", async () => {
    const { url, got } = await receiver(500, 503, 204);
    start(url)(challenge);
    await until(() => got.length === 3);
    expect(got).toHaveLength(3);
    const { url: never, got: refused } = await receiver(500, 500, 500, 500, 500);
    start(never)(challenge);
    await until(() => refused.length > 3);
    expect(refused).toHaveLength(3);
  });
});
