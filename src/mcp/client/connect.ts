import { Client } from "./client.js";
import type { ConnectOptions } from "./options.js";
import { type ConnectTarget, dial } from "./target.js";

/** Connects and agrees on a revision. The client that comes back is ready for calls; close it when done. */
export async function connect(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const { transport, name } = await dial(target, options);
  const client = new Client(transport, { server: name, ...options });
  await client.open();
  return client;
}
