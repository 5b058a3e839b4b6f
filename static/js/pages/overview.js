// The overview: what failed, runs, waits and finished, current without a reload.

/**
 * @import { SweepSummary } from "../api.d.ts"
 * @import { Experiment, OverviewPage } from "../types.d.ts"
 */

import { countOf, countsText, sweepTitle } from "../cells.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { convergenceNode, NOTE } from "../convergence.js";
import { fillRows, h, nameLink, one, pageData, setText, stateChip } from "../dom.js";
import { live, perFrame } from "../live.js";
import { applyRound, headlineOf } from "../series.js";
import { notice } from "../shell.js";
import { sparkline } from "../sparkline.js";
import { datasetText, experimentTitle, nameParts } from "../spec.js";
import { ago, clock, duration, integer, NONE, percent, percentNumber } from "../units.js";
import { ENDED } from "../vocabulary.js";

/** @type {OverviewPage} */
let data = pageData();

/** @param {Experiment} experiment */
const link = (experiment) =>
  nameLink(`/experiments/${experiment.id}`, nameParts(experimentTitle(experiment, methodTitle)));
/** @param {Experiment} experiment */
const method = (experiment) =>
  h(
    "span",
    { class: "method" },
    swatch(methodStyle(experiment.spec.algorithm.name)),
    methodTitle(experiment.spec.algorithm.name),
  );

/** @param {string} name @param {string} value @param {string} detail @param {boolean} some */
function figure(name, value, detail, some = false) {
  const box = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", box), value);
  setText(one(".figure-detail", box), detail);
  box.toggleAttribute("data-some", some);
}

/** @param {Experiment} experiment */
function done(experiment) {
  return Math.max(0, Math.min(experiment.rounds, experiment.next_round - 1));
}

/**
 * From its own last rounds, else from what is known of its kind.
 * @param {Experiment} experiment @returns {number|null}
 */
function secondsLeft(experiment) {
  const seconds = (data.curves[experiment.id]?.seconds ?? []).slice(1).slice(-10);
  const one_ = seconds.length
    ? seconds.reduce((sum, value) => sum + value, 0) / seconds.length
    : data.expected[experiment.id];
  return one_ === null || one_ === undefined
    ? null
    : one_ * (experiment.rounds - done(experiment)) + (data.once[experiment.id] ?? 0);
}

/** @param {(number|null)[]} times @returns {times is number[]} */
function allKnown(times) {
  return times.every((time) => time !== null);
}

/**
 * How long an experiment takes and when it ends, in seconds from now.
 * @typedef {object} Planned
 * @property {number|null} takes
 * @property {number|null} end
 */

/**
 * When each waiting experiment ends if the slots take them in order, and when the whole queue does; unknown after one
 * whose duration is unknown. Those that are not shown are shared out evenly.
 */
function schedule() {
  const slots = Math.max(1, data.slots || data.running.length);
  /** @type {(number|null)[]} */
  const free = data.running.map((experiment) => secondsLeft(experiment)).slice(0, slots);
  while (free.length < slots) free.push(0);
  const plan = data.queued.map((experiment) => {
    const takes = secondsLeft(experiment);
    if (!allKnown(free) || takes === null) return { takes, end: null };
    const soonest = free.indexOf(Math.min(...free));
    const end = free[soonest] + takes;
    free[soonest] = end;
    return { takes, end };
  });
  const known = data.later_seconds !== null && plan.every((item) => item.end !== null);
  if (!known || !allKnown(free)) return { plan, end: null };
  const work = free.reduce((sum, time) => sum + time, data.later_seconds ?? 0);
  return { plan, end: Math.max(...free, work / slots) };
}

/** @param {number|null} seconds */
function at(seconds) {
  if (seconds === null) return NONE;
  const time = new Date(Date.now() + 1000 * seconds);
  const today = time.toDateString() === new Date().toDateString();
  const text = time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return today ? text : `${time.toLocaleDateString("en-GB", { weekday: "short" })} ${text}`;
}

