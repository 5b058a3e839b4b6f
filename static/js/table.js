// Tables as text: CSV for programs, Markdown for notes, LaTeX (booktabs) for papers.

import { vocabulary } from "./vocabulary.js";

/** A spreadsheet would run a cell that starts with one of these letters as a formula. @param {string} cell */
function harmless(cell) {
  return /^[=+\-@\t\r]/.test(cell) && Number.isNaN(Number(cell)) ? `'${cell}` : cell;
}

/**
 * A cell is a value, or one that stands out: the best of its column.
 * @param {unknown} value @typedef {{text: string, best: boolean}} Best @returns {value is Best}
 */
function isBest(value) {
  return typeof value === "object" && value !== null && "best" in value && value.best === true;
}

/** @param {unknown} value @returns {unknown} */
function textOf(value) {
  return typeof value === "object" && value !== null && "text" in value ? value.text : value;
}

/** @param {unknown[][]} rows */
export function csv(rows) {
  /** @type {(given: unknown) => string} */
  const cell = (given) => {
    const value = textOf(given);
    const text = harmless(value === null || value === undefined ? "" : String(value));
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** @param {unknown[][]} rows the first row is the head @param {string} note a line below, where there is one */
export function markdown(rows, note = "") {
  /** @type {(value: unknown) => string} */
  const cell = (value) => {
    const text = String(textOf(value) ?? "").replaceAll("|", "\\|").replaceAll("\n", " ");
    return isBest(value) ? `**${text}**` : text;
  };
  const [head, ...body] = rows;
  /** @type {(row: unknown[]) => string} */
  const line = (row) => `| ${row.map(cell).join(" | ")} |`;
  const below = note ? ["", note] : [];
  return [line(head), `|${head.map((_, index) => (index ? "---:" : "---")).join("|")}|`, ...body.map(line), ...below]
    .join("\n") + "\n";
}

/** What LaTeX would take as a command, or print as another sign, is written the way it wants. @param {string} text */
function tex(text) {
  return [...text].map((letter) => vocabulary.latex[letter] ?? letter).join("");
}

/** @param {unknown[][]} rows the first row is the head @param {string} note a line below, where there is one */
export function latex(rows, note = "") {
  /** @type {(value: unknown) => string} */
  const cell = (value) => {
    const text = tex(String(textOf(value) ?? ""));
    return isBest(value) ? `\\textbf{${text}}` : text;
  };
  const [head, ...body] = rows;
  /** @type {(row: unknown[]) => string} */
  const line = (row) => `  ${row.map(cell).join(" & ")} \\\\`;
  return [
    `\\begin{tabular}{l${"r".repeat(head.length - 1)}}`,
    "  \\toprule",
    line(head),
    "  \\midrule",
    ...body.map(line),
    "  \\bottomrule",
    "\\end{tabular}",
    ...(note ? [`\\par\\smallskip{\\footnotesize ${tex(note)}}`] : []),
    "",
  ].join("\n");
}
