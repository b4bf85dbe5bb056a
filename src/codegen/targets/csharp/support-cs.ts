// Parts of the generated project that are the same for every server.

export function supportCs(namespace: string): string {
  return String.raw`#nullable enable
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Threading;
using System.Threading.Tasks;

namespace ${namespace}
{
    /// <summary>A value that may be null, which is not the same as one that may be absent: that is T?.</summary>
    [JsonConverter(typeof(OrNullConverterFactory))]
    public sealed class OrNull<T> : IEquatable<OrNull<T>>
    {
        public static readonly OrNull<T> Null = new OrNull<T>();

        private readonly T value;

        private OrNull()
        {
            IsNull = true;
            value = default!;
        }

        public OrNull(T value)
        {
            IsNull = false;
            this.value = value;
        }

        public bool IsNull { get; }

        public T Value => IsNull ? throw new InvalidOperationException("The value is null.") : value;

        public bool Equals(OrNull<T>? other) =>
            other is not null && IsNull == other.IsNull && (IsNull || EqualityComparer<T>.Default.Equals(value, other.value));

        public override bool Equals(object? other) => other is OrNull<T> same && Equals(same);

        public override int GetHashCode() => IsNull || value is null ? 0 : value.GetHashCode();

        public static implicit operator OrNull<T>(T value) => new OrNull<T>(value);
    }

    internal sealed class OrNullConverterFactory : JsonConverterFactory
    {
        public override bool CanConvert(Type type) => type.IsGenericType && type.GetGenericTypeDefinition() == typeof(OrNull<>);

        public override JsonConverter CreateConverter(Type type, JsonSerializerOptions options)
        {
            Type converter = typeof(OrNullConverter<>).MakeGenericType(type.GetGenericArguments()[0]);
            return (JsonConverter)Activator.CreateInstance(converter)!;
        }
    }

    internal sealed class OrNullConverter<T> : JsonConverter<OrNull<T>>
    {
        public override bool HandleNull => true;

        public override OrNull<T> Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options) =>
            reader.TokenType == JsonTokenType.Null ? OrNull<T>.Null : new OrNull<T>(JsonSerializer.Deserialize<T>(ref reader, options)!);

        public override void Write(Utf8JsonWriter writer, OrNull<T> value, JsonSerializerOptions options)
        {
            if (value.IsNull)
            {
                writer.WriteNullValue();
            }
            else
            {
                JsonSerializer.Serialize(writer, value.Value, options);
            }
        }
    }

    /// <summary>Nothing but null.</summary>
    [JsonConverter(typeof(NullValueConverter))]
    public readonly struct NullValue
    {
    }

    internal sealed class NullValueConverter : JsonConverter<NullValue>
    {
        public override NullValue Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options) =>
            reader.TokenType == JsonTokenType.Null ? default : throw new JsonException("Must be null.");

        public override void Write(Utf8JsonWriter writer, NullValue value, JsonSerializerOptions options) => writer.WriteNullValue();
    }

    /// <summary>No value at all: the schema accepts none.</summary>
    public sealed class Never
    {
        private Never()
        {
        }
    }

    /// <summary>An enum by the values that travel, in the order of its members.</summary>
    public abstract class ListedConverter<T> : JsonConverter<T> where T : struct, Enum
    {
        private readonly object[] values;
        private readonly T[] members;

        protected ListedConverter(T[] members, object[] values)
        {
            this.members = members;
            this.values = values;
        }

        public override T Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options)
        {
            object? read = reader.TokenType switch
            {
                JsonTokenType.String => reader.GetString(),
                JsonTokenType.Number => reader.GetDouble(),
                JsonTokenType.True => true,
                JsonTokenType.False => false,
                _ => null,
            };
            int place = read is null ? -1 : Array.IndexOf(values, read);
            return place < 0 ? throw new JsonException("Is none of the listed values.") : members[place];
        }

        public override void Write(Utf8JsonWriter writer, T value, JsonSerializerOptions options)
        {
            int place = Array.IndexOf(members, value);
            if (place < 0)
            {
                throw new JsonException("Is none of the listed values.");
            }
            switch (values[place])
            {
                case string text:
                    writer.WriteStringValue(text);
                    break;
                case double number:
                    writer.WriteNumberValue(number);
                    break;
                case bool truth:
                    writer.WriteBooleanValue(truth);
                    break;
            }
        }
    }

    /// <summary>One of several types; the first that a value fits is the one it has.</summary>
    public abstract class ChosenConverter<T> : JsonConverter<T> where T : class
    {
        protected abstract T? Pick(JsonElement value, JsonSerializerOptions options);

        protected abstract object Held(T value);

        public override T Read(ref Utf8JsonReader reader, Type type, JsonSerializerOptions options)
        {
            using JsonDocument document = JsonDocument.ParseValue(ref reader);
            return Pick(document.RootElement, options) ?? throw new JsonException("Fits no variant of " + typeof(T).Name + ".");
        }

        public override void Write(Utf8JsonWriter writer, T value, JsonSerializerOptions options)
        {
            object held = Held(value);
            JsonSerializer.Serialize(writer, held, held.GetType(), options);
        }

        protected static V As<V>(JsonElement value, JsonSerializerOptions options) =>
            JsonSerializer.Deserialize<V>(value.GetRawText(), options)!;

        protected static bool IsKind(JsonElement value, JsonValueKind kind) => value.ValueKind == kind;

        protected static bool IsBoolean(JsonElement value) => value.ValueKind == JsonValueKind.True || value.ValueKind == JsonValueKind.False;

        protected static bool IsInteger(JsonElement value) =>
            value.ValueKind == JsonValueKind.Number && value.GetDouble() == Math.Floor(value.GetDouble());

        protected static bool Has(JsonElement value, string name) =>
            value.ValueKind == JsonValueKind.Object && value.TryGetProperty(name, out _);

        protected static bool IsText(JsonElement value, params string[] texts) =>
            value.ValueKind == JsonValueKind.String && Array.IndexOf(texts, value.GetString()!) >= 0;

        protected static bool HasText(JsonElement value, string name, params string[] texts) =>
            value.ValueKind == JsonValueKind.Object && value.TryGetProperty(name, out JsonElement inner) && IsText(inner, texts);
    }

    /// <summary>What can go wrong, with the codes of JSON-RPC.</summary>
    public enum McpErrorCode
    {
        InvalidParams = -32602,
        ToolNotFound = -32601,
        Internal = -32603,
        PermissionDenied = -32000,
    }

    public sealed class McpException : Exception
    {
        public McpException(McpErrorCode code, string message) : base(message)
        {
            Code = code;
        }

        public McpErrorCode Code { get; }
    }

    /// <summary>A method that runs a tool.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    public sealed class McpToolAttribute : Attribute
    {
        public McpToolAttribute(string name, string description)
        {
            Name = name;
            Description = description;
        }

        public string Name { get; }

        public string Description { get; }
    }

    /// <summary>Whatever calls a tool by its name and brings back the whole result.</summary>
    public interface IToolCaller
    {
        Task<JsonElement> CallToolAsync(string name, JsonElement args, CancellationToken ct);
    }
}
`;
}