function render() {
  const { plan, end } = schedule();
  const counts = data.counts;
  const lefts = data.running.map(secondsLeft);
  const busy = data.running.length + data.queued.length > 0;
  const paused = counts.paused ?? 0;
  figure("running", integer(data.running.length), `${integer(data.slots)} ${data.slots === 1 ? "slot" : "slots"}`);
  figure("queued", integer((counts.queued ?? 0) + paused), paused ? `${integer(paused)} paused` : "");
  figure(
    "end",
    busy ? at(end) : NONE,
    busy ? (end === null ? "not known yet" : `in about ${duration(end)}`) : "nothing is waiting",
  );
  figure("finished", integer(data.finished_today), `${integer(counts.finished ?? 0)} in total`);
  figure("failed", integer(data.failed_today), data.failed_today ? "see below" : "no failures", data.failed_today > 0);
  one("#failed-panel").hidden = !data.failed.length;
  fillRows(
    one("#failed"),
    data.failed.map((item) =>
      h(
        "li",
        { data: { key: item.id } },
        stateChip(item.state),
        link(item),
        h("span", { class: "reason", title: item.error?.reason ?? "" }, item.error?.reason ?? ""),
        h("span", { class: "muted num", title: clock(item.finished_at) }, ago(item.finished_at)),
        h("a", { href: `/new?from=${item.id}` }, "Clone"),
      )
    ),
  );
  const nothing = !Object.values(counts).some((count) => count > 0);
  one("#welcome").hidden = !nothing;
  one("#night").hidden = nothing;
  one("#no-worker").hidden = data.slots > 0 || !(data.queued.length || data.running.length);
  setText(
    one("#no-worker-text"),
    "Experiments wait until a worker connects. The command “fedarena serve” starts one with the dashboard, “fedarena worker” another one.",
  );
  renderRunning(lefts);
  renderQueue(plan);
  one("#sweeps-panel").hidden = !data.sweeps.length;
  fillRows(one("#sweeps tbody"), data.sweeps.map(sweepRow));
  one("#finished").hidden = !data.finished.length;
  one("#finished-empty").hidden = data.finished.length > 0;
  offerComparison("#compare-finished", data.finished);
  one("#no-convergence").hidden = !data.finished.some((item) => item.no_convergence);
  setText(one("#no-convergence"), NOTE);
  fillRows(
    one("#finished tbody"),
    data.finished.map((item) =>
      h(
        "tr",
        { data: { key: item.id, id: item.id, state: item.state } },
        h("td", {}, link(item)),
        h("td", {}, method(item)),
        h("td", {}, datasetText(item.spec.dataset)),
        h("td", { class: "num right" }, percentNumber(headlineOf(item)), convergenceNode(Number(item.no_convergence))),
        h("td", { class: "num right" }, duration(item.seconds)),
        h("td", { class: "num right muted", title: clock(item.finished_at) }, ago(item.finished_at)),
      )
    ),
  );
  fillRows(
    one("#workers tbody"),
    data.workers.length
      ? data.workers.map(workerRow)
      : [h("tr", { data: { key: "" } }, h("td", { colspan: 4, class: "muted" }, "No worker has connected yet."))],
  );
}

/** @param {SweepSummary} sweep */
function sweepRow(sweep) {
  return h(
    "tr",
    { data: { key: sweep.id, href: `/sweeps/${sweep.id}`, state: sweep.state } },
    h("td", {}, nameLink(`/sweeps/${sweep.id}`, nameParts(sweepTitle(sweep)))),
    h("td", {}, stateChip(sweep.state)),
    h(
      "td",
      { class: "num right", title: countsText(sweep.counts) },
      `${integer(countOf(sweep.counts, ENDED))} / ${integer(sweep.experiments)}`,
    ),
    h(
      "td",
      {},
      h(
        "div",
        { class: "progress" },
        h("progress", { max: Math.max(1, sweep.rounds_total), value: sweep.rounds_done, "aria-label": "Rounds done" }),
        h("span", { class: "num" }, `${integer(sweep.rounds_done)} / ${integer(sweep.rounds_total)}`),
      ),
    ),
  );
}

/** @param {Experiment[]} list */
const comparison = (list) => `/compare?ids=${list.map((item) => item.id).join(",")}`;

/** @param {string} where @param {Experiment[]} list */
function offerComparison(where, list) {
  const link_ = /** @type {HTMLAnchorElement} */ (one(where));
  link_.hidden = list.length < 2;
  setText(link_, `Compare these ${integer(list.length)}`);
  link_.href = comparison(list);
}

