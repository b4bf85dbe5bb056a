// The Cedar schema that rules are checked against, made from the tools themselves.

import type { PolicyAction } from "./catalog.js";
import type { CedarSchema } from "./cedar.js";
import { TOOL_GROUP } from "./frame.js";
import type { RecordShape, ValueShape } from "./shape.js";

type CedarType = Readonly<Record<string, unknown>>;

const STRING: CedarType = { type: "String" };
const STRINGS: CedarType = { type: "Set", element: STRING };
const BOOL: CedarType = { type: "Boolean" };

const ENTITIES = {
  App: {},
  Agent: { memberOfTypes: ["App"], shape: record({ app: STRING, agent: STRING, scope: STRINGS }) },
  // As a principal it has the attributes of an agent, so that a rule about every action reads them of either.
  Server: { memberOfTypes: ["App"], shape: record({ app: STRING, agent: STRING, scope: STRINGS }) },
  Tag: {},
  Tool: {
    memberOfTypes: ["Server", "Tag"],
    shape: record({ name: STRING, server: STRING, tags: STRINGS, readOnly: BOOL }),
  },
  Resource: { memberOfTypes: ["Server"], shape: record({ server: STRING }) },
  Prompt: { memberOfTypes: ["Server"], shape: record({ server: STRING }) },
  Method: {},
};

/**
 * `checked` are the actions a rule is validated for; `named` are only there to be named.
 * `extra` are attributes added to every action's arguments, all required.
 */
export function cedarSchema(
  checked: readonly PolicyAction[],
  named: readonly PolicyAction[],
  extra: Readonly<Record<string, CedarType>> = {},
): CedarSchema {
  const actions: Record<string, unknown> = Object.create(null);
  actions[TOOL_GROUP] = {};
  for (const action of named) actions[action.name] = memberOf(action);
  for (const action of checked) {
    const attributes = attributesOf(action.shape);
    Object.assign(attributes, extra);
    actions[action.name] = {
      ...memberOf(action),
      appliesTo: {
        principalTypes: [action.isServerRequest ? "Server" : "Agent"],
        resourceTypes: action.resourceTypes,
        context: record({
          arguments: record(attributes),
          forwarded: record({}),
          approved: BOOL,
          transport: STRING,
          ...(action.isServerRequest ? { tool: STRING } : {}),
        }),
      },
    };
  }
  return { "": { entityTypes: ENTITIES, actions } } as unknown as CedarSchema;
}

function memberOf(action: PolicyAction): CedarType {
  return action.isTool ? { memberOf: [{ id: TOOL_GROUP }] } : {};
}

function attributesOf(shape: RecordShape): Record<string, CedarType> {
  const attributes: Record<string, CedarType> = Object.create(null);
  for (const [name, attr] of shape.attrs) attributes[name] = { ...cedarTypeOf(attr.shape), required: attr.required };
  return attributes;
}

/** Where a shape is open its type does not matter: every read of it is rewritten before Cedar sees the rule. */
export function cedarTypeOf(shape: ValueShape): CedarType {
  switch (shape.kind) {
    case "string":
      return STRING;
    case "long":
      return { type: "Long" };
    case "bool":
    case "open":
      return BOOL;
    case "decimal":
      return { type: "Extension", name: "decimal" };
    case "set":
      return { type: "Set", element: cedarTypeOf(shape.element) };
    case "record":
      return record(attributesOf(shape));
  }
}

function record(attributes: Readonly<Record<string, CedarType>>): CedarType {
  return { type: "Record", attributes };
}
