#nullable enable
using System;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Threading;
using System.Threading.Tasks;

namespace ServerMcp
{
    /// <summary>Sends requests and notifications. Implement it for the way your program connects.</summary>
    public interface IMcpTransport : IAsyncDisposable
    {
        Task<JsonElement> RequestAsync(string method, JsonObject parameters, CancellationToken ct);

        Task NotifyAsync(string method, JsonObject parameters, CancellationToken ct);
    }

    /// <summary>The first phase of a connection. It has no way to call a tool: only a session has.</summary>
    public sealed class McpHandshake
    {
        private readonly IMcpTransport transport;
        private int used;

        public McpHandshake(IMcpTransport transport)
        {
            this.transport = transport;
        }

        /// <summary>Agrees on the revision. The connection belongs to the session from then on.</summary>
        public async Task<McpSession> InitializeAsync(string name, string version, CancellationToken ct = default)
        {
            if (Interlocked.Exchange(ref used, 1) != 0)
            {
                throw new McpException(McpErrorCode.WrongPhase, "the connection is already initialized");
            }
            JsonObject parameters = new JsonObject
            {
                ["protocolVersion"] = McpProtocol.Version,
                ["capabilities"] = new JsonObject(),
                ["clientInfo"] = new JsonObject { ["name"] = name, ["version"] = version },
            };
            JsonElement server = await transport.RequestAsync("initialize", parameters, ct).ConfigureAwait(false);
            string? agreed = server.TryGetProperty("protocolVersion", out JsonElement revision) ? revision.GetString() : null;
            if (agreed != McpProtocol.Version)
            {
                throw new McpException(McpErrorCode.UnsupportedVersion, "the server speaks revision " + agreed + ", expected " + McpProtocol.Version);
            }
            await transport.NotifyAsync("notifications/initialized", new JsonObject(), ct).ConfigureAwait(false);
            return new McpSession(transport, server);
        }
    }

    /// <summary>The second phase: tools can be called until the session is disposed.</summary>
    public sealed class McpSession : IToolCaller, IAsyncDisposable
    {
        private readonly IMcpTransport transport;
        private int closed;

        internal McpSession(IMcpTransport transport, JsonElement server)
        {
            this.transport = transport;
            Server = server;
        }

        /// <summary>The server's answer to initialize.</summary>
        public JsonElement Server { get; }

        public Task<JsonElement> ListToolsAsync(CancellationToken ct = default) => Open().RequestAsync("tools/list", new JsonObject(), ct);

        public Task<JsonElement> CallToolAsync(string name, JsonElement args, CancellationToken ct)
        {
            JsonObject parameters = new JsonObject { ["name"] = name, ["arguments"] = JsonObject.Create(args) };
            return Open().RequestAsync("tools/call", parameters, ct);
        }

        public async ValueTask DisposeAsync()
        {
            if (Interlocked.Exchange(ref closed, 1) == 0)
            {
                await transport.DisposeAsync().ConfigureAwait(false);
            }
        }

        private IMcpTransport Open() =>
            closed == 0 ? transport : throw new McpException(McpErrorCode.WrongPhase, "the session is closed");
    }

    internal static class McpProtocol
    {
        public const string Version = "2025-11-25";
        public const int MaxMessageBytes = 16 * 1024 * 1024;
        public static readonly TimeSpan Timeout = TimeSpan.FromSeconds(60);

        public static JsonObject Request(string method, JsonObject parameters) =>
            new JsonObject { ["jsonrpc"] = "2.0", ["method"] = method, ["params"] = parameters };

        public static JsonObject Answer(JsonNode? id, JsonObject result) =>
            new JsonObject { ["jsonrpc"] = "2.0", ["id"] = id?.DeepClone(), ["result"] = result };

        public static JsonObject Failure(JsonNode? id, McpException error) =>
            new JsonObject { ["jsonrpc"] = "2.0", ["id"] = id?.DeepClone(), ["error"] = error.ToWire() };

        public static bool IsAnswerTo(JsonElement message, long id) =>
            message.ValueKind == JsonValueKind.Object && !message.TryGetProperty("method", out _)
            && message.TryGetProperty("id", out JsonElement found)
            && found.ValueKind == JsonValueKind.Number && found.TryGetInt64(out long number) && number == id;

        public static JsonElement Parse(string text)
        {
            try
            {
                JsonElement message = JsonSerializer.Deserialize<JsonElement>(text);
                return message.ValueKind == JsonValueKind.Object
                    ? message
                    : throw new McpException(McpErrorCode.InvalidRequest, "a message must be an object");
            }
            catch (JsonException error)
            {
                throw new McpException(McpErrorCode.ParseError, error.Message);
            }
        }

        public static async Task<JsonElement> WithinAsync(
            TimeSpan timeout, string method, CancellationToken ct, Func<CancellationToken, Task<JsonElement>> request)
        {
            using CancellationTokenSource limit = CancellationTokenSource.CreateLinkedTokenSource(ct);
            limit.CancelAfter(timeout);
            try
            {
                return await request(limit.Token).ConfigureAwait(false);
            }
            catch (OperationCanceledException) when (!ct.IsCancellationRequested)
            {
                throw new McpException(McpErrorCode.ToolTimeout, "no answer to " + method + " within " + timeout.TotalSeconds + " s");
            }
        }

        /// <summary>The result in an answer; an error in it is thrown.</summary>
        public static JsonElement ResultOf(JsonElement answer)
        {
            if (answer.TryGetProperty("error", out JsonElement error))
            {
                throw McpException.FromWire(error);
            }
            return answer.TryGetProperty("result", out JsonElement result)
                ? result
                : throw new McpException(McpErrorCode.InvalidRequest, "the answer has neither a result nor an error");
        }
    }
}