/** @param {OverviewPage["workers"][number]} worker */
function workerRow(worker) {
  const { silent } = worker;
  return h(
    "tr",
    { class: silent ? "worker-silent" : null, data: { key: worker.name } },
    h("th", { scope: "row" }, worker.name),
    h("td", {}, worker.device),
    h("td", { class: "num right" }, integer(worker.slots)),
    h(
      "td",
      { class: "num right", title: clock(worker.last_seen) },
      `${silent ? "silent, " : ""}${ago(worker.last_seen, data.now)}`,
    ),
  );
}

/** @param {(number|null)[]} lefts */
function renderRunning(lefts) {
  one("#running-empty").hidden = data.running.length > 0;
  offerComparison("#compare-running", data.running);
  fillRows(
    one("#running"),
    data.running.map((item, index) => {
      const curve = data.curves[item.id]?.accuracy ?? [];
      const level = headlineOf(item);
      const word = item.headline_rule === "final" ? "now" : "best";
      return h(
        "li",
        { data: { key: item.id, id: item.id } },
        h(
          "div",
          {},
          h(
            "div",
            { class: "title" },
            swatch(methodStyle(item.spec.algorithm.name)),
            link(item),
            item.state === "running" ? null : stateChip(item.state),
          ),
          h(
            "div",
            { class: "progress num" },
            h("progress", {
              max: item.rounds,
              value: done(item),
              "aria-label": `${done(item)} of ${item.rounds} rounds`,
            }),
            `${integer(done(item))} / ${integer(item.rounds)} · ${methodTitle(item.spec.algorithm.name)} on ${
              datasetText(item.spec.dataset)
            }`,
          ),
        ),
        sparkline(
          curve.slice(1),
          item.rounds,
          methodStyle(item.spec.algorithm.name),
          `Accuracy so far, ${word} ${percent(level)}`,
        ),
        h("span", {
          class: "accuracy num",
          title: word === "now" ? "Accuracy of the last tested round" : "Best accuracy so far",
        }, percent(level)),
        h("span", { class: "left num" }, lefts[index] === null ? NONE : `${duration(lefts[index])} left`),
      );
    }),
  );
}

/** @param {Planned[]} plan */
function renderQueue(plan) {
  one("#queued").hidden = !data.queued.length;
  one("#queued-empty").hidden = data.queued.length > 0;
  const hidden = (data.counts.queued ?? 0) - data.queued.length;
  setText(
    one("#queue-note"),
    hidden > 0
      ? `the first ${integer(data.queued.length)} of ${integer(data.counts.queued)}`
      : "in the order in which workers take them",
  );
  fillRows(
    one("#queued tbody"),
    data.queued.map((item, index) =>
      h(
        "tr",
        { data: { key: item.id, id: item.id, state: item.state } },
        h("td", { class: "num right muted" }, integer(index + 1)),
        h("td", {}, link(item)),
        h("td", { class: "num right" }, duration(plan[index].takes)),
        h("td", { class: "num right" }, at(plan[index].end)),
      )
    ),
  );
}

let timer = 0;
async function reload() {
  if (document.hidden) return;
  try {
    const response = await fetch("/overview.json");
    if (!response.ok) throw new Error(`status ${response.status}`);
    data = await response.json();
    render();
  } catch (error) {
    console.info("The overview could not be read.", error); // the live dot shows that the server is away
  }
}
/** A state moves an experiment from one table to another and changes the order of the queue: the server knows best. */
function reloadSoon() {
  clearTimeout(timer);
  timer = window.setTimeout(reload, 300);
}
const renderSoon = perFrame(render);
live.onState(reloadSoon);
live.onRound((record) => {
  const item = data.running.find((entry) => entry.id === record.experiment);
  if (!item || !applyRound(item, record)) return;
  const curve = (data.curves[item.id] ??= { round: [], accuracy: [], seconds: [] });
  curve.round.push(record.round);
  curve.accuracy.push(record.accuracy);
  curve.seconds.push(record.seconds);
  renderSoon();
});
document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const row = target.closest("tr[data-id], tr[data-href]");
  if (row instanceof HTMLElement && !target.closest("a") && !String(getSelection())) {
    location.assign(row.dataset.href ?? `/experiments/${row.dataset.id}`);
  }
});
document.addEventListener("fedarena:compare", () => {
  const list = data.running.length ? data.running : data.finished;
  if (list.length) location.assign(comparison(list));
  else notice("Nothing has run yet. Choose experiments in the list.");
});
setInterval(reloadSoon, 60_000);
document.addEventListener("visibilitychange", reloadSoon); // what was not read while the tab was hidden
render();
live.start({ after: data.seq });
