import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { credentialsInArguments, credentialsInText, credentialsInUrl, replaceSpans } from "./spans.js";

const shown = (args: readonly string[]): string[] => {
  const found = credentialsInArguments(args.map((text) => ({ text, isSecret: false })));
  return args.map((text, i) => replaceSpans(text, found[i] ?? [], () => "[X]"));
};

describe("credentials in arguments", () => {
  const GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
  it.each<[string[], string[]]>([
    [
      ["run", "-e", `GITHUB_PERSONAL_ACCESS_TOKEN=${GITHUB}`, "ghcr.io/github/github-mcp-server"],
      ["run", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN=[X]", "ghcr.io/github/github-mcp-server"],
    ],
    [
      ["--env", "DB_PASSWORD=correct horse"],
      ["--env", "DB_PASSWORD=[X]"],
    ],
    [["--env=API_KEY=abcdefabcdef1234"], ["--env=API_KEY=[X]"]],
    [["-eGH_PAT=hunter2"], ["-eGH_PAT=[X]"]],
    [
      ["-e", `PLAIN=${GITHUB}`],
      ["-e", "PLAIN=[X]"],
    ],
    [
      ["-e", "LOG_LEVEL=debug", "-e", "REGION", "-e", "HOME=/home/me"],
      ["-e", "LOG_LEVEL=debug", "-e", "REGION", "-e", "HOME=/home/me"],
    ],
    [
      ["-c", "TOKEN=sk-ant-api03-aaaaaaaaaaaaaaaa exec foo"],
      ["-c", "TOKEN=[X] exec foo"],
    ],
    [
      ["-lc", `export PW_TOKEN='a b c'; curl -H "X-Api-Key: abc" https://u:pw@h/x && run --api-key "k e y" --port 80`],
      ["-lc", `export PW_TOKEN='[X]'; curl -H "X-Api-Key: [X]" https://u:[X]@h/x && run --api-key "[X]" --port 80`],
    ],
    [
      ["/c", "set API_KEY=abc&& server.cmd"],
      ["/c", "set API_KEY=[X]&& server.cmd"],
    ],
    [
      ["--api-key", "LITERAL", "--token=abc", "--password", "hunter2", "--port", "80"],
      ["--api-key", "[X]", "--token=[X]", "--password", "[X]", "--port", "80"],
    ],
    [
      ["--header", "Authorization:Bearer abcdefgh12345678", "-H", "X-Region:  eu"],
      ["--header", "Authorization:Bearer [X]", "-H", "X-Region:  eu"],
    ],
    [
      ["--config", '{"apiKey":"abc","region":"eu","headers":{"Authorization":"Bearer ntn_1"}}'],
      ["--config", '{"apiKey":"[X]","region":"eu","headers":{"Authorization":"Bearer [X]"}}'],
    ],
    [["postgresql://user:p%40ss@db.example.com/mydb"], ["postgresql://user:[X]@db.example.com/mydb"]],
    [["postgresql://user:p/w?r#d@db.example.com/mydb"], ["postgresql://user:[X]@db.example.com/mydb"]],
    [["Server=tcp:db;User=sa;Password=p4ss;Encrypt=yes"], ["Server=tcp:db;User=sa;Password=[X];Encrypt=yes"]],
    [["host=db user=me password=p4ss"], ["host=db user=me password=[X]"]],
    [
      [`prefix-${GITHUB}`, `a ${GITHUB} b`],
      ["prefix-[X]", "a [X] b"],
    ],
  ])("%j: found", (args, expected) => {
    expect(shown(args)).toEqual(expected);
  });

  it.each([
    "github_pat_11ABCDEFG0aaaaaaaaaaaaaa_bbbbbbbbbb",
    "glpat-xxxxxxxxxxxxxxxxxxxx",
    "sk-proj-abcdefghijklmnop",
    "sk-ant-api03-abcdefghijkl",
    "xoxb-123456789012-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "hf_abcdefghijklmnopq7stuv",
    "dop_v1_0123456789abcdef0123",
    "SG.abcdefghijklmnop.qrstuvwxyz0123456789",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
  ])("%s is known by its mark, wherever it stands", (token) => {
    for (const text of [token, `x=${token}`, `--with=${token}`, `say "${token}" now`, `https://h/${token}/x`]) {
      expect(shown([text])[0], text).not.toContain(token.slice(0, 12));
    }
  });

  it("credentials in arguments are told from images, ports, directories, packages, names and sentences", () => {
    const plain = [
      ..."run -i --rm node:20 localhost:5432 -v C:\\Users\\me:/data -p 8080:80 http:foo".split(" "),
      "-v",
      "secrets:/run/secrets",
      "-v",
      "./secrets:/run/secrets",
      "C:\\secrets:/data",
      "@modelcontextprotocol/server-memory@1.2.3",
      "task-force-alpha-beta-gamma",
      "https://h:8080/@scope/pkg",
      "/data/sk-learn-models/x",
      "the secret_santa_generator module",
      "a: b",
      "note:  two blanks",
      "x:y:z",
      "-y",
      "--stdio",
      "key.pem",
      "https://h.example/a?b=c#d",
      "a sentence",
      "${secret:a.TOKEN}",
      "--token=${secret:a.b}",
      "--api-key",
      "${env:KEY}",
      "Authorization: Bearer ${secret:x}",
      "postgres://u:${secret:pw}@h/db?api_key=${env:K}",
    ];
    expect(shown(plain)).toEqual(plain);
  });

  it("nothing but them is touched: put back, every argument is what it was [H5]", () => {
    const piece = fc.oneof(
      fc.string({ maxLength: 12 }),
      fc.constantFrom(
        "-e",
        "--env=",
        "TOKEN=",
        "--api-key",
        "Authorization:",
        " Bearer ",
        "https://u:p@h",
        "?token=x",
        "node:20",
        "ghp_0123456789abcdef",
        "C:\\",
        "\n",
        "'",
        '"',
        "${secret:a}",
        "sk-ant-0123456789",
        "@",
        "=",
        ":",
        " ",
      ),
    );
    const argument = fc.array(piece, { maxLength: 5 }).map((pieces) => pieces.join(""));
    fc.assert(
      fc.property(fc.array(fc.record({ text: argument, isSecret: fc.boolean() }), { maxLength: 6 }), (values) => {
        const found = credentialsInArguments(values);
        values.forEach(({ text }, i) => {
          const taken: string[] = [];
          const out = replaceSpans(text, found[i] ?? [], (_span, value) => {
            taken.push(value);
            return "\u0001";
          });
          if (taken.length === 0) expect(out).toBe(text);
          expect(
            out
              .split("\u0001")
              .flatMap((part, n) => [part, taken[n] ?? ""])
              .join(""),
          ).toBe(text);
          expect(taken.every((value) => value !== "")).toBe(true);
        });
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("credentials in addresses and texts", () => {
  it.each([
    ["https://u:PW@host/x?api_key=K&a=1#access_token=T", "https://u:[X]@host/x?api_key=[X]&a=1#access_token=[X]"],
    ["https://ghp_0123456789abcdef@github.com/a/b", "https://[X]@github.com/a/b"],
    ["https://h/s/Zm9vYmFy1YmF6cXV4Mzk0NTY3ODkw/mcp", "https://h/s/[X]/mcp"],
    ["https://h/?token=a%20b&x=y@z", "https://h/?token=[X]&x=y@z"],
    ["https://h:8080/mcp?model=gpt-4&v=2", "https://h:8080/mcp?model=gpt-4&v=2"],
  ])("%s", (url, expected) => {
    expect(replaceSpans(url, credentialsInUrl(url), () => "[X]")).toBe(expected);
  });

  it("a value that holds one inside is found", () => {
    const value = '{"Authorization": "Bearer ntn_abc", "Notion-Version": "2022-06-28"}';
    expect(credentialsInText(value).map(({ start, end }) => value.slice(start, end))).toEqual(["ntn_abc"]);
    expect(credentialsInText("--max-old-space-size=4096 --inspect")).toEqual([]);
  });

  it("takes no longer than the text is long", () => {
    for (const part of ["a=", "eyJ", "-----BEGIN PRIVATE KEY", "://", '"a":"', "Bearer ", "--a ", "x@", "sk-"]) {
      const text = part.repeat(20_000);
      const begin = process.cpuUsage();
      credentialsInText(text);
      credentialsInUrl(text);
      expect(process.cpuUsage(begin).user, part).toBeLessThan(2_000_000);
    }
  });
});
