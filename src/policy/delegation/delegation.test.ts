import { generateKeyPairSync, sign } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DelegationRefused, decodeBlock, encodeBlock } from "./block.js";
import { ChainReader, type DelegationChain, type DelegationRules } from "./chain.js";
import { SpentNonces } from "./check.js";
import { exportDelegationKeys, generateDelegationKeys, importDelegationKeys } from "./keys.js";
import { extendHmac, extendSigned } from "./proof.js";
import { handOnDelegation, mintDelegation, spendDelegation, takeDelegationAcross } from "./token.js";

const keys = generateDelegationKeys();
const otherGateway = generateDelegationKeys();
const ALL = new Set(["f.read", "f.write", "n.send"]);

/** boss → lead → worker, and worker → lead; all are offered everything, lead → worker passes no f.write. */
const rules: DelegationRules = {
  workflow: "w1",
  isRoot: (agent) => agent === "boss",
  offered: (agent) => (["boss", "lead", "worker"].includes(agent) ? ALL : undefined),
  passedOn: (from, to) => {
    if (from === "boss" && to === "lead") return () => true;
    if (from === "lead" && to === "worker") return (capability) => capability !== "f.write";
    return from === "worker" && to === "lead" ? () => true : undefined;
  },
  takes: () => true,
  admits: () => true,
  allows: () => true,
  fits: () => true,
  toolOf: (capability) => capability,
  capabilityOf: (tool) => tool,
};
const at = (gateway: typeof keys, trusted: string[] = [], now?: () => number): ChainReader =>
  new ChainReader({ keys: () => gateway, rules: () => rules, trusted, now });
const here = at(keys);
const there = at(otherGateway, [keys.publicKey]);

function refusal(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof DelegationRefused) return error.code;
    throw error;
  }
  return "accepted";
}

const names = (chain: DelegationChain): string[] => [...chain.capabilities].sort();

