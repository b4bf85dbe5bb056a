// The tools, resources and prompts that the conformance suite asks a server for, built with `createServer`.

import { setTimeout as sleep } from "node:timers/promises";
import {
  audio,
  createServer,
  type InputRequest,
  image,
  permitAll,
  resource,
  type Server,
  text,
} from "../../src/server.js";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const NONE = { type: "object", properties: {} } as const;
const OPEN = { noGuardrailRequired: true } as const;
const NAME = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const OK = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };

const elicitation = (message: string, requestedSchema: object) =>
  ({ method: "elicitation/create", params: { message, requestedSchema } }) as const;
const sampling = (question: string, maxTokens: number) => ({
  messages: [{ role: "user", content: { type: "text", text: question } }],
  maxTokens,
});
const titled = (word: string) =>
  ["First", "Second", "Third"].map((nth, i) => ({ const: `value${i + 1}`, title: `${nth} ${word}` }));
const completed = (answer: { action?: unknown; content?: unknown }): string =>
  `Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content)}`;

export function fixtureServer(): Server {
  const server = createServer({ name: "conformance-fixture", version: "1.0.0" }, { policy: permitAll });
  contents(server);
  conversations(server);
  rounds(server);
  resourcesAndPrompts(server);
  return server;
}

function contents(server: Server): void {
  server
    .tool("test_simple_text", "text", NONE, () => "This is a simple text response for testing.", OPEN)
    .tool("test_image_content", "image", NONE, () => image(PNG, "image/png"), OPEN)
    .tool("test_audio_content", "audio", NONE, () => audio(WAV, "audio/wav"), OPEN)
    .tool(
      "test_embedded_resource",
      "resource",
      NONE,
      () => embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."),
      OPEN,
    )
    .tool(
      "test_multiple_content_types",
      "several",
      NONE,
      () => [
        text("Multiple content types test:"),
        image(PNG, "image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
      ],
      OPEN,
    )
    .tool(
      "test_error_handling",
      "fails",
      NONE,
      () => {
        throw new Error("This tool intentionally returns an error for testing");
      },
      OPEN,
    )
    .tool(
      "json_schema_2020_12_tool",
      "a schema of the 2020-12 dialect",
      {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "object",
        $defs: {
          address: {
            $anchor: "addressDef",
            type: "object",
            properties: { street: { type: "string" }, city: { type: "string" } },
          },
        },
        properties: {
          name: { type: "string" },
          address: { $ref: "#/$defs/address" },
          contactMethod: { type: "string", enum: ["phone", "email"] },
          phone: { type: "string" },
          email: { type: "string" },
        },
        allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
        if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
        then: { required: ["phone"] },
        else: { required: ["email"] },
        additionalProperties: false,
      },
      () => "ok",
      OPEN,
    )
    .tool(
      "test_x_mcp_header",
      "mirrors an argument into a header",
      { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } },
      ({ region }) => String(region),
      OPEN,
    );
}

function embedded(uri: string, mimeType: string, body: string) {
  return resource(uri, body, mimeType);
}

