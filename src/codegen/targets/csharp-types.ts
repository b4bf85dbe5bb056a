// Types and declarations as C# writes them.

import { literal, Names, pascal } from "../names.js";
import type { Declaration, Type, TypeField } from "../types/type.js";

/** Members that every record has, or that no record may have. */
const RECORD_MEMBERS =
  "Equals GetHashCode ToString GetType MemberwiseClone Finalize ReferenceEquals PrintMembers EqualityContract Deconstruct Clone Extra".split(
    " ",
  );

export interface CSharpScope {
  readonly declarations: ReadonlyMap<string, Declaration>;
}

function typeText(type: Type): string {
  switch (type.kind) {
    case "any":
    case "opaque":
      return "JsonElement";
    case "never":
      return "Never";
    case "null":
      return "NullValue";
    case "boolean":
      return "bool";
    case "integer":
      return "long";
    case "number":
      return "double";
    case "string":
      return "string";
    case "list":
      return `IReadOnlyList<${typeText(type.items)}>`;
    case "tuple":
      return `IReadOnlyList<${typeText(type.element)}>`;
    case "map":
      return `Dictionary<string, ${typeText(type.values)}>`;
    case "nullable":
      return `OrNull<${typeText(type.of)}>`;
    case "named":
      return type.name;
  }
}

export function csharpDeclaration(declaration: Declaration, scope: CSharpScope): string {
  const head = csharpDocs(declaration.docs, "    ");
  switch (declaration.kind) {
    case "object":
      return head + recordText(declaration);
    case "enum":
      return head + enumText(declaration);
    case "union":
      return head + unionText(declaration, scope);
    case "alias":
      return head + aliasText(declaration);
  }
}

function recordText({ name, fields, extra }: Declaration & { kind: "object" }): string {
  const names = new Names([...RECORD_MEMBERS, name]);
  // Parameters with a default come last.
  const ordered = [...fields.filter((field) => field.required), ...fields.filter((field) => !field.required)];
  const own = new Map(ordered.map((field) => [field, names.take(pascal(field.name, "Field"))]));
  const params = ordered.map((field) => `\n        ${parameter(field, own.get(field) as string)}`);
  const about = ordered.flatMap((field) =>
    field.docs.length === 0
      ? []
      : [`    /// <param name="${own.get(field)}">\n${lines(field.docs, "    ")}    /// </param>\n`],
  );
  const rest =
    extra === undefined
      ? ";\n"
      : `
    {
        /// <summary>Fields that the schema does not name; they travel on unchanged.</summary>
        [JsonExtensionData]
        public Dictionary<string, JsonElement>? Extra { get; set; }
    }
`;
  return `${about.join("")}    public sealed record ${name}(${params.join(",")})${rest}`;
}

function parameter(field: TypeField, name: string): string {
  const type = typeText(field.type);
  const wire = `JsonPropertyName(${literal(field.name)})`;
  if (field.required) return `[property: ${wire}, JsonRequired] ${type} ${name}`;
  return `[property: ${wire}, JsonIgnore(Condition = JsonIgnoreCondition.WhenWritingNull)] ${type}? ${name} = null`;
}

function enumText({ name, values }: Declaration & { kind: "enum" }): string {
  const names = new Names([name]);
  const members = values.map((value) =>
    names.take(pascal(typeof value === "number" ? numberWords(value) : String(value), "Empty"), "V"),
  );
  const wire = values.map((value) =>
    typeof value === "string" ? literal(value) : typeof value === "number" ? `${value}d` : String(value),
  );
  const rows = members.map(
    (member, i) => `        /// <summary>${escapeXml(wire[i] as string)}</summary>\n        ${member},\n`,
  );
  return `    [JsonConverter(typeof(${name}_Converter))]
    public enum ${name}
    {
${rows.join("")}    }

    internal sealed class ${name}_Converter : ListedConverter<${name}>
    {
        public ${name}_Converter() : base(
            new ${name}[] { ${members.map((member) => `${name}.${member}`).join(", ")} },
            new object[] { ${wire.join(", ")} })
        {
        }
    }
`;
}

function numberWords(value: number): string {
  return `${value < 0 ? "minus " : ""}${Math.abs(value)}`.replace(".", " point ");
}