describe.each([
  ["an HMAC chain", false],
  ["signed blocks", true],
])("a delegation as %s", (_kind, across) => {
  const boss = mintDelegation(keys, { agent: "boss", across });
  const lead = handOnDelegation(boss, { to: "lead", tools: ["f.read", "f.write"] });
  const worker = handOnDelegation(lead, { to: "worker" });

  it("says who calls, by which way, and what is left", () => {
    const chain = here.read(spendDelegation(worker));
    expect(chain.agents).toEqual(["boss", "lead", "worker"]);
    expect(names(chain)).toEqual(["f.read"]);
    expect(names(here.read(spendDelegation(boss)))).toEqual(["f.read", "f.write", "n.send"]);
    expect(chain.record).toMatchObject({
      delegation: {
        issuer: keys.gateway,
        workflow: "w1",
        chain: [
          { agent: "boss", holds: 3 },
          { agent: "lead", holds: 2, tools: ["f.read", "f.write"] },
          { agent: "worker", holds: 1 },
        ],
      },
    });
  });

  it("cannot be widened: a tool that the delegator does not hold, or more time than it has [L4]", () => {
    expect(refusal(() => here.read(spendDelegation(handOnDelegation(lead, { to: "worker", tools: ["n.send"] }))))).toBe(
      "widened",
    );
    expect(refusal(() => here.read(spendDelegation(handOnDelegation(lead, { to: "worker", ttlMs: 7_200_000 }))))).toBe(
      "widened",
    );
  });

  it("narrows arguments only of what is handed on: a misspelt name would narrow nothing", () => {
    const narrow = (token: string, to: string, capability: string, tools?: string[]): string =>
      refusal(() =>
        here.read(spendDelegation(handOnDelegation(token, { to, tools, arguments: { [capability]: false } }))),
      );
    expect(narrow(boss, "lead", "f.write")).toBe("accepted");
    expect(narrow(boss, "lead", "f.wrlte")).toBe("malformed");
    expect(narrow(boss, "lead", "f.write", ["f.read"])).toBe("malformed");
    expect(narrow(lead, "worker", "n.send")).toBe("malformed");
    // Given by its delegator, and withheld by the workflow: the condition holds and has no effect.
    expect(narrow(lead, "worker", "f.write")).toBe("accepted");
  });

  it("says so when it is handed on, as soon as the token tells what it is for", () => {
    const on = (token: string, capability: string) => () =>
      handOnDelegation(token, { to: "worker", arguments: { [capability]: {} } });
    expect(on(lead, "f.wrlte")).toThrow(
      "`worker` was given narrower arguments of `f.wrlte`, which is not handed on to it; did you mean `f.write`?",
    );
    expect(on(worker, "n.send")).toThrow("which is not handed on to it");
    expect(refusal(on(boss, "f.wrlte"))).toBe("accepted");
    expect(refusal(() => handOnDelegation(boss, { to: "lead", arguments: { "f.read": 5 as never } }))).toBe(
      "malformed",
    );
    expect(refusal(() => handOnDelegation(boss, { to: "" }))).toBe("malformed");
    expect(refusal(() => mintDelegation(keys, { agent: "", across }))).toBe("malformed");
  });

  it("rejects a token with a condition that the reader does not fully understand", () => {
    const block = { kind: "hop", to: "lead", arguments: { "f.read": { maxLenght: 5 } } } as const;
    const token = across ? extendSigned(boss, block) : extendHmac(boss, encodeBlock(block));
    expect(() => here.read(spendDelegation(token))).toThrow("is not a keyword of 2020-12, and would narrow nothing");
  });

  it("goes only where the workflow has a delegation, and starts only at a root", () => {
    expect(refusal(() => here.read(spendDelegation(handOnDelegation(boss, { to: "worker" }))))).toBe("not-declared");
    expect(refusal(() => here.read(spendDelegation(handOnDelegation(boss, { to: "unknown" }))))).toBe("not-declared");
    expect(refusal(() => here.read(spendDelegation(mintDelegation(keys, { agent: "lead", across }))))).toBe(
      "not-declared",
    );
  });

  it("expires, at whichever end comes first", () => {
    const later = at(keys, [], () => Date.now() + 3_599_000);
    const fresh = spendDelegation(worker, { ttlMs: 150 });
    expect(refusal(() => at(keys, [], clock(-1_000, 50)).read(fresh))).toBe("accepted");
    expect(refusal(() => at(keys, [], clock(-1_000, 200)).read(fresh))).toBe("expired");
    expect(refusal(() => later.read(spendDelegation(worker)))).toBe("expired");
    const short = handOnDelegation(lead, { to: "worker", ttlMs: 1_000 });
    expect(refusal(() => at(keys, [], clock(-1_000, 2_000)).read(spendDelegation(short)))).toBe("expired");
  });

  it("is not accepted from before the gateway started, whose memory of nonces begins there", () => {
    const before = spendDelegation(worker);
    expect(refusal(() => at(keys, [], clock(1_000, 1_010)).read(before))).toBe("expired");
  });

  it("may not be spent for long: nonces are remembered for a bounded time", () => {
    expect(refusal(() => here.read(spendDelegation(worker, { ttlMs: 600_000 })))).toBe("malformed");
  });

  it("is for one gateway", () => {
    expect(refusal(() => here.read(spendDelegation(worker, { audience: otherGateway.gateway })))).toBe(
      "wrong-audience",
    );
  });

  it("is never sent unspent, and nothing follows once it is spent", () => {
    expect(refusal(() => here.read(worker))).toBe("unspent");
    const after = refusal(() => here.read(spendDelegation(handOnDelegation(spendDelegation(worker), { to: "lead" }))));
    expect(after).toBe("malformed");
  });

  it("is refused at any change of any character", () => {
    const token = spendDelegation(worker);
    const CHARACTERS = "ABCabc019-_.~";
    fc.assert(
      fc.property(fc.nat(token.length - 1), fc.constantFrom(...CHARACTERS), (position, character) => {
        const changed = token.slice(0, position) + character + token.slice(position + 1);
        if (changed === token) return;
        expect(["forged", "malformed"]).toContain(refusal(() => here.read(changed)));
      }),
      { numRuns: across ? 150 : 400 },
    );
  });

  it("is refused when a block is left out, moved or repeated", () => {
    const token = spendDelegation(worker);
    const end = token.lastIndexOf("~");
    const step = across ? 2 : 1;
    const body = token.slice(5, end).split(".");
    const blocks = Array.from({ length: body.length / step }, (_, i) => body.slice(i * step, (i + 1) * step));
    const put = (list: string[][]): string => `${token.slice(0, 5)}${list.flat().join(".")}${token.slice(end)}`;
    expect(put(blocks)).toBe(token);
    for (const i of blocks.keys()) {
      expect(["forged", "malformed", "unspent"]).toContain(refusal(() => here.read(put(blocks.toSpliced(i, 1)))));
      expect(["forged", "malformed", "unspent"]).toContain(
        refusal(() => here.read(put(blocks.toSpliced(i, 0, blocks[i] ?? [])))),
      );
    }
    expect(["forged", "malformed", "unspent"]).toContain(refusal(() => here.read(put(blocks.toReversed()))));
  });

  it("has limits: blocks and length", () => {
    const long = (): string =>
      Array.from({ length: 40 }, (_, i) => (i % 2 === 0 ? "worker" : "lead")).reduce(
        (token, to) => handOnDelegation(token, { to }),
        lead,
      );
    expect(refusal(() => here.read(spendDelegation(long())))).toBe("malformed");
    expect(
      refusal(() =>
        handOnDelegation(boss, {
          to: "lead",
          tools: Array.from({ length: 900 }, (_, i) => `tool-${i}-${"x".repeat(20)}`),
        }),
      ),
    ).toBe("malformed");
  });
});

/** First what the gateway sees when it starts, then what it sees afterwards, in milliseconds from now. */
function clock(start: number, then: number): () => number {
  const now = Date.now();
  let isFirst = true;
  return () => {
    const time = now + (isFirst ? start : then);
    isFirst = false;
    return time;
  };
}

