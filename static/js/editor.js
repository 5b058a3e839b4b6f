// A text field with line numbers for YAML: problems are listed below it and marked in the margin.

/** @import { Problem } from "./types.d.ts" */

import { fill, h, one } from "./dom.js";

/**
 * @param {HTMLTextAreaElement} area
 * @returns {{showProblems: (problems: {field: string, message: string}[]) => void, drawLines: (bad?: Set<number>) => void}}
 */
export function makeEditor(area) {
  const lines = one("#lines");

  /** Line numbers beside the text, the wrong ones marked. @param {Set<number>} bad */
  function drawLines(bad = new Set()) {
    const count = area.value.split("\n").length;
    fill(
      lines,
      Array.from(
        { length: count },
        (_, index) => h("span", { class: bad.has(index + 1) ? "bad" : null }, String(index + 1)),
      ),
    );
    lines.scrollTop = area.scrollTop;
  }

  /**
   * A text that ends too early is found wrong behind its end: the last line with something in it is meant.
   * @param {number} line
   */
  function writtenLine(line) {
    return Math.min(line, area.value.trimEnd().split("\n").length);
  }

  /** @param {number} line */
  function goTo(line) {
    const rows = area.value.split("\n");
    const start = rows.slice(0, line - 1).reduce((sum, row) => sum + row.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + rows[line - 1].length);
  }

  /** @param {Problem[]} problems */
  function showProblems(problems) {
    area.setAttribute("aria-invalid", String(problems.length > 0));
    /** @type {Set<number>} */
    const bad = new Set();
    fill(
      one("#problems"),
      problems.map(({ field, message }) => {
        const line = /^line \d+$/.test(field)
          ? writtenLine(Number(field.slice(5)))
          : field
          ? lineOf(area.value, field)
          : 0;
        if (line) bad.add(line);
        return h(
          "li",
          { data: { field } },
          field ? h("code", {}, field) : null,
          h("span", {}, message),
          line
            ? h("button", { type: "button", class: "tool", on: { click: () => goTo(line) } }, `Go to line ${line}`)
            : null,
        );
      }),
    );
    drawLines(bad);
  }

  area.addEventListener("scroll", () => (lines.scrollTop = area.scrollTop));
  return { showProblems, drawLines };
}

const CARRIED = "#text=";

/**
 * A page with this text in it: the part behind # stays in the browser, so it may be long.
 * @param {string} page @param {string} text
 */
export function linkTo(page, text) {
  return `${page}${CARRIED}${encodeURIComponent(text).replaceAll("%20", "+")}`;
}

/** The text that an address carries; null without one. */
export function textOfAddress() {
  if (!location.hash.startsWith(CARRIED)) return null;
  try {
    return decodeURIComponent(location.hash.slice(CARRIED.length).replaceAll("+", "%20"));
  } catch (error) {
    console.info("The address carries no readable text.", error);
    return null;
  }
}

/** Puts the text into the address, so that a link or a reload brings it back. @param {string} text */
export function keepInAddress(text) {
  history.replaceState(null, "", linkTo(location.pathname, text));
}

/**
 * Keeps what was typed for this tab; null forgets it. A browser may forbid it.
 * @param {string} name @param {string|null} text
 */
export function keepDraft(name, text) {
  try {
    if (text === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, text);
  } catch (error) {
    console.info("The draft is not kept because storage is blocked.", error);
  }
}

/** @param {string} name @returns {string|null} */
export function keptDraft(name) {
  try {
    return sessionStorage.getItem(name);
  } catch (error) {
    console.info("No draft is kept because storage is blocked.", error);
    return null;
  }
}

const LIST = "fedarena.list";

/** Keeps how the list of experiments is filtered and sorted, for the way back to it. */
export function keepList() {
  const query = new URLSearchParams(location.search);
  query.delete("selected");
  keepDraft(LIST, query.toString());
}

/** The address of the list as this tab last showed it. @param {Record<string, string>} more */
export function listBefore(more) {
  const query = new URLSearchParams(keptDraft(LIST) ?? "");
  for (const [key, value] of Object.entries(more)) query.set(key, value);
  return `/experiments?${query}`;
}

/**
 * The line of the text in which a field stands, written as one path or as nested blocks; 0 when it is not there.
 * @param {string} text @param {string} path
 */
function lineOf(text, path) {
  const rows = text.split("\n");
  const whole = rows.findIndex((row) => keyPattern(path).test(row));
  if (whole >= 0) return whole + 1;
  const parts = path.split(".");
  const top = rows.findIndex((row) => new RegExp(`^\\s{0,2}"?${escapePattern(parts[0])}"?\\s*:`).test(row));
  if (top < 0) return 0;
  for (const part of parts.slice(1).reverse()) {
    const inner = rows.findIndex((row, index) => index >= top && keyPattern(part).test(row));
    if (inner >= 0) return inner + 1;
  }
  return top + 1;
}

/** @param {string} key */
function keyPattern(key) {
  return new RegExp(`(^|[\\s{,"])${escapePattern(key)}"?\\s*:`);
}

/** @param {string} text */
function escapePattern(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
