// What can be wrong with a definition. These are mistakes of whoever wrote a tool, found before any call.

/** A tool, resource, prompt or server that cannot be offered as it is written. */
export class DefinitionError extends Error {
  readonly code: string = "INVALID_DEFINITION";
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "DefinitionError";
  }
}

/** A JSON Schema that cannot be used; `pointer` says where in the schema. */
export class SchemaError extends DefinitionError {
  override readonly code = "INVALID_SCHEMA";
  readonly pointer: string;
  constructor(pointer: string, message: string) {
    super(`schema${pointer === "" ? "" : ` at ${pointer}`}: ${message}`);
    this.name = "SchemaError";
    this.pointer = pointer;
  }
}
