// Cells of a sweep in words: the values of its swept fields, and what its experiments say together.

import { swatch } from "./chart-swatch.js";
import { methodStyle, methodTitle } from "./colours.js";
import { h } from "./dom.js";

export const ENDED = new Set(["finished", "failed", "cancelled", "diverged", "not_applicable"]);
export const RETRIED = new Set(["failed", "cancelled", "diverged"]);

/** How many experiments of a sweep are in one of the states. @param {Record<string, number>} counts @param {Set<string>} states */
export function countOf(counts, states) {
  return Object.entries(counts).reduce((sum, [state, count]) => sum + (states.has(state) ? count : 0), 0);
}

/** "3 queued, 2 running, 7 finished". @param {Record<string, number>} counts */
export function countsText(counts) {
  return Object.entries(counts).map(([state, count]) => `${count} ${state.replaceAll("_", " ")}`).join(", ");
}

/** A value as a short text; an object by its name with the other fields behind it. */
export function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return JSON.stringify(value);
  const { name, ...rest } = value;
  const more = Object.entries(rest).map(([key, inner]) => `${key} ${valueText(inner)}`).join(", ");
  return [name, more].filter(Boolean).join(", ");
}

/** The content of a table cell for a swept value; methods have their colour and title. */
export function valueNode(path, value) {
  const method = path === "algorithm" ? value?.name : path === "algorithm.name" ? value : null;
  if (typeof method !== "string") return valueText(value);
  const rest = typeof value === "object" ? valueText({ ...value, name: undefined }) : "";
  return h("span", { class: "method" }, swatch(methodStyle(method)), methodTitle(method), rest ? h("span", { class: "muted" }, rest) : null);
}

export function sweepTitle(sweep) {
  return sweep.name ?? `Sweep of ${sweep.paths.join(", ") || "seeds"}`;
}
