#!/usr/bin/env node
// A community server for e-mail: `sendMessage` submits a plain-text message to the application's own SMTP account.
//   SMTP_URL=smtps://mail.example:465 SMTP_USER=blog SMTP_PASSWORD=… SMTP_FROM=blog@example.org node examples/email-server.mjs
// With smtp:// it asks for STARTTLS. Without TLS it sends neither password nor message, except to this machine.
import { randomUUID } from "node:crypto";
import { connect as connectPlain } from "node:net";
import { createInterface } from "node:readline";
import { connect as connectTls } from "node:tls";
import { createServer, permitAll, structured } from "portcullis/server";

const { SMTP_URL, SMTP_USER, SMTP_PASSWORD, SMTP_FROM } = process.env;
for (const name of ["SMTP_URL", "SMTP_USER", "SMTP_PASSWORD", "SMTP_FROM"]) {
  if (!process.env[name]) {
    console.error(`set ${name}`);
    process.exit(64);
  }
}

const TIMEOUT_MS = 20_000;
const { protocol, hostname, port } = new URL(SMTP_URL);
const isLocal = ["127.0.0.1", "[::1]", "localhost"].includes(hostname);
const host = hostname.replace(/^\[|\]$/g, "");

/** One dialogue by RFC 5321: each command waits for its reply. */
class Dialogue {
  #socket;
  #lines;

  constructor(socket) {
    this.#use(socket);
  }

  #use(socket) {
    this.#socket = socket;
    socket.setTimeout(TIMEOUT_MS, () => socket.destroy(new Error("the mail server did not answer in time")));
    const lines = createInterface({ input: socket, crlfDelay: Number.POSITIVE_INFINITY });
    this.#lines = lines[Symbol.asyncIterator]();
    // `readline` does not forward errors of its input.
    socket.on("error", () => lines.close());
  }

  /** The lines of one reply; throws when its code does not begin with `expected`. */
  async reply(expected) {
    const lines = [];
    for (let more = true; more && lines.length < 100; ) {
      const { value, done } = await this.#lines.next();
      if (done) throw new Error("the mail server closed the connection");
      lines.push(value.slice(4));
      more = value[3] === "-";
      if (!more && !value.startsWith(expected)) throw new Error(`the mail server answered ${value.slice(0, 200)}`);
    }
    return lines;
  }

  async send(line, expected = "2") {
    this.#socket.write(`${line}\r\n`);
    return this.reply(expected);
  }

  async secure() {
    await this.send("STARTTLS");
    this.#socket.removeAllListeners("data");
    const secured = connectTls({ socket: this.#socket, servername: host });
    await new Promise((resolve, reject) => secured.once("secureConnect", resolve).once("error", reject));
    this.#use(secured);
  }

  close() {
    this.#socket.destroy();
  }
}

async function submit(to, message) {
  const isSecure = protocol === "smtps:";
  const options = { host, port: Number(port) || (isSecure ? 465 : 587) };
  const dialogue = new Dialogue(isSecure ? connectTls({ ...options, servername: host }) : connectPlain(options));
  try {
    await dialogue.reply("220");
    const features = await dialogue.send("EHLO portcullis");
    if (!isSecure && features.includes("STARTTLS")) {
      await dialogue.secure();
      await dialogue.send("EHLO portcullis");
    } else if (!isSecure && !isLocal) throw new Error("the mail server offers no TLS");
    await dialogue.send(`AUTH PLAIN ${Buffer.from(`\0${SMTP_USER}\0${SMTP_PASSWORD}`).toString("base64")}`);
    await dialogue.send(`MAIL FROM:<${SMTP_FROM}>`);
    for (const each of to) await dialogue.send(`RCPT TO:<${each}>`);
    await dialogue.send("DATA", "354");
    await dialogue.send(`${message}\r\n.`);
  } finally {
    dialogue.close();
  }
}

const encoded = (text) => `=?UTF-8?B?${Buffer.from(text).toString("base64")}?=`;

/** Base64 has no line that begins with a dot and none over 76 characters, whatever the text. */
const bodyOf = (text) => Buffer.from(text).toString("base64").replace(/.{76}/g, "$&\r\n");

const server = createServer({ name: "email", version: "1.0.0" }, { policy: permitAll });
server.tool(
  "sendMessage",
  `Sends a plain-text e-mail from ${SMTP_FROM}.`,
  {
    type: "object",
    properties: {
      // No spaces, angle brackets or control characters: an address cannot become another command or header.
      to: {
        type: "array",
        items: { type: "string", maxLength: 254, pattern: "^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]+@[A-Za-z0-9.-]+$" },
        minItems: 1,
        maxItems: 20,
      },
      subject: { type: "string", maxLength: 200 },
      text: { type: "string", maxLength: 1_000_000 },
    },
    required: ["to", "subject", "text"],
    additionalProperties: false,
  },
  async ({ to, subject, text }) => {
    const id = `<${randomUUID()}@portcullis>`;
    const headers = [
      `From: <${SMTP_FROM}>`,
      `To: ${to.map((each) => `<${each}>`).join(",\r\n ")}`,
      // In pieces, because an encoded word has at most 75 characters.
      `Subject: ${(subject.match(/.{1,10}/gsu) ?? [""]).map(encoded).join("\r\n ")}`,
      `Date: ${new Date().toUTCString().replace("GMT", "+0000")}`,
      `Message-ID: ${id}`,
      "MIME-Version: 1.0",
      "Content-Type: text/plain; charset=utf-8",
      "Content-Transfer-Encoding: base64",
    ];
    await submit(to, `${headers.join("\r\n")}\r\n\r\n${bodyOf(text)}`);
    return structured({ accepted: to, messageId: id });
  },
  { noGuardrailRequired: true, annotations: { readOnlyHint: false, openWorldHint: true } },
);
await server.listen({ transport: "stdio" });
