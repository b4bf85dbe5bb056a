#nullable enable
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace ServerMcp
{
    /// <summary>A tool as a type. It cannot be made outside this assembly.</summary>
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

    /// <summary>A caller of the tools in TCaps and no others. Agents are distinguished by who they are, not by name.</summary>
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
                throw new McpException(McpErrorCode.AuthorizationError, "The evidence for " + Tool.Name + " was given to another agent.");
            }
            if (Interlocked.Exchange(ref spent, 1) != 0)
            {
                throw new McpException(McpErrorCode.AuthorizationError, "The evidence for " + Tool.Name + " has been used.");
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
            // Taken now, so that the arguments cannot change after the callback has seen them.
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
            Whole(result);
            if (!result.TryGetProperty("structuredContent", out JsonElement content))
            {
                throw new McpException(McpErrorCode.OutputInvalid, "the result has no structured content");
            }
            try
            {
                return content.Deserialize<T>()!;
            }
            catch (JsonException error)
            {
                throw new McpException(McpErrorCode.OutputInvalid, error.Message);
            }
        }

        public static object Whole(JsonElement result)
        {
            if (result.TryGetProperty("isError", out JsonElement failed) && failed.ValueKind == JsonValueKind.True)
            {
                throw McpException.FromResult(result);
            }
            return result;
        }
    }
}
