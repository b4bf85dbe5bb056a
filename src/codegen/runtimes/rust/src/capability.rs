//! Capabilities as types: who may call what, and the proof that a guardrail has looked at it.

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

/// Traits that cannot be named outside of this crate, so that what asks for them cannot be implemented outside of it.
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

/// A caller of the tools in C and no others. Id is a type of its own for every agent that must not be
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

    /// An agent that gets what both it and this one may do: no agent can grant what it does not hold.
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

/// Proof that a guardrail looked at these arguments for this agent. It cannot be made by other code, copied or used twice,
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
        let callback =
            self.callbacks.get(T::NAME).ok_or_else(|| blocked("no callback is registered for it".to_owned()))?;
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
