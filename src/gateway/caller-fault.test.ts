import { describe, expect, it } from "vitest";
import { Fault } from "../mcp/index.js";
import { callerFault } from "./deferred.js";

describe("a failure to reach a server", () => {
  it.each([
    "server `x` is unavailable: 10.1.2.3:5432 cannot be reached: connect ECONNREFUSED 10.1.2.3:5432",
    "server `x` is unavailable: db.corp cannot be reached: getaddrinfo ENOTFOUND db.corp",
    "`/opt/tools/bin/run` cannot be started: there is no such program",
    "server `x` redirects to https://inner.example/login, which is not followed",
    "server `x` wants an access token: http://issuer.corp/token answered 500",
    "server `x` was lost: read [fd00::1]:80",
    "`db` is at a private address, which may not be reached from here",
    "cannot read ~/keys/service.json",
  ])("keeps its place from the caller and gives it to the operator: %s", (message) => {
    const fault = callerFault("x", new Fault("Unavailable", message, { extra: { delivered: false } }));
    expect(fault.message).toBe(
      "server `x` is unavailable: the operator finds the reason in the log under the trace id",
    );
    expect(fault.detail).toMatchObject({ operator: message, extra: { delivered: false } });
  });

  it("gives the operator the cause of a failed start without secrets, and the caller the message alone", () => {
    const message = "server `x` is unavailable: it was not ready within 30000 ms";
    const operator = `${message}; refused db.corp: its profile does not name it; stderr ends: token s3cret`;
    const hide = (text: string): string => text.replaceAll("s3cret", "[secret]");
    const fault = callerFault("x", new Fault("Unavailable", message, { operator }), hide);
    expect(fault.message).toBe(message);
    expect(fault.detail.operator).toBe(operator.replace("s3cret", "[secret]"));
    const revealing = callerFault("x", new Fault("Unavailable", "`/opt/x` cannot be started", { operator }), hide);
    expect(revealing.message).not.toContain("/opt");
    expect(revealing.detail.operator).toContain("refused db.corp");
  });

  it("keeps texts without a place, the server's own words, and drops the challenge of the server", () => {
    const plain = new Fault("Unavailable", "server `x` is unavailable: it asks for a rest (HTTP 503)");
    expect(callerFault("x", plain)).toBe(plain);
    const own = new Fault("ToolExecution", "cannot open /srv/a", { downstream: { code: -1, message: "m" } });
    expect(callerFault("x", own)).toBe(own);
    const extra = { wwwAuthenticate: 'Bearer resource_metadata="http://inner/"', status: 401 };
    const refused = callerFault("x", new Fault("Unavailable", "it does not accept our credentials", { extra }));
    expect(refused.detail.extra).toEqual({ status: 401 });
    expect(callerFault("x", new Error("application a has no secret DB_PASSWORD")).message).not.toContain("DB_PASSWORD");
  });
});