describe("between gateways", () => {
  const boss = mintDelegation(keys, { agent: "boss" });
  const lead = handOnDelegation(boss, { to: "lead", tools: ["f.read"] });

  it("rejects an HMAC chain at another gateway until its own gateway converts it", () => {
    const audience = otherGateway.gateway;
    expect(refusal(() => there.read(spendDelegation(lead, { audience })))).toBe("forged");
    const signed = takeDelegationAcross(keys, lead);
    const chain = there.read(spendDelegation(handOnDelegation(signed, { to: "worker" }), { audience }));
    expect(chain.agents).toEqual(["boss", "lead", "worker"]);
    expect(names(chain)).toEqual(["f.read"]);
    expect(refusal(() => takeDelegationAcross(otherGateway, lead))).toBe("forged");
    expect(refusal(() => takeDelegationAcross(keys, spendDelegation(lead)))).toBe("malformed");
  });

  it("only gateways that are trusted are believed, and none can go by another's name", () => {
    const stranger = generateDelegationKeys();
    const token = mintDelegation(stranger, { agent: "boss", across: true });
    expect(refusal(() => there.read(spendDelegation(token, { audience: otherGateway.gateway })))).toBe("forged");
    const posing = mintDelegation({ ...stranger, gateway: keys.gateway }, { agent: "boss", across: true });
    expect(refusal(() => there.read(spendDelegation(posing, { audience: otherGateway.gateway })))).toBe("forged");
    const inside = mintDelegation({ ...keys, gateway: stranger.gateway }, { agent: "boss" });
    expect(refusal(() => here.read(spendDelegation(inside, { audience: keys.gateway })))).toBe("forged");
  });

  it("a block signed by anybody but the holder of the key before it is refused", () => {
    const [head, block, signature] = splitLast(
      spendDelegation(takeDelegationAcross(keys, lead), { audience: otherGateway.gateway }),
    );
    const wide = JSON.stringify({
      ...JSON.parse(Buffer.from(block, "base64url").toString()),
      exp: Date.now() + 200_000,
    });
    const mine = sign(null, Buffer.from(wide), generateKeyPairSync("ed25519").privateKey).toString("base64url");
    for (const forged of [mine, signature]) {
      const token = `${head}.${Buffer.from(wide).toString("base64url")}.${forged}~`;
      expect(refusal(() => there.read(token))).toBe("forged");
    }
  });

  function splitLast(token: string): [string, string, string] {
    const parts = token.slice(0, token.lastIndexOf("~")).split(".");
    return [parts.slice(0, -2).join("."), parts.at(-2) ?? "", parts.at(-1) ?? ""];
  }
});

describe("a block", () => {
  it.each([
    '{"to":"a","unless":"x"}',
    '{"to":""}',
    '{"to":"a","tools":"all"}',
    '{"to":"a","tools":[1]}',
    "[]",
    "{",
    '{"use":"n"}',
    '{"to":"a","to":"b"}',
    '{"to":"a","arguments":{"t":5}}',
  ])("a block that is not wholly understood is refused: %s", (text) => {
    expect(refusal(() => decodeBlock(text))).toBe("malformed");
  });
});

describe("keys", () => {
  it("keys survive a file, and a broken file is refused", () => {
    const read = importDelegationKeys(exportDelegationKeys(keys));
    expect([read.gateway, read.publicKey]).toEqual([keys.gateway, keys.publicKey]);
    expect(refusal(() => here.read(spendDelegation(mintDelegation(read, { agent: "boss" }))))).toBe("accepted");
    expect(() => importDelegationKeys("{}")).toThrow("cannot be read");
    const mixed = JSON.stringify({ ...JSON.parse(exportDelegationKeys(keys)), public: otherGateway.publicKey });
    expect(() => importDelegationKeys(mixed)).toThrow("cannot be read");
  });
});

describe("spent nonces", () => {
  it("spent nonces count once for each request, and inside one request as the same use", () => {
    const spent = new SpentNonces(1_000);
    const request = {};
    expect(refusal(() => spent.spend("a", request, 0))).toBe("accepted");
    expect(refusal(() => spent.spend("a", request, 1))).toBe("accepted");
    expect(refusal(() => spent.spend("a", {}, 2))).toBe("replayed");
  });

  it("spent nonces are remembered for at least their lifetime, and not for ever", () => {
    const spent = new SpentNonces(1_000);
    spent.spend("early", {}, 0);
    spent.spend("late", {}, 990);
    spent.spend("next", {}, 1_500);
    expect(refusal(() => spent.spend("late", {}, 1_980))).toBe("replayed");
    spent.spend("again", {}, 3_000);
    spent.spend("last", {}, 4_100);
    expect(spent.size).toBe(2);
  });

  it("spent nonces that cannot be remembered are not let through", () => {
    const spent = new SpentNonces(1_000, 2);
    spent.spend("a", {}, 0);
    spent.spend("b", {}, 0);
    expect(refusal(() => spent.spend("c", {}, 0))).toBe("too-many");
  });
});
