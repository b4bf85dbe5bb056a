#nullable enable
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Mvc;
using Microsoft.Extensions.DependencyInjection;

namespace ServerMcp
{
    /// <summary>A method with McpToolAttribute, ready to run: arguments in, result out, services from the call's own scope.</summary>
    internal sealed class McpServerTool
    {
        private readonly Type owner;
        private readonly MethodInfo method;

        public McpServerTool(Type owner, MethodInfo method, McpToolAttribute about)
        {
            this.owner = owner;
            this.method = method;
            Name = about.Name;
            Definition = about.Definition != ""
                ? (JsonObject)JsonNode.Parse(about.Definition)!
                : new JsonObject
                {
                    ["name"] = about.Name,
                    ["description"] = about.Description,
                    ["inputSchema"] = new JsonObject { ["type"] = "object" },
                };
        }

        public string Name { get; }

        public JsonObject Definition { get; }

        public async Task<JsonObject> RunAsync(IServiceProvider services, JsonElement args, CancellationToken ct)
        {
            ParameterInfo[] parameters = method.GetParameters();
            object?[] values = new object?[parameters.Length];
            for (int i = 0; i < parameters.Length; i++)
            {
                Type type = parameters[i].ParameterType;
                values[i] = type == typeof(CancellationToken) ? ct
                    : parameters[i].GetCustomAttribute<FromServicesAttribute>() is not null ? services.GetRequiredService(type)
                    : Read(args, type);
            }
            Task running = (Task)method.Invoke(
                services.GetRequiredService(owner), BindingFlags.DoNotWrapExceptions, null, values, null)!;
            await running.ConfigureAwait(false);
            object? result = running.GetType().GetProperty("Result")?.GetValue(running);
            JsonNode? node = JsonSerializer.SerializeToNode(result, result?.GetType() ?? typeof(object));
            // Without an output schema a handler returns the whole result; with one, the structured part of it.
            if (method.ReturnType == typeof(Task<object>))
            {
                return node as JsonObject ?? throw new McpException(McpErrorCode.OutputInvalid, "the result of " + Name + " is not an object");
            }
            JsonObject text = new JsonObject { ["type"] = "text", ["text"] = node?.ToJsonString() ?? "null" };
            return new JsonObject { ["content"] = new JsonArray(text), ["structuredContent"] = node };
        }

        private static object Read(JsonElement args, Type type)
        {
            try
            {
                return args.Deserialize(type)!;
            }
            catch (JsonException error)
            {
                throw new McpException(McpErrorCode.ValidationError, error.Message);
            }
        }
    }

    /// <summary>The tools of a server by name. Each call runs in a scope of its own.</summary>
    public sealed class McpServer
    {
        private readonly Dictionary<string, McpServerTool> tools = new Dictionary<string, McpServerTool>();
        private readonly IServiceScopeFactory scopes;
        private readonly string name;
        private readonly string version;

        internal McpServer(string name, string version, IEnumerable<McpServerTool> tools, IServiceScopeFactory scopes)
        {
            this.name = name;
            this.version = version;
            this.scopes = scopes;
            foreach (McpServerTool tool in tools)
            {
                this.tools.Add(tool.Name, tool);
            }
        }

        /// <summary>Calls a tool by name, and returns its whole result.</summary>
        public async Task<JsonObject> DispatchAsync(string tool, JsonElement args, CancellationToken ct = default)
        {
            if (!tools.TryGetValue(tool, out McpServerTool? found))
            {
                throw new McpException(McpErrorCode.ToolNotFound, tool);
            }
            AsyncServiceScope scope = scopes.CreateAsyncScope();
            await using (scope.ConfigureAwait(false))
            {
                return await found.RunAsync(scope.ServiceProvider, args, ct).ConfigureAwait(false);
            }
        }

        internal JsonObject Describe() => new JsonObject
        {
            ["protocolVersion"] = McpProtocol.Version,
            ["capabilities"] = new JsonObject { ["tools"] = new JsonObject() },
            ["serverInfo"] = new JsonObject { ["name"] = name, ["version"] = version },
        };

        internal JsonObject List()
        {
            JsonArray list = new JsonArray();
            foreach (McpServerTool tool in tools.Values)
            {
                list.Add(tool.Definition.DeepClone());
            }
            return new JsonObject { ["tools"] = list };
        }
    }

    /// <summary>The server's side of one connection: which requests it answers depends on the phase.</summary>
    internal sealed class McpConnection
    {
        private readonly McpServer server;
        private volatile bool initialized;

        public McpConnection(McpServer server)
        {
            this.server = server;
        }

        /// <summary>The answer to one message; a notification has none.</summary>
        public async Task<JsonObject?> AnswerAsync(string text, CancellationToken ct)
        {
            JsonNode? id = null;
            try
            {
                JsonElement message = McpProtocol.Parse(text);
                if (!message.TryGetProperty("id", out JsonElement given))
                {
                    return null;
                }
                id = JsonNode.Parse(given.GetRawText());
                string method = message.TryGetProperty("method", out JsonElement named) ? named.ToString() : "";
                JsonElement parameters = message.TryGetProperty("params", out JsonElement found) ? found : default;
                return McpProtocol.Answer(id, await ResultAsync(method, parameters, ct).ConfigureAwait(false));
            }
            catch (McpException error)
            {
                return McpProtocol.Failure(id, error);
            }
        }

        private async Task<JsonObject> ResultAsync(string method, JsonElement parameters, CancellationToken ct)
        {
            if (method == "initialize" == initialized && method != "ping")
            {
                throw new McpException(McpErrorCode.WrongPhase, method + (initialized ? " after initialize" : " before initialize"));
            }
            switch (method)
            {
                case "initialize":
                    initialized = true;
                    return server.Describe();
                case "ping":
                    return new JsonObject();
                case "tools/list":
                    return server.List();
                case "tools/call":
                    return await CallAsync(parameters, ct).ConfigureAwait(false);
                default:
                    throw new McpException(McpErrorCode.MethodNotFound, method);
            }
        }

        private async Task<JsonObject> CallAsync(JsonElement parameters, CancellationToken ct)
        {
            if (parameters.ValueKind != JsonValueKind.Object || !parameters.TryGetProperty("name", out JsonElement name) || name.ValueKind != JsonValueKind.String)
            {
                throw new McpException(McpErrorCode.InvalidParams, "tools/call needs a name");
            }
            JsonElement args = parameters.TryGetProperty("arguments", out JsonElement given) ? given : Wire.Element(new JsonObject());
            if (args.ValueKind != JsonValueKind.Object)
            {
                throw new McpException(McpErrorCode.InvalidParams, "arguments must be an object");
            }
            try
            {
                return await server.DispatchAsync(name.GetString()!, args, ct).ConfigureAwait(false);
            }
            catch (McpException error) when (error.Row.ForModel)
            {
                return error.ToResult();
            }
            catch (Exception error) when (error is not McpException && error is not OperationCanceledException)
            {
                // The message of an unexpected error may name paths or secrets, so it is not sent.
                await Console.Error.WriteLineAsync(error.ToString()).ConfigureAwait(false);
                return new McpException(McpErrorCode.ToolExecution, "an unexpected error stopped " + name.GetString()).ToResult();
            }
        }
    }
}