function unionText({ name, variants }: Declaration & { kind: "union" }, scope: CSharpScope): string {
  const names = new Names([...RECORD_MEMBERS, "Value", ...scope.declarations.keys()]);
  const own = variants.map((variant) => names.take(`${pascal(variant.name, "Variant")}Case`));
  const cases = variants.map(
    (variant, i) => `        public sealed record ${own[i]}(${typeText(variant.type)} Value) : ${name};\n`,
  );
  const tests = variants.map((variant) => test(variant.type, "value", scope, 0));
  // Behind a variant that takes anything no other is ever reached.
  const last = tests.indexOf("true");
  const picks = variants.slice(0, last < 0 ? undefined : last + 1).map((variant, i) => {
    const made = `return new ${name}.${own[i]}(As<${typeText(variant.type)}>(value, options));\n`;
    if (i === last) return `            ${made}`;
    return `            if (${tests[i]})\n            {\n                ${made}            }\n`;
  });
  if (last < 0) picks.push("            return null;\n");
  const held = own.map((each) => `            ${name}.${each} held => held.Value!,\n`);
  return `    [JsonConverter(typeof(${name}_Converter))]
    public abstract record ${name}
    {
        private ${name}()
        {
        }

${cases.join("\n")}    }

    internal sealed class ${name}_Converter : ChosenConverter<${name}>
    {
        protected override ${name}? Pick(JsonElement value, JsonSerializerOptions options)
        {
${picks.join("")}        }

        protected override object Held(${name} value) => value switch
        {
${held.join("")}            _ => throw new JsonException("Is not a variant of ${name}."),
        };
    }
`;
}

/** Whether a value looks like a type: its kind, the fields it must have, the texts that tell variants apart. */
function test(type: Type, value: string, scope: CSharpScope, depth: number): string {
  switch (type.kind) {
    case "any":
    case "opaque":
      return "true";
    case "never":
      return "false";
    case "null":
      return `IsKind(${value}, JsonValueKind.Null)`;
    case "boolean":
      return `IsBoolean(${value})`;
    case "integer":
      return `IsInteger(${value})`;
    case "number":
      return `IsKind(${value}, JsonValueKind.Number)`;
    case "string":
      return `IsKind(${value}, JsonValueKind.String)`;
    case "list":
    case "tuple":
      return `IsKind(${value}, JsonValueKind.Array)`;
    case "map":
      return `IsKind(${value}, JsonValueKind.Object)`;
    case "nullable":
      return oneOf([`IsKind(${value}, JsonValueKind.Null)`, test(type.of, value, scope, depth)]);
    case "named":
      return testNamed(type.name, value, scope, depth);
  }
}

/** What is always true must be seen to be: a compiler warns about what stands behind it. */
function oneOf(tests: readonly string[]): string {
  return tests.includes("true") ? "true" : `(${tests.join(" || ")})`;
}

function testNamed(name: string, value: string, scope: CSharpScope, depth: number): string {
  const declaration = scope.declarations.get(name);
  // Deep enough to tell variants apart; a circle of names must end somewhere.
  if (declaration === undefined || depth > 3) return "true";
  switch (declaration.kind) {
    case "enum": {
      const texts = declaration.values.filter((each) => typeof each === "string");
      if (texts.length < declaration.values.length) return `!IsKind(${value}, JsonValueKind.Object)`;
      return `IsText(${value}, ${texts.slice(0, 200).map(literal).join(", ")})`;
    }
    case "alias":
      return test(declaration.type, value, scope, depth + 1);
    case "union":
      return oneOf(declaration.variants.map((variant) => test(variant.type, value, scope, depth + 1)));
    case "object": {
      const needed = declaration.fields.filter((field) => field.required).slice(0, 40);
      const tests = needed.map((field) => {
        const inner = field.type.kind === "named" ? scope.declarations.get(field.type.name) : undefined;
        const texts = inner?.kind === "enum" ? inner.values.filter((each) => typeof each === "string") : [];
        if (inner?.kind === "enum" && texts.length === inner.values.length && texts.length <= 50) {
          return `HasText(${value}, ${literal(field.name)}, ${texts.map(literal).join(", ")})`;
        }
        return `Has(${value}, ${literal(field.name)})`;
      });
      return [`IsKind(${value}, JsonValueKind.Object)`, ...tests].join(" && ");
    }
  }
}

function aliasText({ name, type }: Declaration & { kind: "alias" }): string {
  const inner = typeText(type);
  return `    [JsonConverter(typeof(${name}_Converter))]
    public sealed record ${name}(${inner} Value);

    internal sealed class ${name}_Converter : JsonConverter<${name}>
    {
        public override ${name} Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options) =>
            new ${name}(JsonSerializer.Deserialize<${inner}>(ref reader, options)!);

        public override void Write(Utf8JsonWriter writer, ${name} value, JsonSerializerOptions options) =>
            JsonSerializer.Serialize(writer, value.Value, options);
    }
`;
}

export function csharpDocs(about: readonly string[], indent: string): string {
  if (about.length === 0) return "";
  if (about.length === 1) return `${indent}/// <summary>${escapeXml(about[0] as string)}</summary>\n`;
  return `${indent}/// <summary>\n${lines(about, indent)}${indent}/// </summary>\n`;
}

function lines(about: readonly string[], indent: string): string {
  return about.map((line) => `${indent}/// ${escapeXml(line)}`.trimEnd() + "\n").join("");
}

export function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
