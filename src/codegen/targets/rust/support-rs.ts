// Parts of the generated crate that are the same for every server.

export const SUPPORT_RS = String.raw`//! What the generated types are read and written with.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{de, Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::check;

/// A value that may be null, which is not the same as one that may be absent: that is an Option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrNull<T> {
    Null,
    Value(T),
}

impl<T> OrNull<T> {
    pub fn as_option(&self) -> Option<&T> {
        match self {
            OrNull::Null => None,
            OrNull::Value(value) => Some(value),
        }
    }
}

impl<T> From<Option<T>> for OrNull<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(OrNull::Null, OrNull::Value)
    }
}

impl<T: Serialize> Serialize for OrNull<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_option().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrNull<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Anything but a plain Option: serde would take a missing field for null.
        struct Visit<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visit<T> {
            type Value = OrNull<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value or null")
            }
            fn visit_none<E: de::Error>(self) -> Result<OrNull<T>, E> {
                Ok(OrNull::Null)
            }
            fn visit_unit<E: de::Error>(self) -> Result<OrNull<T>, E> {
                Ok(OrNull::Null)
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<OrNull<T>, D::Error> {
                T::deserialize(deserializer).map(OrNull::Value)
            }
        }
        let value = Value::deserialize(deserializer)?;
        value.deserialize_option(Visit(std::marker::PhantomData)).map_err(de::Error::custom)
    }
}

/// No value at all: the schema accepts none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Never {}

impl Serialize for Never {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("no value fits here"))
    }
}

/// For fields that may be absent: null is not absence.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a value and holds it to its check.
pub(crate) fn read_checked<'de, D: Deserializer<'de>>(node: usize, deserializer: D) -> Result<Value, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    check::check(node, &value).map_err(de::Error::custom)?;
    check::normalize(&mut value);
    Ok(value)
}

pub(crate) fn fields_of(value: Value) -> Result<Map<String, Value>, serde_json::Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(de::Error::custom("must be an object")),
    }
}

pub(crate) fn required<T: DeserializeOwned>(fields: &mut Map<String, Value>, name: &str) -> Result<T, serde_json::Error> {
    match fields.remove(name) {
        Some(value) => serde_json::from_value(value).map_err(|error| de::Error::custom(format!("{name}: {error}"))),
        None => Err(de::Error::custom(format!("{name} is required"))),
    }
}

pub(crate) fn optional<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, serde_json::Error> {
    if fields.contains_key(name) {
        return required(fields, name).map(Some);
    }
    Ok(None)
}

pub(crate) fn others<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<BTreeMap<String, T>, serde_json::Error> {
    fields.into_iter().map(|(name, value)| Ok((name, serde_json::from_value(value)?))).collect()
}

pub(crate) fn put<T: Serialize>(fields: &mut Map<String, Value>, name: &str, value: &T) -> Result<(), serde_json::Error> {
    fields.insert(name.to_owned(), serde_json::to_value(value)?);
    Ok(())
}

pub(crate) fn put_some<T: Serialize>(
    fields: &mut Map<String, Value>,
    name: &str,
    value: &Option<T>,
) -> Result<(), serde_json::Error> {
    value.as_ref().map_or(Ok(()), |value| put(fields, name, value))
}

pub(crate) fn put_others<T: Serialize>(
    fields: &mut Map<String, Value>,
    others: &BTreeMap<String, T>,
) -> Result<(), serde_json::Error> {
    others.iter().try_for_each(|(name, value)| put(fields, name, value))
}

/// One side of a tool: nothing is read into it that its schema does not accept.
#[allow(unused_macros)]
macro_rules! checked {
    ($name:ident, $node:expr) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = $crate::support::read_checked($node, deserializer)?;
                $name::read(value).map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut value = self.write().map_err(serde::ser::Error::custom)?;
                $crate::check::normalize(&mut value);
                value.serialize(serializer)
            }
        }

        impl $name {
            /// What is wrong with this value by its schema, which says more than its type.
            pub fn check(&self) -> Result<(), $crate::McpError> {
                let value = self.write().map_err(|error| $crate::McpError::InvalidParams(error.to_string()))?;
                $crate::check::check($node, &value).map_err(|problem| $crate::McpError::InvalidParams(problem.to_string()))
            }
        }
    };
}

/// A union inside another type.
#[allow(unused_macros)]
macro_rules! chosen {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
                $name::read(value).map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let value = self.write().map_err(serde::ser::Error::custom)?;
                value.serialize(serializer)
            }
        }
    };
}

/// An enum whose values are not all texts.
#[allow(unused_macros)]
macro_rules! listed {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
                let found = $name::ALL.iter().find(|each| $crate::check::same(&each.to_value(), &value));
                found.copied().ok_or_else(|| serde::de::Error::custom("is none of the listed values"))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&self.to_value(), serializer)
            }
        }
    };
}
`;

