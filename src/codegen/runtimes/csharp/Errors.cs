#nullable enable
using System;
using System.Linq;
using System.Text.Json;
using System.Text.Json.Nodes;

namespace ServerMcp
{
    /// <summary>
    /// A row of the table of errors: the stable name, the JSON-RPC codes of revisions up to 2025-11-25 and since
    /// 2026-07-28, whether the same call can succeed later, and whether a model can act on it.
    /// </summary>
    public sealed record McpErrorRow(
        string Code, int Legacy, int Modern, int HttpStatus, bool Retryable, bool ForModel, string Message);

    /// <summary>An error of the table.</summary>
    public sealed class McpException : Exception
    {
        private const string ErrorMeta = "portcullis/error";

        public McpException(McpErrorCode code, string reason) : base(reason)
        {
            Code = code;
            RpcCode = Row.Legacy;
        }

        private McpException(McpErrorCode code, string reason, int rpcCode, JsonElement? result) : base(reason)
        {
            Code = code;
            RpcCode = rpcCode;
            Result = result;
        }

        public McpErrorCode Code { get; }

        public McpErrorRow Row => McpErrors.Table[Code];

        /// <summary>The number that travelled; that of the row, unless the other side used one of its own.</summary>
        public int RpcCode { get; }

        /// <summary>The whole result of a tool that ran and failed.</summary>
        public JsonElement? Result { get; }

        /// <summary>Reads the error object of a JSON-RPC answer: by its name, or by its code where it has none.</summary>
        internal static McpException FromWire(JsonElement error)
        {
            JsonElement data = Field(error, "data");
            JsonElement number = Field(error, "code");
            int rpc = number.ValueKind == JsonValueKind.Number && number.TryGetInt32(out int read) ? read : McpErrors.Table[McpErrorCode.InternalError].Legacy;
            McpErrorCode code = Named(Field(data, "code"))
                ?? First(row => row.Legacy == rpc || row.Modern == rpc)
                ?? McpErrorCode.Downstream;
            return new McpException(code, Text(Field(data, "reason")) ?? Text(Field(error, "message")) ?? "", rpc, null);
        }

        /// <summary>Reads a result with isError: the object in it names the error, where a gateway or generated code made it.</summary>
        internal static McpException FromResult(JsonElement result)
        {
            JsonElement meta = Field(Field(result, "_meta"), ErrorMeta);
            JsonElement data = meta.ValueKind == JsonValueKind.Object ? meta : Field(result, "structuredContent");
            McpErrorCode code = Named(Field(data, "code")) ?? McpErrorCode.ToolExecution;
            string reason = Text(Field(data, "reason")) ?? "the tool failed: " + result.GetRawText();
            return new McpException(code, reason, McpErrors.Table[code].Legacy, result);
        }

        /// <summary>The error object of a JSON-RPC answer.</summary>
        internal JsonObject ToWire() =>
            new JsonObject { ["code"] = RpcCode, ["message"] = Row.Message + ": " + Message, ["data"] = Facts() };

        /// <summary>The result with isError that answers tools/call. Clients hold structured content to the output schema.</summary>
        internal JsonObject ToResult()
        {
            JsonObject text = new JsonObject { ["type"] = "text", ["text"] = Row.Message + ": " + Message };
            return new JsonObject { ["isError"] = true, ["content"] = new JsonArray(text), ["_meta"] = new JsonObject { [ErrorMeta] = Facts() } };
        }

        private JsonObject Facts() => new JsonObject
        {
            ["code"] = Row.Code,
            ["error_type"] = Code.ToString(),
            ["reason"] = Message,
            ["retryable"] = Row.Retryable,
        };

        private static McpErrorCode? Named(JsonElement name) => Text(name) is string text ? First(row => row.Code == text) : null;

        private static McpErrorCode? First(Func<McpErrorRow, bool> fits) =>
            Enum.GetValues<McpErrorCode>().Where(code => fits(McpErrors.Table[code])).Select(code => (McpErrorCode?)code).FirstOrDefault();

        private static JsonElement Field(JsonElement value, string name) =>
            value.ValueKind == JsonValueKind.Object && value.TryGetProperty(name, out JsonElement field) ? field : default;

        private static string? Text(JsonElement value) => value.ValueKind == JsonValueKind.String ? value.GetString() : null;
    }
}
