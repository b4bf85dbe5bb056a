// The handlers of FileManager. `portcullis gen csharp` wrote the records and the skeleton of this file.
#nullable enable
using System;
using System.IO;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace FileManagerMcp
{
    /// <summary>Scoped: one for each call, with the root that belongs to its caller.</summary>
    public interface IFileSystemService
    {
        Task<byte[]> ReadAsync(string path, CancellationToken ct);

        Task<long> WriteAsync(string path, byte[] content, bool append, CancellationToken ct);
    }

    public sealed class SandboxedFileSystemService : IFileSystemService
    {
        private readonly string root;

        public SandboxedFileSystemService(string permittedRoot)
        {
            root = Path.GetFullPath(permittedRoot);
        }

        public async Task<byte[]> ReadAsync(string path, CancellationToken ct) =>
            await File.ReadAllBytesAsync(Confined(path), ct).ConfigureAwait(false);

        public async Task<long> WriteAsync(string path, byte[] content, bool append, CancellationToken ct)
        {
            using FileStream file = new FileStream(Confined(path), append ? FileMode.Append : FileMode.Create, FileAccess.Write);
            await file.WriteAsync(content, 0, content.Length, ct).ConfigureAwait(false);
            return content.Length;
        }

        /// <summary>The place of a path, which must lie below the root, with no link on the way.</summary>
        private string Confined(string path)
        {
            string place = Path.GetFullPath(Path.Combine(root, path));
            if (!place.StartsWith(root + Path.DirectorySeparatorChar, StringComparison.Ordinal))
            {
                throw new McpException(McpErrorCode.AuthorizationError, path);
            }
            for (string? at = place; at is not null && at.Length > root.Length; at = Path.GetDirectoryName(at))
            {
                FileInfo found = new FileInfo(at);
                bool isThere = found.Exists || Directory.Exists(at);
                if (isThere && (File.GetAttributes(at) & FileAttributes.ReparsePoint) != 0)
                {
                    throw new McpException(McpErrorCode.AuthorizationError, path);
                }
            }
            return place;
        }
    }

    public sealed class FileManagerHandlers : IFileManagerCaps
    {
        private readonly IFileSystemService fs;

        public FileManagerHandlers(IFileSystemService fs)
        {
            this.fs = fs;
        }

        public async Task<ReadFileResult> ReadFileAsync(ReadFileArgs args, CancellationToken ct = default)
        {
            byte[] bytes = await fs.ReadAsync(args.Path, ct).ConfigureAwait(false);
            string content = args.Encoding == ReadFileArgsEncoding.Base64
                ? Convert.ToBase64String(bytes)
                : Encoding.UTF8.GetString(bytes);
            return new ReadFileResult(content, bytes.Length);
        }

        public async Task<WriteFileResult> WriteFileAsync(WriteFileArgs args, CancellationToken ct = default)
        {
            byte[] bytes = Encoding.UTF8.GetBytes(args.Content);
            return new WriteFileResult(await fs.WriteAsync(args.Path, bytes, args.Append ?? false, ct).ConfigureAwait(false));
        }
    }
}
