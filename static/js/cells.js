// Cells of a sweep in words: the values of its swept fields, and what its experiments say together.

import { swatch } from "./chart-swatch.js";
import { methodStyle, methodTitle } from "./colours.js";
import { h } from "./dom.js";
import { fieldTitle, METHOD, show } from "./series.js";

/**
 * How many experiments of a sweep are in one of the states.
 * @param {Record<string, number>} counts @param {Set<string>} states
 */
export function countOf(counts, states) {
  return Object.entries(counts).reduce((sum, [state, count]) => sum + (states.has(state) ? count : 0), 0);
}

/** "3 queued, 2 running, 7 finished". @param {Record<string, number>} counts */
export function countsText(counts) {
  return Object.entries(counts)
    .map(([state, count]) => `${count} ${state.replaceAll("_", " ")}`)
    .join(", ");
}

/**
 * A value as a short text; an object by its name with the other fields behind it.
 * @param {any} value @returns {string}
 */
function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "object" || Array.isArray(value)) return show(value);
  const { name, ...rest } = value;
  const more = Object.entries(rest)
    .map(([key, inner]) => `${fieldTitle(key)} ${valueText(inner)}`)
    .join(", ");
  return [name, more].filter(Boolean).join(", ");
}

/**
 * The method that a swept value names, with its other fields as a text.
 * @param {string} path @param {any} value @returns {{method: string, rest: string}|null}
 */
function methodIn(path, value) {
  if (path === METHOD && typeof value === "string") return { method: value, rest: "" };
  if (path !== "algorithm" || typeof value?.name !== "string") return null;
  return { method: value.name, rest: valueText({ ...value, name: undefined }) };
}

/**
 * The content of a table cell for a swept value; methods have their colour and title.
 * @param {string} path @param {any} value
 */
export function valueNode(path, value) {
  const found = methodIn(path, value);
  if (!found) return valueText(value);
  return h(
    "span",
    { class: "method" },
    swatch(methodStyle(found.method)),
    methodTitle(found.method),
    found.rest ? h("span", { class: "muted" }, found.rest) : null,
  );
}

/**
 * A cell of a sweep in words: "FedProto, participation 0.5".
 * @param {string[]} paths @param {Record<string, any>} values
 */
export function cellText(paths, values) {
  /** @type {(path: string) => string} */
  const text = (path) => {
    const found = methodIn(path, values[path]);
    return found
      ? [methodTitle(found.method), found.rest].filter(Boolean).join(", ")
      : `${fieldTitle(path)} ${valueText(values[path])}`;
  };
  return paths.map(text).join(", ");
}

/**
 * A chosen setting in words: "lr 0.01, epochs 5"; of a method its parameters, as its name stands beside.
 * @param {Record<string, unknown>} values
 */
export function settingText(values) {
  /** @type {(field: [string, unknown]) => string[]} */
  const words = ([path, value]) => {
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return [`${fieldTitle(path)} ${show(value)}`];
    }
    return Object.entries(value).flatMap(([key, inner]) => (key === "name" ? [] : words([key, inner])));
  };
  return Object.entries(values).flatMap(words).join(", ") || "–";
}

/** The swept fields of a sweep in words. @param {{paths: string[]}} sweep */
export function sweptText(sweep) {
  return [...new Set(sweep.paths.map(fieldTitle))].join(", ");
}

/** @param {{name: string|null, paths: string[]}} sweep */
export function sweepTitle(sweep) {
  return sweep.name ?? `Sweep of ${sweptText(sweep) || "seeds"}`;
}
