// Identifiers as Rust wants them.

import { snake } from "../names.js";

const RESERVED = new Set(
  "as break const continue crate else enum extern false fn for if impl in let loop match mod move mut pub ref return self static struct super trait true type unsafe use where while async await dyn abstract become box do final macro override priv typeof unsized virtual yield try gen union".split(
    " ",
  ),
);
/** Not even with `r#` in front. */
const NEVER_RAW = new Set(["self", "super", "crate", "_"]);

/** A field, function or module; keywords are written raw. */
export function identifier(name: string, ifEmpty: string): string {
  const text = snake(name, ifEmpty);
  return RESERVED.has(text) && NEVER_RAW.has(text) ? `${text}_value` : text;
}

export function raw(name: string): string {
  return RESERVED.has(name) ? `r#${name}` : name;
}

/** Crates that are there already: those of the language, and those the generated one depends on. */
const TAKEN_CRATES = new Set(
  "std core alloc test proc_macro serde serde_core serde_derive serde_json itoa memchr ryu zmij syn quote proc_macro2 unicode_ident".split(
    " ",
  ),
);

export function crateName(server: string): string {
  const name = snake(server, "server").slice(0, 60);
  return RESERVED.has(name) || TAKEN_CRATES.has(name) ? `${name}_mcp` : name;
}

/** Names in scope of the generated types, which none of them may take. */
export const RESERVED_TYPES =
  "Self String Vec Option Some None Result Ok Err Box Clone Copy Debug Default Eq PartialEq Hash Send Sync Sized Drop Fn FnMut FnOnce From Into Iterator ToString AsRef Serialize Deserialize Serializer Deserializer Value Map OrNull Never BTreeMap Arc RwLock PhantomData Future Pin McpError ToolCap HasCaps Agent GuardrailToken GuardrailBlocked CallbackRunner CallbackContext UncheckedInvocation NoGuardrailRequired Both Nothing Answer Transport StdioTransport Client Handshake SharedState ServerState Server Problem ToolCaller Command ErrorType ErrorRow Dispatch".split(
    " ",
  );

/** A string literal in plain ASCII: nothing hidden, nothing that turns the reading direction. */
export function quote(text: string): string {
  let out = '"';
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    if (char === '"' || char === "\\") out += `\\${char}`;
    else if (code >= 0x20 && code < 0x7f) out += char;
    // Rust has no way to write half of a pair, and JSON text on the wire cannot carry one either.
    else if (code >= 0xd800 && code <= 0xdfff) out += "\\u{fffd}";
    else out += `\\u{${code.toString(16)}}`;
  }
  return `${out}"`;
}

export function rustDocs(lines: readonly string[], indent = ""): string {
  return lines.map((line) => `${indent}/// ${line}`.trimEnd() + "\n").join("");
}