export const ERROR_RS = String.raw`//! What can go wrong, with the codes of JSON-RPC.

use std::fmt;

use serde_json::{json, Value};

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum McpError {
    InvalidParams(String),
    ToolNotFound(String),
    Internal(String),
    PermissionDenied(String),
    /// The tool ran and said that it failed; this is its whole result.
    ToolFailed(Value),
    /// The other side answered with a code that has no name here.
    Other { code: i64, message: String },
    /// Nothing came back, or nothing that could be read.
    Transport(String),
}

impl McpError {
    pub fn code(&self) -> i64 {
        match self {
            McpError::InvalidParams(_) => -32602,
            McpError::ToolNotFound(_) => -32601,
            McpError::Internal(_) | McpError::ToolFailed(_) | McpError::Transport(_) => -32603,
            McpError::PermissionDenied(_) => -32000,
            McpError::Other { code, .. } => *code,
        }
    }

    pub fn from_code(code: i64, message: String) -> Self {
        match code {
            -32602 => McpError::InvalidParams(message),
            -32601 => McpError::ToolNotFound(message),
            -32603 => McpError::Internal(message),
            -32000 => McpError::PermissionDenied(message),
            _ => McpError::Other { code, message },
        }
    }

    /// The error object of a JSON-RPC answer.
    pub fn to_value(&self) -> Value {
        json!({ "code": self.code(), "message": self.to_string() })
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            McpError::InvalidParams(text) => write!(f, "Invalid params: {text}"),
            McpError::ToolNotFound(text) => write!(f, "Tool not found: {text}"),
            McpError::Internal(text) => write!(f, "Internal error: {text}"),
            McpError::PermissionDenied(text) => write!(f, "Permission denied: {text}"),
            McpError::ToolFailed(result) => write!(f, "The tool failed: {}", first_text(result)),
            McpError::Other { message, .. } => f.write_str(message),
            McpError::Transport(text) => write!(f, "No answer: {text}"),
        }
    }
}

fn first_text(result: &Value) -> &str {
    result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or("it gave no reason")
}

impl std::error::Error for McpError {}
`;

