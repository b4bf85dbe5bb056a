//! The handlers of FileManager. `portcullis gen rust` wrote the types and the skeleton of this file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use crate::types::*;
use crate::McpError;

/// What the handlers share.
#[derive(Debug, Default)]
pub struct ServerState {
    pub permitted_root: PathBuf,
}

pub type SharedState = Arc<RwLock<ServerState>>;

/// Read the contents of a file within the permitted root.
pub async fn read_file(args: ReadFileArgs, state: SharedState) -> Result<ReadFileSuccess, McpError> {
    let bytes = fs::read(confined(&state, &args.path)?).map_err(internal)?;
    let size = i64::try_from(bytes.len()).map_err(|error| McpError::Internal(error.to_string()))?;
    let content = match args.encoding {
        Some(ReadFileArgsEncoding::Base64) => base64(&bytes),
        _ => String::from_utf8(bytes).map_err(|error| McpError::Internal(error.to_string()))?,
    };
    let mut success = ReadFileSuccess::new(content);
    success.size_bytes = Some(size);
    Ok(success)
}

/// Write content to a file within the permitted root.
pub async fn write_file(args: WriteFileArgs, state: SharedState) -> Result<WriteFileSuccess, McpError> {
    let append = args.append.unwrap_or(false);
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(append).truncate(!append);
    let mut file = options.open(confined(&state, &args.path)?).map_err(internal)?;
    file.write_all(args.content.as_bytes()).map_err(internal)?;
    let written = i64::try_from(args.content.len()).map_err(|error| McpError::Internal(error.to_string()))?;
    Ok(WriteFileSuccess::new(written))
}

/// The real place of a path, which must lie below the root, and whose last part must be no link.
fn confined(state: &SharedState, path: &str) -> Result<PathBuf, McpError> {
    let denied = || McpError::PermissionDenied(path.to_owned());
    let root = state.read().map_err(|error| McpError::Internal(error.to_string()))?.permitted_root.clone();
    let root = root.canonicalize().map_err(internal)?;
    let wanted = root.join(path);
    let folder = wanted.parent().unwrap_or(Path::new("/")).canonicalize().map_err(|_| denied())?;
    let place = folder.join(wanted.file_name().ok_or_else(denied)?);
    let link = fs::symlink_metadata(&place).is_ok_and(|found| found.file_type().is_symlink());
    if !place.starts_with(&root) || link {
        return Err(denied());
    }
    Ok(place)
}

fn internal(error: std::io::Error) -> McpError {
    McpError::Internal(error.to_string())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
