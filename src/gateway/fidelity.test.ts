// Every feature of the reference server that has them all, directly and through the gateway, with the official clients.

import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { afterEach, expect, it } from "vitest";
import type { ServerEntry } from "../storage/index.js";
import { official, openWorld } from "./fixtures/world.js";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const POLICY = `permit (principal, action, resource);
  permit (principal == Server::"everything", action == Action::"elicitation/create", resource in App::"app");
  permit (principal == Server::"everything", action == Action::"sampling/createMessage", resource in App::"app");
  permit (principal == Server::"everything", action == Action::"roots/list", resource in App::"app");`;

const INFO = { name: "test", version: "1" };
const CAPABILITIES = { capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } };
const MESSAGE = { role: "assistant", model: "m", content: { type: "text", text: "written" } } as const;
const FORM = { action: "accept", content: { name: "Ada", check: true } } as const;
const ROOTS = { roots: [{ uri: "file:///work", name: "work" }] };

function v1(): ClientV1 {
  const client = new ClientV1(INFO, CAPABILITIES);
  client.setRequestHandler(ElicitRequestSchema, async () => FORM);
  client.setRequestHandler(CreateMessageRequestSchema, async () => MESSAGE);
  client.setRequestHandler(ListRootsRequestSchema, async () => ROOTS);
  client.setNotificationHandler(LoggingMessageNotificationSchema, () => {});
  return client;
}

function v2(): ClientV2 {
  const client = new ClientV2(INFO, CAPABILITIES);
  client.setRequestHandler("elicitation/create", async () => FORM as never);
  client.setRequestHandler("sampling/createMessage", async () => MESSAGE as never);
  client.setRequestHandler("roots/list", async () => ROOTS);
  return client;
}

/** What both clients have. */
type Client = Pick<
  ClientV1,
  "listTools" | "listPrompts" | "listResources" | "listResourceTemplates" | "close" | "getServerCapabilities"
> & {
  callTool(call: { name: string; arguments: Record<string, unknown> }, ...rest: never[]): Promise<unknown>;
  getPrompt(call: { name: string; arguments: Record<string, string> }): Promise<unknown>;
  readResource(call: { uri: string }): Promise<unknown>;
  complete(call: {
    ref: { type: "ref/prompt"; name: string };
    argument: { name: string; value: string };
  }): Promise<unknown>;
};

const CALLS: readonly [string, Record<string, unknown>][] = [
  ["echo", { message: "hello" }],
  ["get-annotated-message", { messageType: "error", includeImage: true }],
  ["get-resource-links", { count: 3 }],
  ["get-resource-reference", { resourceType: "Text", resourceId: 1 }],
  ["get-structured-content", { location: "Chicago" }],
  ["get-sum", { a: 1, b: 2 }],
  ["get-tiny-image", {}],
  ["get-roots-list", {}],
  ["trigger-long-running-operation", { duration: 0.2, steps: 2 }],
  ["trigger-elicitation-request", {}],
  ["trigger-sampling-request", { prompt: "write", maxTokens: 5 }],
];

const AUTHORIZED = { requestInit: { headers: { authorization: "Bearer app/alice" } } };

/** A client at the server itself, and one at the gateway. */
async function one({ command, args }: ServerEntry, url: URL): Promise<[Client, Client]> {
  const [direct, through] = [v1(), v1()];
  await direct.connect(new StdioV1({ command: command as string, args: [...(args ?? [])], stderr: "ignore" }));
  await through.connect(new HttpV1(url, AUTHORIZED));
  return [direct, through] as unknown as [Client, Client];
}

async function two({ command, args }: ServerEntry, url: URL): Promise<[Client, Client]> {
  const [direct, through] = [v2(), v2()];
  await direct.connect(new StdioV2({ command: command as string, args: [...(args ?? [])], stderr: "ignore" }));
  await through.connect(new HttpV2(url, AUTHORIZED));
  return [direct, through] as unknown as [Client, Client];
}

/** Arguments that the tool's schema permits: others, and unknown tools, are answered by the gateway itself. */
async function features(client: Client): Promise<Record<string, unknown>> {
  const tried = (work: Promise<unknown>): Promise<unknown> =>
    work.catch((error: { code?: number }) => ({ error: error.code ?? String(error) }));
  const found: Record<string, unknown> = {
    tools: await tried(client.listTools()),
    prompts: await tried(client.listPrompts()),
    resources: await tried(client.listResources()),
    templates: await tried(client.listResourceTemplates()),
    prompt: await tried(client.getPrompt({ name: "args-prompt", arguments: { city: "Oslo" } })),
    missingArgument: await tried(client.getPrompt({ name: "args-prompt", arguments: {} })),
    text: await tried(client.readResource({ uri: "demo://resource/static/document/features.md" })),
    missing: await tried(client.readResource({ uri: "demo://no/such" })),
    completion: await tried(
      client.complete({
        ref: { type: "ref/prompt", name: "completable-prompt" },
        argument: { name: "department", value: "E" },
      }),
    ),
  };
  for (const [i, [name, args]] of CALLS.entries()) {
    found[`${i} ${name}`] = await tried(client.callTool({ name, arguments: args }));
  }
  const eight = Array.from({ length: 8 }, () =>
    client.callTool({ name: "trigger-elicitation-request", arguments: {} }),
  );
  found.eight = await tried(Promise.all(eight));
  return JSON.parse(JSON.stringify(found).replaceAll(/\d{1,2}:\d\d:\d\d [AP]M/g, "TIME"));
}

it.each([
  ["v1", one],
  ["v2", two],
] as const)(
  "every feature of the reference server gives an equal result directly and through the gateway, with SDK %s [G8]",
  {
    timeout: 120_000,
  },
  async (_, pair) => {
    const entry = official("server-everything");
    const world = await openWorld({ policy: POLICY });
    closing.push(() => world.close());
    await world.put("app", { servers: { everything: { ...entry, instances: "per-session" } } });
    const [direct, through] = await pair(entry, new URL(world.url));
    closing.push(
      () => direct.close(),
      () => through.close(),
    );
    const [expected, got] = await Promise.all([features(direct), features(through)]);
    expect(got).toEqual(expected);
    expect(got.eight).toHaveLength(8);
  },
);
