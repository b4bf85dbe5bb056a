#nullable enable
using System;
using System.Diagnostics;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Text;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Threading;
using System.Threading.Tasks;

namespace ServerMcp
{
    /// <summary>Reads lines of at most MaxMessageBytes characters.</summary>
    internal sealed class LineReader
    {
        private readonly TextReader reader;
        private readonly char[] buffer = new char[8192];
        // Kept between calls: a read that was cancelled continues where it stopped.
        private readonly StringBuilder line = new StringBuilder();
        private int next;
        private int end;

        public LineReader(Stream stream)
        {
            reader = new StreamReader(stream, new UTF8Encoding(false, true));
        }

        /// <summary>The next line, or null at the end of the stream.</summary>
        public async Task<string?> ReadAsync(CancellationToken ct)
        {
            while (true)
            {
                if (next == end)
                {
                    next = 0;
                    end = await reader.ReadAsync(buffer, ct).ConfigureAwait(false);
                    if (end == 0)
                    {
                        return line.Length == 0 ? null : Take();
                    }
                }
                int found = Array.IndexOf(buffer, '\n', next, end - next);
                int stop = found < 0 ? end : found;
                if (line.Length + stop - next > McpProtocol.MaxMessageBytes)
                {
                    throw new McpException(McpErrorCode.TooLarge, "a message is longer than " + McpProtocol.MaxMessageBytes + " bytes");
                }
                line.Append(buffer, next, stop - next);
                next = found < 0 ? end : found + 1;
                if (found >= 0)
                {
                    return Take();
                }
            }
        }

        private string Take()
        {
            string text = line.ToString().TrimEnd('\r');
            line.Clear();
            return text;
        }
    }

    /// <summary>A server that runs as a child process, one request at a time. The process ends with the transport.</summary>
    public sealed class StdioTransport : IMcpTransport
    {
        private readonly Process process;
        private readonly LineReader output;
        private readonly SemaphoreSlim turn = new SemaphoreSlim(1);
        private readonly TimeSpan timeout;
        private long last;

        public StdioTransport(ProcessStartInfo start, TimeSpan? timeout = null)
        {
            start.RedirectStandardInput = true;
            start.RedirectStandardOutput = true;
            start.UseShellExecute = false;
            this.timeout = timeout ?? McpProtocol.Timeout;
            process = Process.Start(start) ?? throw new McpException(McpErrorCode.Unavailable, "cannot start " + start.FileName);
            output = new LineReader(process.StandardOutput.BaseStream);
        }

        public Task<JsonElement> RequestAsync(string method, JsonObject parameters, CancellationToken ct) =>
            McpProtocol.WithinAsync(timeout, method, ct, async limit =>
            {
                await turn.WaitAsync(limit).ConfigureAwait(false);
                try
                {
                    JsonObject request = McpProtocol.Request(method, parameters);
                    request["id"] = ++last;
                    await SendAsync(request, limit).ConfigureAwait(false);
                    return McpProtocol.ResultOf(await AnswerAsync(last, limit).ConfigureAwait(false));
                }
                finally
                {
                    turn.Release();
                }
            });

        public async Task NotifyAsync(string method, JsonObject parameters, CancellationToken ct)
        {
            await turn.WaitAsync(ct).ConfigureAwait(false);
            try
            {
                await SendAsync(McpProtocol.Request(method, parameters), ct).ConfigureAwait(false);
            }
            finally
            {
                turn.Release();
            }
        }

        public async ValueTask DisposeAsync()
        {
            // A server ends when its input does.
            process.StandardInput.Close();
            using CancellationTokenSource limit = new CancellationTokenSource(TimeSpan.FromSeconds(2));
            try
            {
                await process.WaitForExitAsync(limit.Token).ConfigureAwait(false);
            }
            catch (OperationCanceledException)
            {
                process.Kill(true);
            }
            process.Dispose();
            turn.Dispose();
        }

        private async Task SendAsync(JsonObject message, CancellationToken ct)
        {
            byte[] line = Encoding.UTF8.GetBytes(message.ToJsonString() + "\n");
            await process.StandardInput.BaseStream.WriteAsync(line, ct).ConfigureAwait(false);
            await process.StandardInput.BaseStream.FlushAsync(ct).ConfigureAwait(false);
        }

        private async Task<JsonElement> AnswerAsync(long id, CancellationToken ct)
        {
            while (await output.ReadAsync(ct).ConfigureAwait(false) is string line)
            {
                JsonElement message = McpProtocol.Parse(line);
                if (McpProtocol.IsAnswerTo(message, id))
                {
                    return message;
                }
                if (message.TryGetProperty("method", out JsonElement method) && message.TryGetProperty("id", out JsonElement asked))
                {
                    McpException error = new McpException(McpErrorCode.MethodNotFound, method.ToString());
                    await SendAsync(McpProtocol.Failure(JsonNode.Parse(asked.GetRawText()), error), ct).ConfigureAwait(false);
                }
            }
            throw new McpException(McpErrorCode.Unavailable, "the server closed the connection");
        }
    }

