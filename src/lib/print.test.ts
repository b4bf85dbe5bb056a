import { expect, it } from "vitest";
import { displayWidth, fitted, table } from "./print.js";

const ROWS = [
  [
    "filesystem.read_text_file",
    "",
    "Read the complete contents of a file from the file system as text. Handles encodings.",
  ],
  [`server.${"very_long_".repeat(12)}name`, "asks a person", "short"],
  [
    "日本語.ツール",
    "asks a person",
    "ファイルシステムから完全な内容をテキストとして読み取ります。エンコーディングを処理します。👍🏽 é",
  ],
];

it.each([40, 80, 120])("fits every row of a table into a terminal of %d columns", (width) => {
  const lines = table(["tool", "outlook", "description"], ROWS, width).split("\n");
  expect(lines).toHaveLength(ROWS.length + 1);
  for (const line of lines) expect(displayWidth(line), line).toBeLessThanOrEqual(width);
  expect(lines[1]).toContain("…");
});

it("keeps the first column whole while the others can be cut, because the next command needs it", () => {
  const id = "ch_TsDVItR7YUxahT6x";
  const row = [id, "pending", "local/root", "notes.delete", '{"title":"demo/x"}', "Deleting a note needs an approval."];
  for (const width of [60, 80]) {
    const [, line = ""] = table(["id", "state", "who", "tool", "arguments", "why"], [row], width).split("\n");
    expect(line.startsWith(`${id}  `), line).toBe(true);
    expect(displayWidth(line)).toBeLessThanOrEqual(width);
  }
});

it("keeps the effect of a record whole on a narrow terminal, and cuts the cells before it", () => {
  const cells = [{ text: "ledger#37" }, { text: "fs.read_text_file" }, { text: "permit", isKept: true }];
  expect(fitted([...cells, { text: "because of a rule" }], 40)).toBe("ledger#37 fs.read_text_file permit beca…");
  expect(fitted([...cells, { text: "because of a rule" }], 26)).toBe("ledger#37 fs.read_… permit");
});

it("aligns the columns of rows with wide characters", () => {
  const [, plain = "", wide = ""] = table(
    ["a", "b"],
    [
      ["xxxx", "|"],
      ["日本", "|"],
    ],
    80,
  ).split("\n");
  expect(plain.indexOf("|")).toBe(6);
  expect(displayWidth(wide.slice(0, wide.indexOf("|")))).toBe(6);
});

it("cuts nothing when the output is piped, whatever COLUMNS is", () => {
  process.env.COLUMNS = "20";
  try {
    const text = table(["tool", "outlook", "description"], ROWS);
    for (const cell of ROWS.flat()) expect(text).toContain(cell);
  } finally {
    delete process.env.COLUMNS;
  }
});
