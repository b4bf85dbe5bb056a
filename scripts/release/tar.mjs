// Archives that come out the same for the same files: sorted, without owners and times. `type` and `link` exist so that
// tests can make archives that no release has.
import { gzipSync } from "node:zlib";

const BLOCK = 512;

function header({ name, size = 0, mode = 0o644, type = "0", link = "" }) {
  const block = Buffer.alloc(BLOCK);
  const put = (text, start) => block.write(text, start, "utf8");
  put(name, 0);
  put(`${mode.toString(8).padStart(7, "0")}\0`, 100);
  put("0000000\0", 108);
  put("0000000\0", 116);
  put(`${size.toString(8).padStart(11, "0")}\0`, 124);
  put("00000000000\0", 136);
  put("        ", 148);
  put(type, 156);
  put(link, 157);
  put("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

function padded(bytes) {
  return [bytes, Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK)];
}

/** The length of a pax record counts itself. */
function paxRecord(name) {
  const rest = ` path=${name}\n`;
  let length = Buffer.byteLength(rest) + 1;
  while (String(length).length + Buffer.byteLength(rest) !== length) length += 1;
  return Buffer.from(`${length}${rest}`);
}

/** `entries`: { name, bytes?, mode?, type?, link? }; files and nothing else unless a type says so. */
export function tarGz(entries) {
  const parts = [];
  for (const entry of entries) {
    const bytes = entry.bytes ?? Buffer.alloc(0);
    let { name } = entry;
    if (Buffer.byteLength(name) > 100) {
      const record = paxRecord(name);
      parts.push(header({ name: "pax", size: record.length, type: "x" }), ...padded(record));
      name = "long";
    }
    parts.push(header({ ...entry, name, size: bytes.length }), ...padded(bytes));
  }
  parts.push(Buffer.alloc(2 * BLOCK));
  return gzipSync(Buffer.concat(parts), { level: Number(process.env.PORTCULLIS_GZIP_LEVEL ?? 9) });
}
