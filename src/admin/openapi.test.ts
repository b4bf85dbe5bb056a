import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { openApiDocument, pathFields } from "./openapi.js";
import { OPERATIONS } from "./operations.js";
import { type OperationName, ROUTES } from "./routes.js";

const NAMES = Object.keys(ROUTES) as OperationName[];

describe("the OpenAPI document of the admin API", () => {
  const document = openApiDocument("1.2.3") as { paths: Record<string, Record<string, { operationId: string }>> };

  it("the OpenAPI document of the admin API is valid by the schema of OpenAPI 3.1", () => {
    const schema = JSON.parse(
      readFileSync(resolve(import.meta.dirname, "../schema/fixtures/openapi-3.1.json"), "utf8"),
    ) as object;
    const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(schema);
    expect(validate(document) ? [] : validate.errors).toEqual([]);
  });

  it("the OpenAPI document of the admin API has every operation of the table once, with its method and path", () => {
    const found = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path}`),
    );
    expect(found.toSorted()).toEqual(
      NAMES.map((name) => `${name} ${ROUTES[name].method} ${ROUTES[name].path}`).toSorted(),
    );
  });

  it("describes schemas that compile, and every field of a path as a required input", () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    for (const name of NAMES) {
      const { input, result } = OPERATIONS[name];
      ajv.compile(input.schema);
      ajv.compile(result.schema);
      for (const field of pathFields(ROUTES[name].path)) {
        expect(input.schema.required, `${name}: ${field}`).toContain(field);
      }
    }
  });
});
