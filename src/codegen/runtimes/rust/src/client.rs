//! A client with the standard library alone: it starts a server as a process and speaks MCP with it, line by line.

use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use serde_json::{json, Value};

use crate::capability::{Answer, ToolCaller};
use crate::error_table::ErrorType;
use crate::McpError;

pub const PROTOCOL_VERSION: &str = "2025-11-25";
pub(crate) const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
/// Messages that may wait to be looked at.
const MAX_WAITING: usize = 256;
/// How long an answer may take, unless with_timeout says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// One request at a time. Implement it for whatever your program connects with.
pub trait Transport: Send + Sync {
    fn request<'a>(&'a self, method: &'a str, params: Value) -> Answer<'a, Value>;
    fn notify<'a>(&'a self, method: &'a str, params: Value) -> Answer<'a, ()>;
}

/// Connected, but nothing is agreed yet. There is no way to call a tool in this phase.
pub struct Handshake<T: Transport>(T);

impl<T: Transport + 'static> Handshake<T> {
    pub fn new(transport: T) -> Self {
        Handshake(transport)
    }

    pub async fn initialize(self, name: &str, version: &str) -> Result<Client, McpError> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": { "name": name, "version": version },
        });
        let info = self.0.request("initialize", params).await?;
        self.0.notify("notifications/initialized", json!({})).await?;
        Ok(Client { transport: Arc::new(self.0), info })
    }
}

/// Ready for calls.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    info: Value,
}

impl Client {
    /// What the server said about itself.
    pub fn info(&self) -> &Value {
        &self.info
    }
}

impl ToolCaller for Client {
    fn call_tool(&self, name: &'static str, args: Value) -> Answer<'_, Value> {
        Box::pin(async move {
            let params = json!({ "name": name, "arguments": args });
            let result = self.transport.request("tools/call", params).await?;
            if result.get("isError").and_then(Value::as_bool) == Some(true) {
                return Err(McpError::ToolFailed(result));
            }
            Ok(result)
        })
    }
}

/// A server that runs as a child process and ends with this value.
pub struct StdioTransport {
    pipes: Mutex<Pipes>,
    timeout: Duration,
}

struct Pipes {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Result<Value, McpError>>,
    next: u64,
}

impl StdioTransport {
    pub fn start(command: &mut Command) -> Result<Self, McpError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(broken)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(McpError::Transport("the process has no pipes".to_owned()));
        };
        let (sender, messages) = sync_channel(MAX_WAITING);
        thread::spawn(move || read_all(output, &sender));
        let pipes = Mutex::new(Pipes { child, input: Some(input), output: messages, next: 1 });
        Ok(StdioTransport { pipes, timeout: DEFAULT_TIMEOUT })
    }

    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Ends with the output of the process, at the first message that cannot be read, or when the receiver is gone.
fn read_all(output: ChildStdout, sender: &SyncSender<Result<Value, McpError>>) {
    let mut output = BufReader::new(output);
    loop {
        let message = read_message(&mut output);
        let last = message.is_err();
        if sender.send(message).is_err() || last {
            return;
        }
    }
}

fn read_message(output: &mut BufReader<ChildStdout>) -> Result<Value, McpError> {
    let mut line = Vec::new();
    let read = output.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(broken)?;
    if read == 0 {
        return Err(McpError::Transport("the server has gone".to_owned()));
    }
    if !line.ends_with(b"\n") && read as u64 >= MAX_LINE_BYTES {
        return Err(McpError::Transport(format!("a message is longer than {MAX_LINE_BYTES} bytes")));
    }
    serde_json::from_slice(&line).map_err(|error| McpError::Transport(error.to_string()))
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        let pipes = self.pipes.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The end of its input is how a server is told to go.
        drop(pipes.input.take());
        let _ = pipes.child.kill();
        let _ = pipes.child.wait();
    }
}

impl Transport for StdioTransport {
    fn request<'a>(&'a self, method: &'a str, params: Value) -> Answer<'a, Value> {
        Box::pin(async move {
            let mut pipes = self.pipes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let id = pipes.next;
            pipes.next += 1;
            pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
            let deadline = Instant::now() + self.timeout;
            loop {
                let message = pipes.receive(deadline)?;
                if let Some(asked) = message.get("method") {
                    if let Some(id) = message.get("id") {
                        let error = McpError::new(ErrorType::MethodNotFound, asked.to_string()).to_value();
                        pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                    }
                    continue;
                }
                if message.get("id").and_then(Value::as_u64) != Some(id) {
                    continue;
                }
                if let Some(error) = message.get("error") {
                    return Err(McpError::from_wire(error));
                }
                return Ok(message.get("result").cloned().unwrap_or(Value::Null));
            }
        })
    }

    fn notify<'a>(&'a self, method: &'a str, params: Value) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut pipes = self.pipes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            pipes.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
        })
    }
}

impl Pipes {
    fn send(&mut self, message: &Value) -> Result<(), McpError> {
        let input = self.input.as_mut().ok_or_else(|| McpError::Transport("the connection is closed".to_owned()))?;
        writeln!(input, "{message}").and_then(|()| input.flush()).map_err(broken)
    }

    fn receive(&mut self, deadline: Instant) -> Result<Value, McpError> {
        match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => Err(McpError::Transport("no answer in time".to_owned())),
            Err(RecvTimeoutError::Disconnected) => Err(McpError::Transport("the server has gone".to_owned())),
        }
    }
}

fn broken(error: std::io::Error) -> McpError {
    McpError::Transport(error.to_string())
}

/// Waits for a future on this thread, for programs without a runtime of their own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