export const CAPABILITY_RS = String.raw`//! Capabilities as types: who may call what, and the proof that a guardrail has looked at it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value;

use crate::McpError;

/// An answer that is on its way. Boxed, so that traits with it can stand behind dyn.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, McpError>> + Send + 'a>>;

/// Traits that nobody outside of this crate can name, and so nobody else can implement what asks for them.
pub(crate) mod sealed {
    pub trait Tool {}
    pub trait Unguarded {}
}

/// A tool as a type: its name, what it takes and what it answers. Only this crate makes one: with a type of your own
/// that says it is some tool, an agent that holds less would send what it may not.
pub trait ToolCap: sealed::Tool + Sized + Send + Sync + 'static {
    const NAME: &'static str;
    type Args: Serialize + DeserializeOwned + Clone + Send + Sync + 'static;
    type Output: DeserializeOwned + Send + 'static;

    /// Arguments checked and ready to send.
    #[doc(hidden)]
    fn encode(args: &Self::Args) -> Result<Value, McpError>;
    /// The typed part of a whole result.
    #[doc(hidden)]
    fn decode(result: Value) -> Result<Self::Output, McpError>;
}

/// A set of capabilities that has the tool T in it. Sets are types: a marker of your own with one impl for each tool.
/// Saying more of a set than is held gains nothing: what an agent gets is the meet with its parent's.
pub trait HasCaps<T: ToolCap> {}

/// The meet of two sets: a tool is in it exactly when it is in both.
pub struct Both<A, B>(PhantomData<fn() -> (A, B)>);

impl<T: ToolCap, A: HasCaps<T>, B: HasCaps<T>> HasCaps<T> for Both<A, B> {}

/// The empty set.
pub struct Nothing(());

/// Whatever calls a tool by its name and brings back the whole result.
pub trait ToolCaller: Send + Sync {
    fn call_tool(&self, name: &'static str, args: Value) -> Answer<'_, Value>;
}

/// Somebody who may call the tools in C and no others. Id is a type of its own for every agent that must not be
/// mistaken for another; the number tells apart those that share one.
pub struct Agent<Id, C> {
    number: u64,
    caller: Arc<dyn ToolCaller>,
    marks: PhantomData<fn() -> (Id, C)>,
}

impl<Id, C> Agent<Id, C> {
    pub(crate) fn with(caller: Arc<dyn ToolCaller>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Agent { number: NEXT.fetch_add(1, Ordering::Relaxed), caller, marks: PhantomData }
    }

    /// An agent that gets what both it and this one may do: nobody can grant what they do not hold.
    pub fn delegate<ChildId, S>(&self) -> Agent<ChildId, Both<C, S>> {
        Agent::with(Arc::clone(&self.caller))
    }

    /// Callbacks of this very agent. A child has none of them; it runs its own.
    pub fn callbacks(&self) -> CallbackRunner<Id> {
        CallbackRunner { agent: self.number, callbacks: HashMap::new(), marks: PhantomData }
    }

    /// Calls a tool with the arguments that the token was given for. The token is spent by it.
    pub fn invoke<T: ToolCap>(&self, token: GuardrailToken<T, Id>) -> Answer<'_, T::Output>
    where
        C: HasCaps<T>,
    {
        Box::pin(async move {
            if token.agent != self.number {
                let message = format!("the token for {} was given to another agent", T::NAME);
                return Err(McpError::PermissionDenied(message));
            }
            let args = T::encode(&token.args)?;
            T::decode(self.caller.call_tool(T::NAME, args).await?)
        })
    }
}

/// The same as the method, in the form of a function.
pub fn invoke_tool<T: ToolCap, Id, C: HasCaps<T>>(
    agent: &Agent<Id, C>,
    token: GuardrailToken<T, Id>,
) -> Answer<'_, T::Output> {
    agent.invoke(token)
}

/// Proof that a guardrail looked at these arguments for this agent. It cannot be made elsewhere, copied or used twice,
/// and the arguments in it cannot be exchanged.
pub struct GuardrailToken<T: ToolCap, Id> {
    agent: u64,
    args: T::Args,
    marks: PhantomData<fn() -> Id>,
}

impl<T: ToolCap, Id> GuardrailToken<T, Id> {
    pub fn args(&self) -> &T::Args {
        &self.args
    }
}

impl<T: ToolCap, Id> fmt::Debug for GuardrailToken<T, Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardrailToken<{}> of agent {}", T::NAME, self.agent)
    }
}

/// A decision of policy, not a failure of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardrailBlocked {
    pub tool: &'static str,
    pub reason: String,
}

impl fmt::Display for GuardrailBlocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was blocked: {}", self.tool, self.reason)
    }
}

impl std::error::Error for GuardrailBlocked {}

/// What a callback gets to see beside the arguments.
#[derive(Clone, Debug)]
pub struct CallbackContext {
    pub agent: u64,
    pub tool: &'static str,
}

type Callback = Box<dyn Fn(&CallbackContext, &Value) -> Result<(), String> + Send + Sync>;

/// Runs an agent's callbacks, and alone gives out tokens.
pub struct CallbackRunner<Id> {
    agent: u64,
    callbacks: HashMap<&'static str, Callback>,
    marks: PhantomData<fn() -> Id>,
}

impl<Id> CallbackRunner<Id> {
    /// What runs before the tool T; it returns an error to block.
    pub fn before_tool<T: ToolCap>(
        mut self,
        callback: impl Fn(&CallbackContext, &Value) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.insert(T::NAME, Box::new(callback));
        self
    }

    /// Without a callback for the tool there is no token: absence is not consent.
    pub fn run_before_tool<T: ToolCap>(&self, args: T::Args) -> Result<GuardrailToken<T, Id>, GuardrailBlocked> {
        let blocked = |reason: String| GuardrailBlocked { tool: T::NAME, reason };
        let callback = self.callbacks.get(T::NAME).ok_or_else(|| blocked("no callback is registered for it".to_owned()))?;
        let shown = T::encode(&args).map_err(|error| blocked(error.to_string()))?;
        callback(&CallbackContext { agent: self.agent, tool: T::NAME }, &shown).map_err(blocked)?;
        Ok(GuardrailToken { agent: self.agent, args, marks: PhantomData })
    }
}

/// Only for tools whose author said so when this was generated.
pub trait NoGuardrailRequired: ToolCap + sealed::Unguarded {}

/// Says in so many words that no guardrail looks at a call.
pub struct UncheckedInvocation<T: NoGuardrailRequired>(PhantomData<fn() -> T>);

impl<T: NoGuardrailRequired> UncheckedInvocation<T> {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        UncheckedInvocation(PhantomData)
    }

    pub fn token<Id, C>(self, agent: &Agent<Id, C>, args: T::Args) -> GuardrailToken<T, Id> {
        GuardrailToken { agent: agent.number, args, marks: PhantomData }
    }
}
`;

export const CLIENT_RS = String.raw`//! A client with the standard library alone: it starts a server as a process and speaks MCP with it, line by line.

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
use crate::McpError;

pub const PROTOCOL_VERSION: &str = "2025-11-25";
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
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

/// Ends with the output of the process, at the first message that cannot be read, or when nobody listens any more.
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
                        let error = json!({ "code": -32601, "message": format!("{asked} is not offered here") });
                        pipes.send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                    }
                    continue;
                }
                if message.get("id").and_then(Value::as_u64) != Some(id) {
                    continue;
                }
                if let Some(error) = message.get("error") {
                    let code = error.get("code").and_then(Value::as_i64).unwrap_or(-32603);
                    let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
                    return Err(McpError::from_code(code, text.to_owned()));
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
`;
