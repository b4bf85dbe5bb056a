#nullable enable
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Threading;
using System.Threading.Tasks;

namespace ServerMcp
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

        /// <summary>The tool as tools/list shows it, as JSON.</summary>
        public string Definition { get; set; } = "";
    }

    /// <summary>Whatever calls a tool by its name and brings back the whole result.</summary>
    public interface IToolCaller
    {
        Task<JsonElement> CallToolAsync(string name, JsonElement args, CancellationToken ct);
    }
}
