// A C# project: records, an interface for each tool and one for the server, attribute methods with injected services,
// guardrail evidence, a typed client and handlers to fill in.

import type { Contract, ToolContract } from "../contract.js";
import { literal } from "../names.js";
import { type CSharpScope, csharpDeclaration, csharpDocs, escapeXml } from "./csharp-types.js";
import { countFields, errorRows, HEADER, type Runtime, type Target, withRuntime } from "./target.js";

/** Types that the generated files name: of the runtime, of .NET, and members of what is generated for each tool. */
const RESERVED_TYPES =
  "Agent Agents Array Action Activator ArgumentException AsyncServiceScope Attribute AttributeTargets AttributeUsage BindingFlags Boolean CallbackContext CallbackRunner CancellationToken CancellationTokenSource ChosenConverter ConcurrentDictionary Console Convert DateTime Dictionary Double Encoding Enum EqualityComparer Exception FromServices FromServicesAttribute Func GuardrailBlocked GuardrailEvidence GuardrailOutcome HttpClient HttpCompletionOption HttpContext HttpMethod HttpRequest HttpRequestException HttpRequestMessage HttpResponse HttpResponseMessage HttpTransport ICaps IAsyncDisposable IEndpointConventionBuilder IEndpointRouteBuilder IEnumerable IEquatable IHasCap IMcpTransport INoGuardrailRequired IReadOnlyDictionary IReadOnlyList IServiceCollection IServiceProvider IServiceScopeFactory IToolCaller Int64 Interlocked InvalidOperationException JsonArray JsonConverter JsonConverterFactory JsonDocument JsonElement JsonException JsonExtensionData JsonIgnore JsonIgnoreCondition JsonNode JsonObject JsonPropertyName JsonRequired JsonSerializer JsonSerializerOptions JsonTokenType JsonValueKind KeyValuePair LineReader ListedConverter Math McpConnection McpErrorCode McpErrorRow McpErrors McpException McpHandshake McpHosting McpHttpSessions McpProtocol McpServer McpServerBuilder McpServerTool McpSession McpTool McpToolAttribute MediaTypeWithQualityHeaderValue MemoryStream MethodInfo Never NotImplementedException NullValue NullValueConverter Object OperationCanceledException OrNull OrNullConverter OrNullConverterFactory ParameterInfo Process ProcessStartInfo RandomNumberGenerator RequestDelegate SemaphoreSlim StdioTransport Stream StreamReader String StringBuilder StringComparison StringContent System Task TextReader TimeSpan ToolCap Type UTF8Encoding UncheckedInvocation Uri UriKind Utf8JsonReader Utf8JsonWriter ValueTask Wire Cap Decode Name Caller".split(
    " ",
  );

export const csharp: Target = {
  reserved: {
    types: RESERVED_TYPES,
    resultSuffix: "Result",
    toolNames: (title) => [`ICan${title}`],
    serverNames: (title) => [
      ...["Mcp", "Tools", "Handlers", "Client", "Registration", "Capabilities"].map((suffix) => `${title}${suffix}`),
      `I${title}Caps`,
      `I${title}All`,
    ],
  },
  runtime: "csharp",
  emit(contract, runtime) {
    const { title } = contract;
    const namespace = `${title}Mcp`;
    const files = withRuntime(inNamespace(runtime, namespace), [
      { path: `${title}.csproj`, text: projectFile(namespace) },
      { path: "Types.cs", text: typesFile(contract, namespace) },
      { path: "ErrorTable.cs", text: errorTableFile(namespace) },
      { path: "Tools.cs", text: toolsFile(contract, namespace) },
      { path: "Handlers.cs", text: handlersFile(contract, namespace), once: true },
    ]);
    return { files, reports: [], fields: countFields(contract) };
  },
};

/** Two generated projects in one program must not declare the same types, so each has the runtime in its namespace. */
function inNamespace(runtime: Runtime, namespace: string): Runtime {
  return new Map(
    [...runtime].map(([path, text]) => [path, text.replace(/^namespace \w+$/m, `namespace ${namespace}`)]),
  );
}

function projectFile(namespace: string): string {
  return `<!-- ${HEADER} -->
<Project Sdk="Microsoft.NET.Sdk">
  <PropertyGroup>
    <TargetFramework>net8.0</TargetFramework>
    <RootNamespace>${namespace}</RootNamespace>
    <Nullable>enable</Nullable>
    <ImplicitUsings>disable</ImplicitUsings>
    <TreatWarningsAsErrors>true</TreatWarningsAsErrors>
  </PropertyGroup>
  <ItemGroup>
    <FrameworkReference Include="Microsoft.AspNetCore.App" />
  </ItemGroup>
</Project>
`;
}

function typesFile(contract: Contract, namespace: string): string {
  const scope: CSharpScope = { declarations: new Map(contract.declarations.map((each) => [each.name, each])) };
  return `// ${HEADER}
#nullable enable
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Text.Json.Serialization;

namespace ${namespace}
{
${contract.declarations.map((declaration) => csharpDeclaration(declaration, scope)).join("\n")}}
`;
}

function errorTableFile(namespace: string): string {
  const rows = errorRows().map(([type, { code, legacy, modern, http, retryable, forModel, message }]) => {
    const cells = [literal(code), legacy, modern, http, retryable, forModel, literal(message)].join(", ");
    return `            [McpErrorCode.${type}] = new McpErrorRow(${cells}),\n`;
  });
  return `// ${HEADER}
#nullable enable
using System.Collections.Generic;

namespace ${namespace}
{
    /// <summary>Every error of a gateway.</summary>
    public enum McpErrorCode
    {
${errorRows()
  .map(([type]) => `        ${type},\n`)
  .join("")}    }

    public static class McpErrors
    {
        public static readonly IReadOnlyDictionary<McpErrorCode, McpErrorRow> Table = new Dictionary<McpErrorCode, McpErrorRow>
        {
${rows.join("")}        };
    }
}
`;
}

