// FileManager from end to end in C#: a server on standard input and output or by HTTP, and a client with capabilities
// and guardrail evidence.
//   serve <directory>             serves the directory on standard input and output
//   http <directory>              serves it by HTTP on a free port of this machine, and prints the address
//   client <command> <arguments>  starts a server and uses it
//   client <address>              uses a server at an address
#nullable enable
using System;
using System.Diagnostics;
using System.Linq;
using System.Net.Http;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;

namespace FileManagerMcp
{
    /// <summary>What a reader may do. The server's own set extends it, so an owner may hand it on.</summary>
    public interface IReaderCaps : IHasCap<ReadFile>
    {
    }

    public partial interface IFileManagerAll : IReaderCaps
    {
    }

    public static class FileManagerProgram
    {
        public static async Task<int> Main(string[] args)
        {
            switch (args)
            {
                case ["serve", string root]:
                    ServiceCollection services = new ServiceCollection();
                    Register(services, root);
                    await using (ServiceProvider provider = services.BuildServiceProvider())
                    {
                        await provider.RunMcpStdioAsync();
                    }
                    return 0;
                case ["http", string root]:
                    await ServeHttpAsync(root);
                    return 0;
                case ["client", string target, .. string[] rest]:
                    using (HttpClient http = new HttpClient())
                    {
                        IMcpTransport transport = Uri.TryCreate(target, UriKind.Absolute, out Uri? address) && address.Scheme == "http"
                            ? new HttpTransport(http, address)
                            : new StdioTransport(new ProcessStartInfo(target, rest));
                        // handshake.CallToolAsync does not compile: a tool is called in a session only.
                        McpHandshake handshake = new McpHandshake(transport);
                        await using McpSession session = await handshake.InitializeAsync("file-manager", "1.0.0");
                        Console.WriteLine("C# client: " + await UseAsync(session));
                    }
                    return 0;
                default:
                    Console.Error.WriteLine("serve <directory>, http <directory>, client <command> <arguments>, or client <address>");
                    return 64;
            }
        }

        public static void Register(IServiceCollection services, string root)
        {
            services.AddScoped<IFileSystemService>(_ => new SandboxedFileSystemService(root));
            services.AddFileManager();
        }

        private static async Task ServeHttpAsync(string root)
        {
            WebApplicationBuilder builder = WebApplication.CreateBuilder();
            builder.Logging.ClearProviders();
            Register(builder.Services, root);
            await using WebApplication app = builder.Build();
            app.Urls.Add("http://127.0.0.1:0");
            app.MapMcp("/mcp");
            await app.StartAsync();
            Console.WriteLine(app.Urls.First() + "/mcp");
            await app.WaitForShutdownAsync();
        }

        private static async Task<string> UseAsync(IToolCaller caller, CancellationToken ct = default)
        {
            FileManagerClient files = new FileManagerClient(caller);
            Check((await files.WriteFileAsync(new WriteFileArgs("c.txt", "grüße"), ct)).BytesWritten == 7, "writes bytes");
            ReadFileArgs inBase64 = new ReadFileArgs("c.txt", ReadFileArgsEncoding.Base64);
            Check((await files.ReadFileAsync(inBase64, ct)).Content == "Z3LDvMOfZQ==", "reads base64");
            try
            {
                await files.ReadFileAsync(new ReadFileArgs("../../etc/passwd"), ct);
                return "read a file outside of the root";
            }
            catch (McpException)
            {
                // The server denies it.
            }

            Agent<IFileManagerAll> owner = FileManagerCapabilities.Root("owner", caller);
            CallbackRunner guard = owner.Callbacks().BeforeTool(
                WriteFile.Cap,
                (context, args) => args.GetProperty("path").GetString()!.EndsWith(".txt", StringComparison.Ordinal) ? null : "only texts");
            Check(guard.RunBeforeTool(WriteFile.Cap, new WriteFileArgs("c.sh", "")).Blocked?.Reason == "only texts", "blocks");
            var written = guard.RunBeforeTool(WriteFile.Cap, new WriteFileArgs("c.txt", "hello"));
            WriteFileResult result = await owner.InvokeTool(written.Evidence!, ct);

            Agent<IReaderCaps> reader = Agents.DelegateAs<IFileManagerAll, IReaderCaps>(owner, "reader");
            var read = reader.Callbacks().BeforeTool(ReadFile.Cap, (_, _) => null).RunBeforeTool(ReadFile.Cap, new ReadFileArgs("c.txt"));
            ReadFileResult content = await reader.InvokeTool(read.Evidence!, ct);
            // reader.InvokeTool(written.Evidence) does not compile: IReaderCaps has no WriteFile.
            return content.Content == "hello" && result.BytesWritten == 5 ? "ok" : "read " + content.Content;
        }

        private static void Check(bool holds, string what)
        {
            if (!holds)
            {
                throw new InvalidOperationException("the example no longer " + what);
            }
        }
    }
}
