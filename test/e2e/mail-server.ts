// A mail server on loopback that takes messages by SMTP (RFC 5321) from accounts it knows, and keeps them.

import { createServer, type Server, type Socket } from "node:net";
import { TLSSocket } from "node:tls";

export interface Mail {
  readonly user: string;
  readonly from: string;
  readonly to: readonly string[];
  readonly data: string;
}

export interface MailServer {
  readonly url: string;
  readonly mails: Mail[];
  close(): Promise<void>;
}

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

/** `accounts` maps each user to its password. With a certificate it takes no password before STARTTLS. */
export async function startMailServer(
  accounts: Readonly<Record<string, string>>,
  certificate?: Certificate,
): Promise<MailServer> {
  const mails: Mail[] = [];
  const server: Server = createServer((socket) => {
    socket.write("220 localhost ESMTP\r\n");
    converse(socket, accounts, mails, certificate);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return {
    url: `smtp://127.0.0.1:${port}`,
    mails,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

function converse(
  socket: Socket,
  accounts: Readonly<Record<string, string>>,
  mails: Mail[],
  certificate?: Certificate,
): void {
  let buffered = "";
  let user: string | undefined;
  let from: string | undefined;
  let to: string[] = [];
  let isData = false;
  const say = (line: string): void => void socket.write(`${line}\r\n`);

  const command = (line: string): void => {
    if (/^EHLO /i.test(line)) {
      return void socket.write(`250-localhost\r\n250 ${certificate === undefined ? "AUTH PLAIN" : "STARTTLS"}\r\n`);
    }
    if (certificate !== undefined) {
      if (!/^STARTTLS$/i.test(line)) return say("530 STARTTLS first");
      socket.removeAllListeners("data");
      socket.write("220 go ahead\r\n", () =>
        converse(new TLSSocket(socket, { isServer: true, ...certificate }), accounts, mails),
      );
      return;
    }
    const credentials = /^AUTH PLAIN (\S+)$/i.exec(line)?.[1];
    if (credentials !== undefined) {
      const [, name = "", password = ""] = Buffer.from(credentials, "base64").toString().split("\0");
      if (!Object.hasOwn(accounts, name) || accounts[name] !== password) return say("535 authentication failed");
      user = name;
      return say("235 ok");
    }
    if (user === undefined) return say("530 authentication required");
    const sender = /^MAIL FROM:<([^<>\s]+)>$/i.exec(line)?.[1];
    if (sender !== undefined) {
      from = sender;
      to = [];
      return say("250 ok");
    }
    const recipient = /^RCPT TO:<([^<>\s]+)>$/i.exec(line)?.[1];
    if (recipient !== undefined && from !== undefined) {
      to.push(recipient);
      return say("250 ok");
    }
    if (/^DATA$/i.test(line) && to.length > 0) {
      isData = true;
      return say("354 end with a dot");
    }
    say("500 not understood");
  };

  const receive = (): void => {
    while (true) {
      const end = buffered.indexOf(isData ? "\r\n.\r\n" : "\r\n");
      if (end < 0) return;
      const text = buffered.slice(0, end);
      buffered = buffered.slice(end + (isData ? 5 : 2));
      if (isData) {
        isData = false;
        mails.push({ user: user as string, from: from as string, to, data: text });
        say("250 queued");
      } else command(text);
    }
  };

  socket.on("error", () => undefined);
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    buffered += chunk;
    if (buffered.length > 10_000_000) socket.destroy();
    else receive();
  });
}
