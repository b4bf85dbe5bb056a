// The compiler's own language server, spoken to as an editor does: it says what completion offers.

import { type ChildProcess, spawn } from "node:child_process";
import { pathToFileURL } from "node:url";
import { TSC } from "./compile.js";

interface Message {
  id?: number;
  method?: string;
  params?: { items?: unknown[] };
  result?: unknown;
  error?: { message: string };
}

const ANSWER_MS = 60_000;

export class LanguageServer {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (message: Message) => void>();
  #received = Buffer.alloc(0);
  #lastId = 0;

  private constructor() {
    this.#child = spawn(process.execPath, [TSC, "--lsp", "--stdio"], { stdio: ["pipe", "pipe", "ignore"] });
    this.#child.stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
  }

  static async start(folder: string): Promise<LanguageServer> {
    const server = new LanguageServer();
    const rootUri = pathToFileURL(folder).href;
    await server.#ask("initialize", { processId: process.pid, rootUri, capabilities: {} });
    server.#send({ method: "initialized", params: {} });
    return server;
  }

  open(file: string, text: string): void {
    const textDocument = { uri: pathToFileURL(file).href, languageId: "typescript", version: 1, text };
    this.#send({ method: "textDocument/didOpen", params: { textDocument } });
  }

  /** What is offered at this place, sorted; lines and characters count from 0. */
  async completions(file: string, line: number, character: number): Promise<string[]> {
    const at = { textDocument: { uri: pathToFileURL(file).href }, position: { line, character } };
    const result = (await this.#ask("textDocument/completion", at)) as { items?: unknown } | unknown[] | null;
    const items = Array.isArray(result) ? result : (result?.items ?? []);
    return (items as { label: string }[]).map(({ label }) => label).sort();
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill();
    await ended;
  }

  #ask(method: string, params: object): Promise<unknown> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no answer to ${method} within ${ANSWER_MS} ms`)), ANSWER_MS);
      this.#waiting.set(id, ({ result, error }) => {
        clearTimeout(timer);
        if (error) reject(new Error(error.message));
        else resolve(result);
      });
      this.#send({ id, method, params });
    });
  }

  #send(message: object): void {
    const text = JSON.stringify({ jsonrpc: "2.0", ...message });
    this.#child.stdin?.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
  }

  #read(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    for (;;) {
      const end = this.#received.indexOf("\r\n\r\n");
      if (end === -1) return;
      const length = Number(/Content-Length: (\d+)/i.exec(this.#received.subarray(0, end).toString())?.[1]);
      if (this.#received.length < end + 4 + length) return;
      const message = JSON.parse(this.#received.subarray(end + 4, end + 4 + length).toString()) as Message;
      this.#received = this.#received.subarray(end + 4 + length);
      this.#receive(message);
    }
  }

  #receive(message: Message): void {
    if (message.id === undefined) return;
    // It asks for settings, and gets none.
    if (message.method) this.#send({ id: message.id, result: message.params?.items?.map(() => null) ?? null });
    else this.#waiting.get(message.id)?.(message);
  }
}
