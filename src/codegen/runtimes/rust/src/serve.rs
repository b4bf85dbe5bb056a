//! An MCP server on standard input and output, in front of anything that runs tools by name.

use std::io::{BufRead, Read, Write};

use serde_json::{json, Value};

use crate::capability::Answer;
use crate::client::{block_on, MAX_LINE_BYTES, PROTOCOL_VERSION};
use crate::error_table::ErrorType;
use crate::{McpError, MANIFEST, SERVER_NAME, SERVER_VERSION};

/// Runs a tool by its name: arguments are checked on the way in, structured results on the way out.
pub trait Dispatch {
    fn dispatch<'a>(&'a self, tool: &'a str, args: Value) -> Answer<'a, Value>;
}

/// Serves until the input ends. Standard output carries messages and nothing else.
pub fn serve_stdio<S: Dispatch>(server: &S) -> std::io::Result<()> {
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    loop {
        let mut line = Vec::new();
        if (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(message) => answer(server, &message),
            Err(error) => Some(failed(&Value::Null, &McpError::new(ErrorType::ParseError, error.to_string()))),
        };
        if let Some(answer) = answer {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
}

/// The answer to one message; a notification has none.
pub fn answer<S: Dispatch>(server: &S, message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let params = message.get("params").cloned().unwrap_or_default();
    let result = match message.get("method").and_then(Value::as_str).unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": SERVER_NAME, "version": SERVER_VERSION },
        })),
        "ping" => Ok(json!({})),
        "tools/list" => serde_json::from_str(MANIFEST).map_err(|error| McpError::Internal(error.to_string())),
        "tools/call" => {
            let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
            let args = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
            block_on(server.dispatch(name, args)).or_else(|error| error.to_result().ok_or(error))
        }
        other => Err(McpError::new(ErrorType::MethodNotFound, other.to_owned())),
    };
    Some(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => failed(id, &error),
    })
}

fn failed(id: &Value, error: &McpError) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": error.to_value() })
}