    /// <summary>A server at an address, by streamable HTTP.</summary>
    public sealed class HttpTransport : IMcpTransport
    {
        private readonly HttpClient http;
        private readonly Uri address;
        private readonly TimeSpan timeout;
        private string? session;
        private bool agreed;
        private long last;

        /// <summary>The client carries what the server asks for, such as an Authorization header; it stays yours.</summary>
        public HttpTransport(HttpClient http, Uri address, TimeSpan? timeout = null)
        {
            this.http = http;
            this.address = address;
            this.timeout = timeout ?? McpProtocol.Timeout;
        }

        public Task<JsonElement> RequestAsync(string method, JsonObject parameters, CancellationToken ct) =>
            McpProtocol.WithinAsync(timeout, method, ct, async limit =>
            {
                long id = Interlocked.Increment(ref last);
                JsonObject request = McpProtocol.Request(method, parameters);
                request["id"] = id;
                using HttpResponseMessage response = await PostAsync(request, limit).ConfigureAwait(false);
                JsonElement result = McpProtocol.ResultOf(await ReadAsync(response, id, limit).ConfigureAwait(false));
                if (method == "initialize")
                {
                    session = response.Headers.TryGetValues("Mcp-Session-Id", out var ids) ? string.Concat(ids) : null;
                    agreed = true;
                }
                return result;
            });

        public async Task NotifyAsync(string method, JsonObject parameters, CancellationToken ct)
        {
            using HttpResponseMessage response = await PostAsync(McpProtocol.Request(method, parameters), ct).ConfigureAwait(false);
            if (!response.IsSuccessStatusCode)
            {
                throw new McpException(McpErrorCode.Unavailable, "the server answered " + method + " with status " + (int)response.StatusCode);
            }
        }

        public async ValueTask DisposeAsync()
        {
            if (session is null)
            {
                return;
            }
            using HttpRequestMessage request = new HttpRequestMessage(HttpMethod.Delete, address);
            AddHeaders(request);
            session = null;
            try
            {
                using HttpResponseMessage response = await http.SendAsync(request).ConfigureAwait(false);
            }
            catch (HttpRequestException)
            {
                // The server is gone, and its session with it.
            }
        }

        private async Task<HttpResponseMessage> PostAsync(JsonObject message, CancellationToken ct)
        {
            using HttpRequestMessage request = new HttpRequestMessage(HttpMethod.Post, address)
            {
                Content = new StringContent(message.ToJsonString(), Encoding.UTF8, "application/json"),
            };
            request.Headers.Accept.Add(new MediaTypeWithQualityHeaderValue("application/json"));
            request.Headers.Accept.Add(new MediaTypeWithQualityHeaderValue("text/event-stream"));
            AddHeaders(request);
            try
            {
                return await http.SendAsync(request, HttpCompletionOption.ResponseHeadersRead, ct).ConfigureAwait(false);
            }
            catch (HttpRequestException error)
            {
                throw new McpException(McpErrorCode.Unavailable, error.Message);
            }
        }

        private void AddHeaders(HttpRequestMessage request)
        {
            if (session is not null)
            {
                request.Headers.Add("Mcp-Session-Id", session);
            }
            if (agreed)
            {
                request.Headers.Add("MCP-Protocol-Version", McpProtocol.Version);
            }
        }

        private static async Task<JsonElement> ReadAsync(HttpResponseMessage response, long id, CancellationToken ct)
        {
            using Stream body = await response.Content.ReadAsStreamAsync(ct).ConfigureAwait(false);
            LineReader lines = new LineReader(body);
            bool stream = response.Content.Headers.ContentType?.MediaType == "text/event-stream";
            StringBuilder data = new StringBuilder();
            while (true)
            {
                string? line = await lines.ReadAsync(ct).ConfigureAwait(false);
                bool ended = line is null || (stream && line.Length == 0);
                if (ended && data.Length > 0)
                {
                    JsonElement message = McpProtocol.Parse(data.ToString());
                    if (!stream || McpProtocol.IsAnswerTo(message, id))
                    {
                        return message;
                    }
                }
                if (line is null)
                {
                    throw new McpException(McpErrorCode.Unavailable, "no answer in the response; status " + (int)response.StatusCode);
                }
                if (ended)
                {
                    data.Clear();
                }
                else if (!stream || line.StartsWith("data:", StringComparison.Ordinal))
                {
                    data.Append(stream ? line.Substring(5) : line).Append('\n');
                }
                if (data.Length > McpProtocol.MaxMessageBytes)
                {
                    throw new McpException(McpErrorCode.TooLarge, "the answer is longer than " + McpProtocol.MaxMessageBytes + " bytes");
                }
            }
        }
    }
}