function conversations(server: Server): void {
  const asks = { type: "object", properties: { message: { type: "string" } }, required: ["message"] } as const;
  let made = 0;
  server
    .tool(
      "test_tool_with_logging",
      "logs",
      NONE,
      async (_args, context) => {
        context.log("info", "Tool execution started");
        await sleep(50);
        context.log("info", "Tool processing data");
        await sleep(50);
        context.log("info", "Tool execution completed");
        return "logged";
      },
      OPEN,
    )
    .tool("test_logging_tool", "logs", NONE, (_args, context) => (context.log("info", "hello"), "logged"), OPEN)
    .tool(
      "test_tool_with_progress",
      "progresses",
      NONE,
      async (_args, context) => {
        for (const progress of [0, 50, 100]) {
          context.progress(progress, 100);
          await sleep(50);
        }
        return "done";
      },
      OPEN,
    )
    .tool(
      "test_sampling",
      "asks the model",
      { type: "object", properties: { prompt: { type: "string" } }, required: ["prompt"] },
      async ({ prompt }, context) => {
        const answer = await context.sample("s", sampling(prompt, 100));
        return `LLM response: ${(answer.content as { text?: string }).text}`;
      },
      OPEN,
    )
    .tool(
      "test_elicitation",
      "asks the person",
      asks,
      async ({ message }, context) => {
        const properties = {
          username: { type: "string", description: "User's response" },
          email: { type: "string", description: "User's email address" },
        };
        const schema = { type: "object", properties, required: ["username", "email"] };
        const answer = await context.elicit("answer", elicitation(message, schema).params as never);
        return `User response: action: ${answer.action}, content: ${JSON.stringify(answer.content)}`;
      },
      OPEN,
    )
    .tool(
      "test_elicitation_sep1034_defaults",
      "asks with defaults",
      NONE,
      async (_args, context) => {
        const properties = {
          name: { type: "string", default: "John Doe" },
          age: { type: "integer", default: 30 },
          score: { type: "number", default: 95.5 },
          status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
          verified: { type: "boolean", default: true },
        };
        return completed(
          await context.elicit("a", elicitation("defaults", { type: "object", properties }).params as never),
        );
      },
      OPEN,
    )
    .tool(
      "test_elicitation_sep1330_enums",
      "asks with choices",
      NONE,
      async (_args, context) => {
        const options = ["option1", "option2", "option3"];
        const properties = {
          untitledSingle: { type: "string", enum: options },
          titledSingle: { type: "string", oneOf: titled("Option") },
          legacyEnum: {
            type: "string",
            enum: ["opt1", "opt2", "opt3"],
            enumNames: ["Option One", "Option Two", "Option Three"],
          },
          untitledMulti: { type: "array", items: { type: "string", enum: options } },
          titledMulti: { type: "array", items: { anyOf: titled("Choice") } },
        };
        return completed(
          await context.elicit("a", elicitation("enums", { type: "object", properties }).params as never),
        );
      },
      OPEN,
    )
    .tool(
      "test_trigger_tool_change",
      "adds a tool",
      NONE,
      () => (server.tool(`dynamic_${made++}`, "new", NONE, () => "new", OPEN), "added"),
      OPEN,
    )
    .tool(
      "test_trigger_prompt_change",
      "adds a prompt",
      NONE,
      () => (server.prompt(`dynamic_${made++}`, "new", {}, () => "new"), "added"),
      OPEN,
    );
}

