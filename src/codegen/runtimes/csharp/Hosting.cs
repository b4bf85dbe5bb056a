#nullable enable
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json.Nodes;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Routing;
using Microsoft.Extensions.DependencyInjection;

namespace ServerMcp
{
    /// <summary>Adds tools to a server.</summary>
    public sealed class McpServerBuilder
    {
        private readonly IServiceCollection services;

        internal McpServerBuilder(IServiceCollection services)
        {
            this.services = services;
        }

        /// <summary>Serves every method of T that has McpToolAttribute. Each call gets an instance of its own.</summary>
        public McpServerBuilder WithTool<T>() where T : class
        {
            services.AddScoped<T>();
            int found = 0;
            foreach (MethodInfo method in typeof(T).GetMethods())
            {
                if (method.GetCustomAttribute<McpToolAttribute>() is McpToolAttribute about)
                {
                    services.AddSingleton(new McpServerTool(typeof(T), method, about));
                    found++;
                }
            }
            return found > 0 ? this : throw new ArgumentException(typeof(T).Name + " has no method with McpToolAttribute");
        }
    }

    public static class McpHosting
    {
        public static McpServerBuilder AddMcpServer(this IServiceCollection services, string name, string version)
        {
            services.AddSingleton(provider => new McpServer(
                name, version, provider.GetServices<McpServerTool>(), provider.GetRequiredService<IServiceScopeFactory>()));
            services.AddSingleton<McpHttpSessions>();
            return new McpServerBuilder(services);
        }

        /// <summary>Serves on standard input and output until the input ends. Standard output carries messages only.</summary>
        public static Task RunMcpStdioAsync(this IServiceProvider services, CancellationToken ct = default) =>
            services.RunMcpAsync(Console.OpenStandardInput(), Console.OpenStandardOutput(), ct);

        /// <summary>Serves one connection, message by message, until the input ends.</summary>
        public static async Task RunMcpAsync(this IServiceProvider services, Stream input, Stream output, CancellationToken ct = default)
        {
            McpConnection connection = new McpConnection(services.GetRequiredService<McpServer>());
            LineReader lines = new LineReader(input);
            while (await lines.ReadAsync(ct).ConfigureAwait(false) is string line)
            {
                if (line.Length > 0 && await connection.AnswerAsync(line, ct).ConfigureAwait(false) is JsonObject answer)
                {
                    await output.WriteAsync(Encoding.UTF8.GetBytes(answer.ToJsonString() + "\n"), ct).ConfigureAwait(false);
                    await output.FlushAsync(ct).ConfigureAwait(false);
                }
            }
        }

        /// <summary>Serves streamable HTTP at a path. Who may call it is the program's to say: add RequireAuthorization().</summary>
        public static IEndpointConventionBuilder MapMcp(this IEndpointRouteBuilder endpoints, string pattern = "/mcp")
        {
            McpHttpSessions sessions = endpoints.ServiceProvider.GetRequiredService<McpHttpSessions>();
            return endpoints.MapMethods(pattern, new[] { "POST", "DELETE" }, new RequestDelegate(sessions.HandleAsync));
        }
    }

    /// <summary>The connections of HTTP callers, by the session id that initialize gave them.</summary>
    internal sealed class McpHttpSessions
    {
        private const int MaxSessions = 1000;
        private static readonly TimeSpan Idle = TimeSpan.FromMinutes(30);
        private readonly ConcurrentDictionary<string, Session> sessions = new ConcurrentDictionary<string, Session>();
        private readonly McpServer server;

        public McpHttpSessions(McpServer server)
        {
            this.server = server;
        }

        public async Task HandleAsync(HttpContext context)
        {
            try
            {
                RefuseOtherOrigins(context.Request);
                string? id = context.Request.Headers["Mcp-Session-Id"];
                if (context.Request.Method == "DELETE")
                {
                    context.Response.StatusCode = id is not null && sessions.TryRemove(id, out _) ? 204 : 404;
                    return;
                }
                string text = await BodyAsync(context.Request).ConfigureAwait(false);
                bool starts = id is null;
                Session session = starts ? new Session(new McpConnection(server)) : Find(id!);
                session.Used = DateTime.UtcNow;
                JsonObject? answer = await session.Connection.AnswerAsync(text, context.RequestAborted).ConfigureAwait(false);
                if (starts && answer?["result"] is JsonObject result && result.ContainsKey("protocolVersion"))
                {
                    context.Response.Headers["Mcp-Session-Id"] = Keep(session);
                }
                await WriteAsync(context.Response, answer is null ? 202 : 200, answer).ConfigureAwait(false);
            }
            catch (McpException error)
            {
                await WriteAsync(context.Response, error.Row.HttpStatus, McpProtocol.Failure(null, error)).ConfigureAwait(false);
            }
        }

        /// <summary>A page in a browser may reach a local server by a name of its own; its Origin then is not our host.</summary>
        private static void RefuseOtherOrigins(HttpRequest request)
        {
            string? origin = request.Headers["Origin"];
            if (!string.IsNullOrEmpty(origin) && !(Uri.TryCreate(origin, UriKind.Absolute, out Uri? from) && from.IsLoopback))
            {
                throw new McpException(McpErrorCode.AuthorizationError, "origin " + origin + " is not allowed");
            }
        }

        private Session Find(string id) =>
            sessions.TryGetValue(id, out Session? session) ? session : throw new McpException(McpErrorCode.SessionNotFound, "initialize again");

        private string Keep(Session session)
        {
            foreach (KeyValuePair<string, Session> each in sessions)
            {
                if (DateTime.UtcNow - each.Value.Used > Idle)
                {
                    sessions.TryRemove(each.Key, out _);
                }
            }
            if (sessions.Count >= MaxSessions)
            {
                throw new McpException(McpErrorCode.TooMany, "more than " + MaxSessions + " sessions");
            }
            string id = Convert.ToHexString(RandomNumberGenerator.GetBytes(16));
            sessions[id] = session;
            return id;
        }

        private static async Task<string> BodyAsync(HttpRequest request)
        {
            using MemoryStream body = new MemoryStream();
            byte[] buffer = new byte[16384];
            int read;
            while ((read = await request.Body.ReadAsync(buffer, request.HttpContext.RequestAborted).ConfigureAwait(false)) > 0)
            {
                if (body.Length + read > McpProtocol.MaxMessageBytes)
                {
                    throw new McpException(McpErrorCode.TooLarge, "the body is longer than " + McpProtocol.MaxMessageBytes + " bytes");
                }
                body.Write(buffer, 0, read);
            }
            return Encoding.UTF8.GetString(body.GetBuffer(), 0, (int)body.Length);
        }

        private static async Task WriteAsync(HttpResponse response, int status, JsonObject? answer)
        {
            response.StatusCode = status;
            if (answer is not null)
            {
                response.ContentType = "application/json";
                await response.WriteAsync(answer.ToJsonString()).ConfigureAwait(false);
            }
        }

        private sealed class Session
        {
            public Session(McpConnection connection)
            {
                Connection = connection;
                Used = DateTime.UtcNow;
            }

            public McpConnection Connection { get; }

            public DateTime Used { get; set; }
        }
    }
}
