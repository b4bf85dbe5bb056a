import { describe, expect, it } from "vitest";
import { isLoopbackAddress, isLoopbackHost } from "../mcp/index.js";
import type { Peer } from "../mcp/transports/index.js";
import { createServer, permitAll } from "../server.js";
import { localIdentity, remoteReason } from "./index.js";

const peer = (more: Partial<Peer> = {}): Peer => ({ transport: "http", address: "127.0.0.1", headers: {}, ...more });

describe("the local identity", () => {
  it("identifies peers on this machine as its user", async () => {
    for (const each of [
      peer(),
      peer({ address: "::1" }),
      peer({ address: "::ffff:127.0.0.1" }),
      peer({ address: "127.8.9.10", transport: "tcp" }),
      peer({ address: "unix" }),
      peer({ transport: "stdio", address: "anna" }),
      peer({ transport: "memory", address: "memory" }),
      peer({ httpVersion: "1.1", headers: { "x-api-key": "", "x-request-id": "", "mcp-session-id": "", cookie: "" } }),
    ]) {
      expect(await localIdentity()(each)).toMatchObject({ app: "local", via: "local" });
    }
  });

  it("refuses peers with another address, with none, and with a header that a proxy adds [H4]", () => {
    for (const each of [
      peer({ address: "10.0.0.1" }),
      peer({ address: "::ffff:192.0.2.1" }),
      peer({ address: "unknown" }),
      peer({ address: "" }),
      ...[
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-client-cert",
        "x-real-ip",
        "via",
        "cf-ray",
        "x-original-host",
        "forwarded-for",
        "x-forward-for",
        "x-real-port",
        "x-rewrite-url",
        "x-amz-cf-id",
        "cloudfront-viewer-address",
        "akamai-origin-hop",
        "incap-client-ip",
        "cdn-loop",
        "x-http-forwarded-for",
        "z-forwarded-for",
        "x-vercel-forwarded-for",
        "x-devtunnel",
        "x-localtunnel-agent-ips",
        "x-true-ip",
        "x-nginx-proxy",
        "x-arr-log-id",
        "x-varnish",
        "fly-region",
        "ngrok-trace-id",
        "x-cloud-trace-context",
        "ssl-client-cert",
        "x-auth-request-user",
        "x-goog-authenticated-user-email",
        "front-end-https",
        "disguised-host",
        "was-default-hostname",
        "connect-time",
        "fastly-ff",
        "remote-groups",
        "teleport-jwt-assertion",
        "x-amzn-apigateway-api-id",
        "x-apigee-message-id",
        "x-backend-server",
        "x-caddy-host",
        "x-consumer-username",
        "x-edge-location",
        "x-expose-request-id",
        "x-hass-source",
        "x-ingress-path",
        "x-inlets-id",
        "x-kong-request-id",
        "x-ms-client-principal",
        "x-rapidapi-host",
        "x-served-by",
        "x-tailscale-user",
        "x-tls-version",
        "x-client-verify",
      ].map((name) => peer({ headers: { [name]: "" } })),
      peer({ httpVersion: "1.0" }),
    ]) {
      expect(remoteReason(each)).toBeDefined();
      expect(() => localIdentity()(each)).toThrow("authentication required");
    }
  });
});

describe("loopback", () => {
  it("loopback is recognized in addresses and in host names with and without a port", () => {
    for (const name of ["localhost", "LOCALHOST:80", "127.0.0.1", "127.3.2.1:7420", "::1", "[::1]", "[::1]:7420"]) {
      expect([name, isLoopbackHost(name)]).toEqual([name, true]);
    }
    for (const name of ["0.0.0.0", "::", "[::]:80", "localhost.example.com", "127.0.0.1.example.com", "", "unix"]) {
      expect([name, isLoopbackHost(name)]).toEqual([name, false]);
    }
    expect(isLoopbackAddress("localhost")).toBe(false);
  });
});

describe("a library server without `identify`", () => {
  it.each(["http", "tcp", "websocket"] as const)(
    "a library server without `identify` does not listen beyond this machine on %s",
    async (transport) => {
      const server = createServer("mine", { policy: permitAll });
      await expect(server.listen({ transport, host: "0.0.0.0" })).rejects.toThrow(/pass `identify` to createServer/);
      await server.close();
    },
  );

  it("a library server without `identify` does not answer to a name that is not a loopback name", async () => {
    const server = createServer("mine", { policy: permitAll });
    const listening = server.listen({ transport: "http", allowedHosts: ["gate.example.com"] });
    await expect(listening).rejects.toThrow(/gate\.example\.com/);
    await server.close();
  });
});
