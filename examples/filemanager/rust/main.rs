//! FileManager from end to end in Rust.
//! `file-manager handlers <folder>` runs the handlers here; `file-manager client <command> <arguments…>` starts a server
//! and talks to it; `file-manager serve <folder>` is an MCP server on standard input and output.

use std::process::Command;
use std::sync::{Arc, RwLock};

use file_manager::client::{block_on, Handshake, StdioTransport};
use file_manager::handlers::ServerState;
use file_manager::server::{dispatch, serve_stdio, Server};
use file_manager::tools::{root_agent, CanReadFile, CanWriteFile, ReadFile, WriteFile};
use file_manager::{HasCaps, McpError, ReadFileArgs, ReadFileArgsEncoding, WriteFileArgs};
use serde_json::json;

struct Owner;
struct Reader;
/// What the reader may do.
struct OnlyReading;
impl HasCaps<ReadFile> for OnlyReading {}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["handlers", root] => block_on(handlers(&server(root))),
        ["client", program, ref rest @ ..] => block_on(client(Command::new(program).args(rest))),
        ["serve", root] => serve_stdio(&server(root)).expect("the pipes are open"),
        _ => panic!("handlers <folder>, client <command> <arguments…>, or serve <folder>"),
    }
}

fn server(root: &str) -> Server {
    Server::new(Arc::new(RwLock::new(ServerState { permitted_root: root.into() })))
}

async fn handlers(server: &Server) {
    let written = server.write_file(WriteFileArgs::new("r.txt".to_owned(), "grüße".to_owned())).await.unwrap();
    assert_eq!(written.bytes_written, 7);
    let mut args = ReadFileArgs::new("r.txt".to_owned());
    args.encoding = Some(ReadFileArgsEncoding::Base64);
    assert_eq!(server.read_file(args).await.unwrap().content, "Z3LDvMOfZQ==");
    let outside = server.read_file(ReadFileArgs::new("../../etc/passwd".to_owned())).await;
    assert!(matches!(outside, Err(McpError::PermissionDenied(_))));
    let answer = dispatch(server, "readFile", json!({ "path": "r.txt" })).await.unwrap();
    // As the schema names them, and without what is absent.
    assert_eq!(answer["structuredContent"], json!({ "content": "grüße", "size_bytes": 7 }));
    let refused = dispatch(server, "readFile", json!({ "path": "r.txt", "encoding": null })).await;
    assert!(matches!(refused, Err(McpError::InvalidParams(_))));
    println!("Rust handlers: ok");
}

async fn client(command: &mut Command) {
    let transport = StdioTransport::start(command).unwrap();
    let client = Handshake::new(transport).initialize("file-manager", "1.0.0").await.unwrap();
    let written = client.write_file(WriteFileArgs::new("c.txt".to_owned(), "hello".to_owned())).await.unwrap();
    assert_eq!(written.bytes_written, 5);

    // An owner with every tool and a guardrail of its own; a reader that can only read, with its own.
    let owner = root_agent::<Owner>(Arc::new(client));
    let guard = owner.callbacks().before_tool::<WriteFile>(|_, args| match args["path"].as_str() {
        Some(path) if path.ends_with(".txt") => Ok(()),
        _ => Err("only texts".to_owned()),
    });
    let token = guard.run_before_tool::<WriteFile>(WriteFileArgs::new("c.txt".to_owned(), "bye".to_owned())).unwrap();
    assert_eq!(owner.invoke(token).await.unwrap().bytes_written, 3);
    let blocked = guard.run_before_tool::<WriteFile>(WriteFileArgs::new("c.sh".to_owned(), String::new()));
    assert_eq!(blocked.unwrap_err().reason, "only texts");

    let reader = owner.delegate::<Reader, OnlyReading>();
    let eyes = reader.callbacks().before_tool::<ReadFile>(|_, _| Ok(()));
    let token = eyes.run_before_tool::<ReadFile>(ReadFileArgs::new("c.txt".to_owned())).unwrap();
    let read = reader.invoke(token).await.unwrap();
    assert_eq!((read.content.as_str(), read.size_bytes), ("bye", Some(3)));

    // The same kind of agent, but another one: its token is no good here.
    let twin = owner.delegate::<Reader, OnlyReading>();
    let theirs = twin.callbacks().before_tool::<ReadFile>(|_, _| Ok(()));
    let token = theirs.run_before_tool::<ReadFile>(ReadFileArgs::new("c.txt".to_owned())).unwrap();
    assert!(matches!(reader.invoke(token).await, Err(McpError::PermissionDenied(_))));
    println!("Rust client: ok");
}
