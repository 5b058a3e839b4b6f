// What a dry run of a sweep found, in words: for the form and for the editor.

/** @import { CostView, SweepCheck } from "./api.d.ts" */

import { fill, h, one } from "./dom.js";
import { duration, formatBytes, formatFlops, integer } from "./units.js";

/** @param {number} count @param {string} word */
export function plural(count, word) {
  return `${integer(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** "about 5 h 20 min", or nothing where nothing is known. @param {CostView} cost */
function timeText({ seconds, days, rehearsed }) {
  if (seconds === null) return "";
  return `${rehearsed ? "roughly" : "about"} ${duration(seconds)}${
    days === null ? "" : ` within its window on ${plural(days, "day")}`
  }`;
}

/** "on this worker", and with several slots on all of them. @param {{slots: number}} cost */
export function placeText({ slots }) {
  return slots > 1 ? `on ${integer(slots)} slots` : "on this worker";
}

/** @param {SweepCheck} plan */
export function costText(plan) {
  const { cost, to_run: count } = plan;
  if (!count) return "nothing to run";
  if (cost.seconds === null) return "no measurement yet";
  return `${timeText(cost)} ${placeText(cost)}${
    cost.unknown_seconds ? `; no measurement yet for ${integer(cost.unknown_seconds)} of ${integer(count)}` : ""
  }`;
}

/** @param {SweepCheck} plan */
export function bytesText({ cost }) {
  if (cost.bytes === null) return "no measurement yet";
  return `${formatBytes(cost.bytes)}${
    cost.unknown_bytes ? `; no measurement yet for ${integer(cost.unknown_bytes)}` : ""
  }`;
}

/** What the clients compute, as far as it is known. @param {SweepCheck} plan */
export function flopsText({ cost }) {
  if (cost.flops === null) return "no measurement yet";
  return `${formatFlops(cost.flops)}${
    cost.unknown_flops ? `; no measurement yet for ${integer(cost.unknown_flops)}` : ""
  }`;
}

/** What the button does and what that costs. @param {SweepCheck} plan */
export function queueText(plan) {
  if (!plan.to_run) return "Collect what is there";
  const time = timeText(plan.cost);
  return `Queue ${plural(plan.to_run, "experiment")}${time ? ` (${time})` : ""}`;
}

/** What of the sweep will not be run anew, as a part of a sentence. @param {SweepCheck} plan */
export function restText(plan) {
  const reused = Object.entries(plan.reused).map(([state, count]) => `${integer(count)} ${state} already`);
  const lost = plan.not_applicable.reduce((sum, item) => sum + item.experiments, 0);
  return [
    ...reused,
    lost ? `${integer(lost)} not applicable` : "",
    plan.excluded ? `${integer(plan.excluded)} excluded` : "",
  ].filter(Boolean).join(", ");
}

/**
 * @param {SweepCheck} plan @returns {{field: string, message: string}[]} with the experiments in which a problem stands
 */
export function problemsOf(plan) {
  return plan.refused.map(({ field, message, experiments, example }) => ({
    field,
    message: experiments
      ? `${message} (in ${example || "all"}${experiments > 1 ? ` and ${integer(experiments - 1)} more` : ""})`
      : message,
  }));
}

/** The combinations that are listed and not run, each with its reason. @param {SweepCheck|null} plan */
export function showNotApplicable(plan) {
  one("#not-applicable").hidden = !plan?.not_applicable.length;
  fill(
    one("#not-applicable .reasons"),
    plan?.not_applicable.map((item) =>
      h("li", {}, h("code", {}, item.cell), h("span", {}, `${item.reason} (${plural(item.experiments, "experiment")})`))
    ) ?? [],
  );
}

/**
 * Asks again until nothing is unknown or nothing was learned: each answer rehearses for some seconds only.
 * @param {SweepCheck} plan @param {() => Promise<SweepCheck>} ask @param {(plan: SweepCheck) => void} show
 */
export async function rehearse(plan, ask, show) {
  for (let known = plan; known.ok && known.cost.unknown_seconds > 0;) {
    const next = await ask();
    show(next);
    if (next.cost.unknown_seconds >= known.cost.unknown_seconds) return;
    known = next;
  }
}
