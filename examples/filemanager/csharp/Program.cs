// FileManager with capabilities and guardrail evidence, in C#. Compiled by the tests; run it with `dotnet run`.
#nullable enable
using System;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.Extensions.DependencyInjection;

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
        public static void Register(IServiceCollection services, string root)
        {
            services.AddScoped<IFileSystemService>(_ => new SandboxedFileSystemService(root));
            services.AddFileManager();
        }

        public static async Task<string> UseAsync(IToolCaller caller, CancellationToken ct = default)
        {
            Agent<IFileManagerAll> owner = FileManagerCapabilities.Root("owner", caller);
            CallbackRunner guard = owner.Callbacks().BeforeTool(
                WriteFile.Cap,
                (context, args) => args.GetProperty("path").GetString()!.EndsWith(".txt", StringComparison.Ordinal) ? null : "only texts");
            var written = guard.RunBeforeTool(WriteFile.Cap, new WriteFileArgs("c.txt", "hello"));
            if (written.Evidence is null)
            {
                return written.Blocked!.Reason;
            }
            WriteFileResult result = await owner.InvokeTool(written.Evidence, ct).ConfigureAwait(false);

            Agent<IReaderCaps> reader = Agents.DelegateAs<IFileManagerAll, IReaderCaps>(owner, "reader");
            var read = reader.Callbacks().BeforeTool(ReadFile.Cap, (_, _) => null).RunBeforeTool(ReadFile.Cap, new ReadFileArgs("c.txt"));
            ReadFileResult content = await reader.InvokeTool(read.Evidence!, ct).ConfigureAwait(false);
            // reader.InvokeTool(written.Evidence) does not compile: IReaderCaps has no WriteFile.
            return content.Content + " " + result.BytesWritten;
        }
    }
}