function outputOf(tool: ToolContract): string {
  return tool.result?.type ?? "object";
}

function decodeOf(tool: ToolContract, result: string): string {
  return tool.result === undefined ? `Wire.Whole(${result})` : `Wire.Structured<${tool.result.type}>(${result})`;
}

function toolsFile({ title, tools, server, version }: Contract, namespace: string): string {
  const interfaces = tools.map(
    (tool) => `${csharpDocs(tool.docs, "    ")}    public interface ICan${tool.title}
    {
        Task<${outputOf(tool)}> ${tool.title}Async(${tool.args.type} args, CancellationToken ct = default);
    }
`,
  );
  const all = tools.map((tool) => `ICan${tool.title}`).join(", ");
  const caps = tools.map((tool) => `IHasCap<${tool.title}>`).join(", ");
  const marks = tools.map(
    (
      tool,
    ) => `${csharpDocs(tool.docs, "    ")}    public sealed class ${tool.title} : ToolCap<${tool.title}, ${tool.args.type}, ${outputOf(tool)}>${tool.unguarded ? ", INoGuardrailRequired" : ""}
    {
        public static readonly ${tool.title} Cap = new ${tool.title}();

        private ${tool.title}() : base(${literal(tool.name)})
        {
        }

        internal override ${outputOf(tool)} Decode(JsonElement result) => ${decodeOf(tool, "result")};
    }
`,
  );
  const methods = tools.map(
    (
      tool,
    ) => `${csharpDocs(tool.docs, "        ")}        [McpTool(${literal(tool.name)}, ${literal(tool.docs.join("\n"))}, Definition = ${literal(JSON.stringify(tool.definition))})]
        public async Task<${outputOf(tool)}> ${tool.title}(
            [FromServices] ICan${tool.title} service,
            ${tool.args.type} args,
            CancellationToken ct = default)
        {
            return await service.${tool.title}Async(args, ct).ConfigureAwait(false);
        }
`,
  );
  const calls = tools.map(
    (
      tool,
    ) => `${csharpDocs(tool.docs, "        ")}        public async Task<${outputOf(tool)}> ${tool.title}Async(${tool.args.type} args, CancellationToken ct = default)
        {
            JsonElement result = await caller.CallToolAsync(${literal(tool.name)}, Wire.Element(args), ct).ConfigureAwait(false);
            return ${decodeOf(tool, "result")};
        }
`,
  );
  const services = tools.map(
    (tool) =>
      `            services.AddScoped<ICan${tool.title}>(provider => provider.GetRequiredService<${title}Handlers>());\n`,
  );
  return `// ${HEADER}
#nullable enable
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Mvc;
using Microsoft.Extensions.DependencyInjection;

namespace ${namespace}
{
${interfaces.join("\n")}
    /// <summary>The capability set of the server: all its tools.</summary>
    public interface I${title}Caps${all === "" ? "" : ` : ${all}`}
    {
    }

    /// <summary>The same set as a type: what an agent at the root holds.</summary>
    public partial interface I${title}All : ICaps${caps === "" ? "" : `, ${caps}`}
    {
    }

    public static class ${title}Capabilities
    {
        /// <summary>An agent that may use every tool of the server. Everyone else gets theirs by delegation.</summary>
        public static Agent<I${title}All> Root(string name, IToolCaller caller) => new Agent<I${title}All>(name, caller);
    }

${marks.join("\n")}
    /// <summary>The tools of ${escapeXml(server.replaceAll(/[^\x20-\x7e]/g, "?"))} as methods. Each call gets its services from a scope of its own.</summary>
    public sealed class ${title}Tools
    {
${methods.join("\n")}    }

    /// <summary>Calls the tools of a server somewhere else.</summary>
    public sealed class ${title}Client : I${title}Caps
    {
        private readonly IToolCaller caller;

        public ${title}Client(IToolCaller caller)
        {
            this.caller = caller;
        }

        public IToolCaller Caller => caller;
${calls.length > 0 ? "\n" : ""}${calls.join("\n")}    }

    public static class ${title}Registration
    {
        /// <summary>
        /// Registers the handlers, and a server with their tools: run it with RunMcpStdioAsync or MapMcp. Handlers are
        /// scoped: what one keeps belongs to one call, and no two callers share it.
        /// </summary>
        public static McpServerBuilder Add${title}(this IServiceCollection services)
        {
            services.AddScoped<${title}Handlers>();
            services.AddScoped<I${title}Caps>(provider => provider.GetRequiredService<${title}Handlers>());
${services.join("")}            McpServerBuilder server = services.AddMcpServer(${literal(server)}, ${literal(version)});
            return ${tools.length > 0 ? `server.WithTool<${title}Tools>()` : "server"};
        }
    }
}
`;
}

function handlersFile({ title, tools }: Contract, namespace: string): string {
  const methods = tools.map(
    (
      tool,
    ) => `${csharpDocs(tool.docs, "        ")}        public Task<${outputOf(tool)}> ${tool.title}Async(${tool.args.type} args, CancellationToken ct = default)
        {
            throw new NotImplementedException(${literal(`${tool.name} is not implemented.`)});
        }
`,
  );
  return `// Yours to fill in: \`portcullis gen\` writes this file once and never again.
#nullable enable
using System;
using System.Threading;
using System.Threading.Tasks;

namespace ${namespace}
{
    /// <summary>One instance for each call; take services of yours in the constructor.</summary>
    public sealed class ${title}Handlers : I${title}Caps
    {
${methods.join("\n")}    }
}
`;
}
