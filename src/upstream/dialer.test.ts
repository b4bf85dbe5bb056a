import { createServer, type Server } from "node:http";
import { createServer as createHttps } from "node:https";
import { type AddressInfo, createServer as createTcp } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { Fault } from "../mcp/index.js";
import { addressKindOf, parseAddress } from "./addresses.js";
import { allowanceFor, createDialer, createOutbound } from "./dialer.js";
import { CERTIFICATE, KEY } from "./fixtures/certificate.js";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const thing of open.splice(0)) await thing.close();
});

async function listening<T extends Server | ReturnType<typeof createTcp>>(server: T): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  open.push({ close: () => new Promise((resolve) => server.close(resolve)) });
  return (server.address() as AddressInfo).port;
}

describe("an address is", () => {
  it.each([
    ["8.8.8.8", "public"],
    ["2606:4700::1111", "public"],
    ["127.0.0.1", "loopback"],
    ["127.8.9.10", "loopback"],
    ["::1", "loopback"],
    ["::ffff:127.0.0.1", "loopback"],
    ["::ffff:7f00:1", "loopback"],
    ["10.1.2.3", "private"],
    ["172.16.0.1", "private"],
    ["172.32.0.1", "public"],
    ["192.168.1.1", "private"],
    ["100.64.0.1", "private"],
    ["fd12::1", "private"],
    ["203.0.113.80", "private"],
    ["198.18.0.1", "private"],
    ["::ffff:10.0.0.1", "private"],
    ["64:ff9b::10.0.0.1", "private"],
    ["64:ff9b::8.8.8.8", "public"],
    ["2002:7f00:1::", "loopback"],
    ["2002:a9fe:a9fe::", "special"],
    ["169.254.169.254", "special"],
    ["::ffff:169.254.169.254", "special"],
    ["fe80::1", "special"],
    ["fe80::1%eth0", "special"],
    ["fd00:ec2::254", "special"],
    ["100.100.100.200", "special"],
    ["168.63.129.16", "special"],
    ["0.0.0.0", "special"],
    ["::", "special"],
    ["::7f00:1", "special"],
    ["255.255.255.255", "special"],
    ["224.0.0.1", "special"],
    ["ff02::1", "special"],
    ["2001:0:1::1", "special"],
    ["2001:db8::1", "special"],
  ])("%s %s", (text, kind) => {
    expect(addressKindOf(parseAddress(text) as Uint8Array)).toBe(kind);
  });
});

describe("the dialer", () => {
  it.each([
    ["127.0.0.1", "loopback"],
    ["localhost", "loopback"],
    ["[::1]", "loopback"],
    ["169.254.169.254", "link-local or reserved"],
    ["10.0.0.1", "private"],
    ["0.0.0.0", "link-local or reserved"],
    ["0x7f.1", "loopback"],
    ["2130706433", "loopback"],
  ])("does not go to %s unless an operator named it", async (host, kind) => {
    const refused = createDialer().connect({ host, port: 80, tls: false });
    await expect(refused).rejects.toMatchObject({ type: "PolicyDeny", message: expect.stringContaining(kind) });
  });

  it.each([[["localhost"]], [["127.0.0.0/8", "::1"]], [["localhost:PORT"]]])(
    "the dialer goes where %s names",
    async (allow) => {
      const port = await listening(createTcp((socket) => socket.end("hello")));
      const named = allow.map((entry) => entry.replace("PORT", String(port)));
      const socket = await createDialer({ allow: named }).connect({ host: "localhost", port, tls: false });
      expect(await new Promise((resolve) => socket.once("data", (data) => resolve(String(data))))).toBe("hello");
      socket.destroy();
    },
  );

  it.each([
    ["localhost:1", "localhost"],
    ["127.0.0.1:1", "127.0.0.1"],
    ["127.0.0.1:1", "localhost"],
    ["[::1]:1", "::1"],
    ["[::1]:1", "[::1]"],
  ])("opens with %s that port of %s and no other [H5]", async (entry, host) => {
    const dialer = createDialer({ allow: [entry], resolve: async () => ["127.0.0.1"] });
    await expect(dialer.connect({ host, port: 2, tls: false })).rejects.toThrow(/loopback/);
    // Nothing listens there: it was tried.
    await expect(dialer.connect({ host, port: 1, tls: false })).rejects.toMatchObject({ type: "Unavailable" });
  });

  it.each([
    ["https://intranet.example/mcp", "intranet.example:443"],
    ["http://127.0.0.1/mcp", "127.0.0.1:80"],
    ["wss://[fd12::1]/", "[fd12::1]:443"],
    ["http://[::1]:9000/", "[::1]:9000"],
  ])("the dialer is allowed by the address %s to reach %s", (url, entry) => {
    expect(allowanceFor(new URL(url))).toBe(entry);
    expect(() => createDialer({ allow: [entry] })).not.toThrow();
  });

  it("reaches metadata addresses only by their own name, not by a host's", async () => {
    const dialer = createDialer({ allow: ["intranet.example"], resolve: async () => ["169.254.169.254"] });
    const refused = dialer.connect({ host: "intranet.example", port: 80, tls: false });
    await expect(refused).rejects.toMatchObject({ type: "PolicyDeny" });
  });

  it("connects to the address it judged: a name that changes its meaning gains nothing [G8]", async () => {
    let hits = 0;
    const port = await listening(createTcp(() => hits++));
    const answers = [["192.0.2.1"], ["127.0.0.1"]];
    let asked = 0;
    const dialer = createDialer({
      allow: ["192.0.2.0/24"],
      timeoutMs: 300,
      resolve: async () => answers[asked++] ?? ["127.0.0.1"],
    });
    await expect(dialer.connect({ host: "rebind.example", port, tls: false })).rejects.toMatchObject({
      type: "Unavailable",
    });
    expect(asked).toBe(1);
    await expect(dialer.connect({ host: "rebind.example", port, tls: false })).rejects.toMatchObject({
      type: "PolicyDeny",
    });
    expect(hits).toBe(0);
  });

  it("leaves out the inside addresses among several", async () => {
    let hits = 0;
    const port = await listening(createTcp(() => hits++));
    const dialer = createDialer({
      allow: ["192.0.2.0/24"],
      timeoutMs: 300,
      resolve: async () => ["127.0.0.1", "192.0.2.1"],
    });
    await expect(dialer.connect({ host: "mixed.example", port, tls: false })).rejects.toBeInstanceOf(Fault);
    expect(hits).toBe(0);
  });

  it("the dialer says what is unreachable, in bounded time", async () => {
    const dialer = createDialer({ timeoutMs: 200, resolve: () => new Promise(() => {}) });
    await expect(dialer.connect({ host: "slow.example", port: 80, tls: false })).rejects.toThrow(/slow.example cannot/);
    const port = await listening(createTcp());
    await (open.pop() as { close(): Promise<void> }).close();
    const gone = createDialer({ allow: ["127.0.0.1"] }).connect({ host: "127.0.0.1", port, tls: false });
    await expect(gone).rejects.toMatchObject({ type: "Unavailable", message: expect.stringContaining("ECONNREFUSED") });
  });

  it("refuses a rule that it cannot read", () => {
    expect(() => createDialer({ allow: ["http://x"] })).toThrow(/not a host, address or range/);
    expect(() => createDialer({ allow: ["10.0.0.0/99"] })).toThrow(TypeError);
  });
});

