//! What can go wrong. Each error has a row in the table of errors.

use std::fmt;

use serde_json::{json, Value};

use crate::error_table::ErrorType;

/// A row of the table of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// The stable name, as in `error.data.code`.
    pub code: &'static str,
    /// The JSON-RPC code of revisions up to 2025-11-25.
    pub legacy: i64,
    /// The JSON-RPC code since 2026-07-28.
    pub modern: i64,
    pub http: u16,
    /// Whether the same call can succeed later, unchanged.
    pub retryable: bool,
    /// Whether a model can act on it: the answer to tools/call is then a result with `isError`.
    pub for_model: bool,
    pub message: &'static str,
}

impl ErrorType {
    /// The error of this name (`TOOL_NOT_FOUND`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.row().code == name)
    }

    /// The first error in the table with this JSON-RPC code.
    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.row().legacy == code || error.row().modern == code)
    }
}

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum McpError {
    /// Arguments that the schema does not accept.
    InvalidParams(String),
    ToolNotFound(String),
    Internal(String),
    PermissionDenied(String),
    /// The tool ran and failed; this is its whole result.
    ToolFailed(Value),
    /// Any other error of the table.
    Reported {
        error: ErrorType,
        message: String,
    },
    /// An error with a code that is not in the table.
    Other {
        code: i64,
        message: String,
    },
    /// The server did not answer, or its answer cannot be read.
    Transport(String),
}

impl McpError {
    /// The row of this error, where it has one.
    pub fn error_type(&self) -> Option<ErrorType> {
        match self {
            McpError::InvalidParams(_) => Some(ErrorType::ValidationError),
            McpError::ToolNotFound(_) => Some(ErrorType::ToolNotFound),
            McpError::Internal(_) => Some(ErrorType::InternalError),
            McpError::PermissionDenied(_) => Some(ErrorType::AuthorizationError),
            McpError::ToolFailed(_) => Some(ErrorType::ToolExecution),
            McpError::Reported { error, .. } => Some(*error),
            McpError::Other { .. } => None,
            McpError::Transport(_) => Some(ErrorType::Unavailable),
        }
    }

    /// The JSON-RPC code in the revision that this code speaks.
    pub fn code(&self) -> i64 {
        match (self, self.error_type()) {
            (McpError::Other { code, .. }, _) => *code,
            (_, Some(error)) => error.row().legacy,
            (_, None) => ErrorType::InternalError.row().legacy,
        }
    }

    pub fn new(error: ErrorType, message: String) -> Self {
        match error {
            ErrorType::ValidationError => McpError::InvalidParams(message),
            ErrorType::ToolNotFound => McpError::ToolNotFound(message),
            ErrorType::InternalError => McpError::Internal(message),
            ErrorType::AuthorizationError => McpError::PermissionDenied(message),
            _ => McpError::Reported { error, message },
        }
    }

    /// Reads the error object of a JSON-RPC answer: by its name, or by its code where it has none.
    pub fn from_wire(wire: &Value) -> Self {
        let text = |pointer: &str| wire.pointer(pointer).and_then(Value::as_str);
        let code = wire.get("code").and_then(Value::as_i64).unwrap_or(ErrorType::InternalError.row().legacy);
        let message = text("/data/reason").or(text("/message")).unwrap_or_default().to_owned();
        match text("/data/code").and_then(ErrorType::from_name).or_else(|| ErrorType::from_code(code)) {
            Some(error) => McpError::new(error, message),
            None => McpError::Other { code, message },
        }
    }

    /// The error object of a JSON-RPC answer.
    pub fn to_value(&self) -> Value {
        match self.data() {
            Some(data) => json!({ "code": self.code(), "message": self.to_string(), "data": data }),
            None => json!({ "code": self.code(), "message": self.to_string() }),
        }
    }

    /// The result with `isError` that answers tools/call, for an error that a model can act on.
    pub fn to_result(&self) -> Option<Value> {
        if let McpError::ToolFailed(result) = self {
            return Some(result.clone());
        }
        let data = self.data().filter(|_| self.error_type().is_some_and(|error| error.row().for_model))?;
        let text = self.to_string();
        // Clients hold structured content to the output schema, so the error is not there.
        let meta = json!({ "portcullis/error": data });
        Some(json!({ "isError": true, "content": [{ "type": "text", "text": text }], "_meta": meta }))
    }

    fn data(&self) -> Option<Value> {
        let error = self.error_type()?;
        let ErrorRow { code, retryable, .. } = error.row();
        Some(json!({ "code": code, "error_type": error.name(), "reason": self.reason(), "retryable": retryable }))
    }

    fn reason(&self) -> &str {
        match self {
            McpError::InvalidParams(text)
            | McpError::ToolNotFound(text)
            | McpError::Internal(text)
            | McpError::PermissionDenied(text)
            | McpError::Transport(text)
            | McpError::Reported { message: text, .. }
            | McpError::Other { message: text, .. } => text,
            McpError::ToolFailed(result) => {
                result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or("no reason given")
            }
        }
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error_type() {
            Some(error) => write!(f, "{}: {}", error.row().message, self.reason()),
            None => f.write_str(self.reason()),
        }
    }
}

impl std::error::Error for McpError {}