export function capabilityCs(namespace: string): string {
  return String.raw`#nullable enable
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ${namespace}
{
    /// <summary>A tool as a type. Nobody outside this assembly can make one.</summary>
    public abstract class ToolCap<TSelf, TArgs, TOutput> where TSelf : ToolCap<TSelf, TArgs, TOutput>
    {
        internal ToolCap(string name)
        {
            Name = name;
        }

        public string Name { get; }

        internal abstract TOutput Decode(JsonElement result);
    }

    /// <summary>A set of capabilities that has the tool T in it.</summary>
    public interface IHasCap<T>
    {
    }

    /// <summary>The empty set.</summary>
    public interface ICaps
    {
    }

    /// <summary>Somebody who may call the tools in TCaps and no others. Agents are told apart by who they are, not by name.</summary>
    public sealed class Agent<TCaps>
    {
        internal Agent(string name, IToolCaller caller)
        {
            Name = name;
            Caller = caller;
        }

        public string Name { get; }

        internal IToolCaller Caller { get; }

        /// <summary>Callbacks of this very agent. A child has none of them; it runs its own.</summary>
        public CallbackRunner Callbacks() => new CallbackRunner(this, Name);
    }

    public static class Agents
    {
        /// <summary>An agent that gets one tool of its parent. What the parent does not hold does not compile.</summary>
        public static Agent<IHasCap<T>> Delegate<TCaps, T, TArgs, TOutput>(
            this Agent<TCaps> parent, string child, ToolCap<T, TArgs, TOutput> tool)
            where TCaps : IHasCap<T>
            where T : ToolCap<T, TArgs, TOutput> => new Agent<IHasCap<T>>(child, parent.Caller);

        /// <summary>
        /// An agent that gets a set of yours: an interface that extends IHasCap for each of its tools, and that the
        /// parent's set extends. Say so of the server's own set with a partial interface.
        /// </summary>
        public static Agent<TShared> DelegateAs<TCaps, TShared>(Agent<TCaps> parent, string child)
            where TCaps : TShared => new Agent<TShared>(child, parent.Caller);

        /// <summary>Calls a tool with the arguments that the evidence was given for. The evidence is spent by it.</summary>
        public static async Task<TOutput> InvokeTool<TCaps, T, TArgs, TOutput>(
            this Agent<TCaps> agent, GuardrailEvidence<T, TArgs, TOutput> evidence, CancellationToken ct = default)
            where TCaps : IHasCap<T>
            where T : ToolCap<T, TArgs, TOutput>
        {
            JsonElement args = evidence.Spend(agent);
            return evidence.Tool.Decode(await agent.Caller.CallToolAsync(evidence.Tool.Name, args, ct).ConfigureAwait(false));
        }
    }

    /// <summary>
    /// Proof that a guardrail looked at these arguments for this agent. Only this assembly makes it; it is good for one
    /// call, and the arguments in it are the ones that were looked at.
    /// </summary>
    public sealed class GuardrailEvidence<T, TArgs, TOutput> where T : ToolCap<T, TArgs, TOutput>
    {
        private readonly object agent;
        private readonly JsonElement args;
        private int spent;

        internal GuardrailEvidence(ToolCap<T, TArgs, TOutput> tool, object agent, JsonElement args)
        {
            Tool = tool;
            this.agent = agent;
            this.args = args;
        }

        internal ToolCap<T, TArgs, TOutput> Tool { get; }

        internal JsonElement Spend(object by)
        {
            if (!ReferenceEquals(agent, by))
            {
                throw new McpException(McpErrorCode.PermissionDenied, "The evidence for " + Tool.Name + " was given to another agent.");
            }
            if (Interlocked.Exchange(ref spent, 1) != 0)
            {
                throw new McpException(McpErrorCode.PermissionDenied, "The evidence for " + Tool.Name + " has been used.");
            }
            return args;
        }
    }

    /// <summary>A decision of policy, not a failure of the protocol.</summary>
    public sealed class GuardrailBlocked
    {
        internal GuardrailBlocked(string tool, string reason)
        {
            Tool = tool;
            Reason = reason;
        }

        public string Tool { get; }

        public string Reason { get; }
    }

    /// <summary>Either evidence, or why there is none.</summary>
    public sealed class GuardrailOutcome<T, TArgs, TOutput> where T : ToolCap<T, TArgs, TOutput>
    {
        internal GuardrailOutcome(GuardrailEvidence<T, TArgs, TOutput>? evidence, GuardrailBlocked? blocked)
        {
            Evidence = evidence;
            Blocked = blocked;
        }

        public GuardrailEvidence<T, TArgs, TOutput>? Evidence { get; }

        public GuardrailBlocked? Blocked { get; }
    }

    /// <summary>What a callback gets to see beside the arguments.</summary>
    public sealed class CallbackContext
    {
        internal CallbackContext(string agent, string tool)
        {
            Agent = agent;
            Tool = tool;
        }

        public string Agent { get; }

        public string Tool { get; }
    }

    /// <summary>Runs an agent's callbacks, and alone gives out evidence.</summary>
    public sealed class CallbackRunner
    {
        private readonly object agent;
        private readonly string name;
        private readonly Dictionary<string, Func<CallbackContext, JsonElement, string?>> callbacks =
            new Dictionary<string, Func<CallbackContext, JsonElement, string?>>();

        internal CallbackRunner(object agent, string name)
        {
            this.agent = agent;
            this.name = name;
        }

        /// <summary>What runs before a tool; it returns a reason to block, or null.</summary>
        public CallbackRunner BeforeTool<T, TArgs, TOutput>(
            ToolCap<T, TArgs, TOutput> tool, Func<CallbackContext, JsonElement, string?> callback)
            where T : ToolCap<T, TArgs, TOutput>
        {
            callbacks[tool.Name] = callback;
            return this;
        }

        /// <summary>Without a callback for the tool there is no evidence: absence is not consent.</summary>
        public GuardrailOutcome<T, TArgs, TOutput> RunBeforeTool<T, TArgs, TOutput>(ToolCap<T, TArgs, TOutput> tool, TArgs args)
            where T : ToolCap<T, TArgs, TOutput>
        {
            if (!callbacks.TryGetValue(tool.Name, out Func<CallbackContext, JsonElement, string?>? callback))
            {
                return Blocked<T, TArgs, TOutput>(tool.Name, "No callback is registered for it.");
            }
            // Taken now, so that nobody can change the arguments after the callback has seen them.
            JsonElement shown = Wire.Element(args);
            string? reason = callback(new CallbackContext(name, tool.Name), shown);
            return reason is null
                ? new GuardrailOutcome<T, TArgs, TOutput>(new GuardrailEvidence<T, TArgs, TOutput>(tool, agent, shown), null)
                : Blocked<T, TArgs, TOutput>(tool.Name, reason);
        }

        private static GuardrailOutcome<T, TArgs, TOutput> Blocked<T, TArgs, TOutput>(string tool, string reason)
            where T : ToolCap<T, TArgs, TOutput> => new GuardrailOutcome<T, TArgs, TOutput>(null, new GuardrailBlocked(tool, reason));
    }

    /// <summary>Only for tools whose author said so when this was generated.</summary>
    public interface INoGuardrailRequired
    {
    }

    /// <summary>Says in so many words that no guardrail looks at a call.</summary>
    public static class UncheckedInvocation
    {
        public static GuardrailEvidence<T, TArgs, TOutput> For<TCaps, T, TArgs, TOutput>(
            Agent<TCaps> agent, ToolCap<T, TArgs, TOutput> tool, TArgs args)
            where T : ToolCap<T, TArgs, TOutput>, INoGuardrailRequired =>
            new GuardrailEvidence<T, TArgs, TOutput>(tool, agent, Wire.Element(args));
    }

    internal static class Wire
    {
        public static JsonElement Element<T>(T value)
        {
            using JsonDocument document = JsonDocument.Parse(JsonSerializer.SerializeToUtf8Bytes(value));
            return document.RootElement.Clone();
        }

        /// <summary>The typed part of a whole result.</summary>
        public static T Structured<T>(JsonElement result)
        {
            if (result.TryGetProperty("isError", out JsonElement failed) && failed.ValueKind == JsonValueKind.True)
            {
                throw new McpException(McpErrorCode.Internal, "The tool failed: " + result.GetRawText());
            }
            if (!result.TryGetProperty("structuredContent", out JsonElement content))
            {
                throw new McpException(McpErrorCode.Internal, "The result has no structured content.");
            }
            return JsonSerializer.Deserialize<T>(content.GetRawText())!;
        }

        public static object Whole(JsonElement result)
        {
            if (result.TryGetProperty("isError", out JsonElement failed) && failed.ValueKind == JsonValueKind.True)
            {
                throw new McpException(McpErrorCode.Internal, "The tool failed: " + result.GetRawText());
            }
            return result;
        }
    }
}
`;
}
