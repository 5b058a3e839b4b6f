// What a reader chose in a comparison, and its place in the address.

/** @import { Chart } from "../chart.js" */

import { setQuery } from "../dom.js";

/** @typedef {"round"|"bytes"|"flops"|"seconds"} Axis */

/**
 * What a reader chose.
 * @typedef {object} Choices
 * @property {Axis} axis
 * @property {boolean|null} logX null: chosen by the values, until a reader decides
 * @property {boolean} logY
 * @property {string} bands
 * @property {number} smooth
 * @property {string} by
 * @property {number|null} target
 * @property {string} at the moment of the accuracies of single clients
 * @property {string} first
 * @property {string} second
 * @property {string} field
 * @property {string} reference
 * @property {Set<string>} open the views that are open
 */

/** @type {Axis[]} */
export const AXES = ["round", "bytes", "flops", "seconds"];
const BANDS = new Set(["off", "hovered", "all"]);
/** @type {Record<string, string>} */
export const MOMENTS = { last: "last tested round", best: "best round", each: "each client’s own last test" };
/** Labels hold commas, so a bar separates them in the address. */
const BAR = "|";

const query = new URLSearchParams(location.search);

/** Percent in the address and in the field, a fraction inside. @param {string|null} text */
export function readTarget(text) {
  const value = Number(text);
  return text && Number.isFinite(value) && value > 0 && value <= 100 ? value / 100 : null;
}

/** All that decides the picture; every part has its place in the address. @returns {Choices} */
export function readChoices() {
  const bands = query.get("bands") ?? "";
  return {
    axis: AXES.find((axis) => axis === query.get("x")) ?? "round",
    logX: query.get("logx") === "1" ? true : query.get("logx") === "0" ? false : null,
    bands: BANDS.has(bands) ? bands : "",
    logY: query.get("logy") === "1",
    smooth: Math.min(1000, Math.max(1, Number.parseInt(query.get("smooth") ?? "1", 10) || 1)),
    by: query.get("by") ?? "",
    target: readTarget(query.get("target")),
    at: Object.keys(MOMENTS).find((moment) => moment === query.get("at")) ?? "last",
    first: query.get("a") ?? "",
    second: query.get("b") ?? "",
    field: query.get("field") ?? "",
    reference: query.get("ref") ?? "",
    open: new Set((query.get("open") ?? "").split(",").filter(Boolean)),
  };
}

/**
 * What a reader zoomed into or hid goes into the address too.
 * @param {Record<string, Chart>} charts by what comes before the names in the address
 */
export function remember(charts) {
  for (const [prefix, chart] of Object.entries(charts)) {
    const labels = chart.lines.filter((line) => chart.hidden.has(line.key)).map((line) => line.label);
    setQuery({
      [`${prefix}hide`]: labels.join(BAR),
      [`${prefix}zoom`]: chart.zoom ? chart.zoom.map((end) => Number(end.toPrecision(6))).join(":") : "",
    });
  }
}

/** @param {Record<string, Chart>} charts @param {{label: string, key: string}[]} groups */
export function recall(charts, groups) {
  for (const [prefix, chart] of Object.entries(charts)) {
    const hidden = new Set((query.get(`${prefix}hide`) ?? "").split(BAR).filter(Boolean));
    for (const group of groups) if (hidden.has(group.label)) chart.hidden.add(group.key);
    const zoom = (query.get(`${prefix}zoom`) ?? "").split(":").map(Number);
    if (zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1]) chart.zoom = [zoom[0], zoom[1]];
  }
}
