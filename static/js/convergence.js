// The mark of finished runs that did not converge, wherever their accuracy stands.

import { h } from "./dom.js";
import { vocabulary } from "./vocabulary.js";

export const NO_CONVERGENCE = vocabulary.no_convergence;
export const NOTE = `† ${NO_CONVERGENCE}.`;

/**
 * Behind an accuracy: nothing, a mark, or a mark with how many of the seeds it is about.
 * @param {number} some @param {number} of
 */
export function convergenceMark(some, of = some) {
  if (!some) return "";
  return some === of ? " †" : ` † (${some} of ${of})`;
}

/** The same as an element that says what it means. @param {number} some @param {number} of */
export function convergenceNode(some, of = some) {
  const text = convergenceMark(some, of);
  if (!text) return null;
  const spoken = some === of ? "no convergence" : `no convergence of ${some} of ${of} seeds`;
  return h("span", { title: NO_CONVERGENCE, role: "img", "aria-label": spoken }, text);
}