/** Tools of 2026-07-28, where a server asks by answering `input_required`. */
function rounds(server: Server): void {
  const state = async (context: { askWith: Function; state: unknown }): Promise<string> => {
    await context.askWith({ confirm: elicitation("Please confirm", OK) }, "my-state");
    return context.state === "my-state" ? "state-ok" : "state-lost";
  };
  server
    .tool(
      "test_missing_capability",
      "needs sampling",
      NONE,
      async (_args, context) => (await context.sample("s", sampling("?", 1)), "ran"),
      OPEN,
    )
    .tool(
      "test_streaming_elicitation",
      "asks",
      NONE,
      async (_args, context) => (
        await context.elicit("x", elicitation("?", { type: "object", properties: {} }).params as never), "done"
      ),
      OPEN,
    )
    .tool(
      "test_input_required_result_elicitation",
      "asks for a name",
      NONE,
      async (_args, context) => {
        const answer = await context.elicit("user_name", elicitation("What is your name?", NAME).params as never);
        return `Hello, ${(answer.content as { name?: string } | undefined)?.name}!`;
      },
      OPEN,
    )
    .tool(
      "test_input_required_result_sampling",
      "asks the model",
      NONE,
      async (_args, context) => {
        const answer = await context.sample("capital_question", sampling("What is the capital of France?", 100));
        return String((answer.content as { text?: string }).text);
      },
      OPEN,
    )
    .tool(
      "test_input_required_result_list_roots",
      "asks for roots",
      NONE,
      async (_args, context) => JSON.stringify(await context.listRoots("client_roots")),
      OPEN,
    )
    .tool("test_input_required_result_request_state", "keeps a state", NONE, (_args, context) => state(context), OPEN)
    .tool("test_input_required_result_tampered_state", "keeps a state", NONE, (_args, context) => state(context), OPEN)
    .tool(
      "test_input_required_result_multiple_inputs",
      "asks three things",
      NONE,
      async (_args, context) =>
        JSON.stringify(
          await context.ask({
            user_name: elicitation("What is your name?", NAME) as never,
            greeting: { method: "sampling/createMessage", params: sampling("Generate a greeting", 50) },
            client_roots: { method: "roots/list", params: {} },
          }),
        ),
      OPEN,
    )
    .tool(
      "test_input_required_result_multi_round",
      "asks twice",
      NONE,
      async (_args, context) => {
        const color = { type: "object", properties: { color: { type: "string" } }, required: ["color"] };
        const first = await context.elicit("step1", elicitation("Step 1: What is your name?", NAME).params as never);
        const second = await context.elicit(
          "step2",
          elicitation("Step 2: What is your favorite color?", color).params as never,
        );
        return JSON.stringify([first.content, second.content]);
      },
      OPEN,
    )
    .tool(
      "test_input_required_result_capabilities",
      "asks only what the client can answer",
      NONE,
      async (_args, context) => {
        const { elicitation: canElicit, sampling: canSample } = context.clientCapabilities;
        const questions: Record<string, InputRequest> = {};
        if (canElicit) questions.e = elicitation("?", NAME) as InputRequest;
        if (canSample) questions.s = { method: "sampling/createMessage", params: sampling("?", 10) };
        return JSON.stringify(await context.ask(questions));
      },
      OPEN,
    );
}

function resourcesAndPrompts(server: Server): void {
  const plain = { mimeType: "text/plain", description: "a text" };
  const user = (content: ReturnType<typeof text>) => ({ role: "user" as const, content });
  const png = { role: "user" as const, content: image(PNG, "image/png") };
  server
    .resource("test://static-text", "static-text", "This is the content of the static text resource.", plain)
    .resource("test://static-binary", "static-binary", Buffer.from(PNG, "base64"), {
      mimeType: "image/png",
      description: "an image",
    })
    .resource("test://watched-resource", "watched-resource", "watched", plain)
    .template(
      "test://template/{id}/data",
      "template",
      (_uri, { id }) => JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
      { mimeType: "application/json", description: "by id" },
    )
    .prompt("test_simple_prompt", "simple", {}, () => "This is a simple prompt for testing.")
    .prompt(
      "test_prompt_with_arguments",
      "with arguments",
      {
        arg1: { description: "First test argument", required: true },
        arg2: { description: "Second test argument", required: true },
      },
      ({ arg1, arg2 }) => `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`,
      { complete: { arg1: () => ["paris", "park", "party"] } },
    )
    .prompt(
      "test_prompt_with_embedded_resource",
      "with a resource",
      { resourceUri: { description: "URI of the resource to embed", required: true } },
      ({ resourceUri }) => [
        { role: "user", content: embedded(resourceUri, "text/plain", "Embedded resource content for testing.") },
        user(text("Please process the embedded resource above.")),
      ],
    )
    .prompt("test_prompt_with_image", "with an image", {}, () => [png, user(text("Please analyze the image above."))])
    .prompt("test_input_required_result_prompt", "asks", {}, async (_args, context) => {
      const schema = { type: "object", properties: { context: { type: "string" } }, required: ["context"] };
      const answer = await context.elicit(
        "user_context",
        elicitation("What context should the prompt use?", schema).params as never,
      );
      return String((answer.content as { context?: string }).context);
    });
}