describe("TLS", () => {
  const at = async (): Promise<number> =>
    listening(createHttps({ cert: CERTIFICATE, key: KEY }, (request, answer) => answer.end(request.headers.host)));
  const inside = { allow: ["inside.example"], resolve: async () => ["127.0.0.1"] };

  it("verifies the certificate for the name, at the address that was checked", async () => {
    const port = await at();
    const outbound = createOutbound(createDialer({ ...inside, tls: { ca: CERTIFICATE } }));
    open.push(outbound);
    const answer = await outbound.fetch(`https://inside.example:${port}/`);
    expect(await answer.text()).toBe(`inside.example:${port}`);
  });

  it("refuses a certificate of an unknown authority, or of another host", async () => {
    const port = await at();
    const stranger = createDialer(inside).connect({ host: "inside.example", port, tls: true });
    await expect(stranger).rejects.toMatchObject({
      type: "Unavailable",
      message: expect.stringContaining("self-signed"),
    });
    const other = createDialer({
      allow: ["other.example"],
      resolve: async () => ["127.0.0.1"],
      tls: { ca: CERTIFICATE },
    });
    await expect(other.connect({ host: "other.example", port, tls: true })).rejects.toThrow(/other.example/);
  });
});

describe("fetch over the dialer", () => {
  it("follows a redirect within the origin, and none out of it", async () => {
    const other = await listening(createServer((_, answer) => answer.end("other")));
    const port = await listening(
      createServer((request, answer) => {
        if (request.url === "/in") answer.writeHead(302, { location: "/here" }).end();
        else if (request.url === "/out") answer.writeHead(307, { location: `http://127.0.0.1:${other}/` }).end();
        else if (request.url === "/loop") answer.writeHead(302, { location: "/loop" }).end();
        else answer.end(`${request.method} ${request.url}`);
      }),
    );
    const outbound = createOutbound(createDialer({ allow: ["127.0.0.1"] }));
    open.push(outbound);
    const at = `http://127.0.0.1:${port}`;
    expect(await (await outbound.fetch(`${at}/in`, { method: "POST", body: "x" })).text()).toBe("GET /here");
    await expect(outbound.fetch(`${at}/out`)).rejects.toMatchObject({ type: "PolicyDeny" });
    await expect(outbound.fetch(`${at}/loop`)).rejects.toThrow(/more than 5 times/);
  });

  it("fetch over the dialer is held to the same rules", async () => {
    const outbound = createOutbound(createDialer());
    open.push(outbound);
    await expect(outbound.fetch("http://localhost:8080/")).rejects.toMatchObject({ type: "PolicyDeny" });
  });
});
