// One sweep: how far it is, and its table, which fills while the experiments run.

/** @import { CellView, Choice, DeliveryView, RunView, Spread, SweepView } from "../api.d.ts" */

import { api, messageOf } from "../api.js";
import { convergenceNode, NOTE } from "../convergence.js";
import { cellText, countOf, countsText, settingText, valueNode } from "../cells.js";
import { all, fill, h, one, pageData, setText, stateChip } from "../dom.js";
import { live } from "../live.js";
import { fieldHead } from "../series.js";
import { notice, working } from "../shell.js";
import { clock, duration, integer, percentNumber } from "../units.js";
import { ENDED, RETRIED, stateWord } from "../vocabulary.js";

const REFRESH = 1500;
const MOST_COMPARED = 200;
const MOST_FOLLOWED = 400;
/** @type {SweepView} */
let sweep = pageData().sweep;

/** @param {string} name @param {string} value @param {string} detail */
function figure(name, value, detail = "") {
  const box = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", box), value);
  setText(one(".figure-detail", box), detail);
}

/** @param {Spread|null|undefined} spread */
function accuracy(spread) {
  if (!spread) return "–";
  const mean = percentNumber(spread.mean, 2);
  return spread.std === null ? mean : `${mean} ± ${percentNumber(spread.std, 2)}`;
}

/**
 * The best of the cells under this cell's conditions, as it is printed so that equal texts are treated alike;
 * null where nothing is ranked.
 * @param {CellView} cell @param {"best"|"final"} name
 */
function top(cell, name) {
  if (!sweep.comparable || name !== cell.headline_rule) return null;
  const rivals = sweep.cells.filter((other) => other[name] && other.conditions === cell.conditions);
  return rivals.length > 1
    ? Math.max(...rivals.map((other) => Number(percentNumber(other[name]?.mean, 2)))).toFixed(2)
    : null;
}

/** The cell that leads, where all of them can be ranked. */
function leader() {
  const measured = sweep.cells.filter((cell) => cell[cell.headline_rule]);
  if (!sweep.comparable) return { cell: null, why: "not comparable" };
  if (new Set(sweep.cells.map((cell) => cell.conditions)).size > 1) {
    return { cell: null, why: "bold below: best under equal conditions" };
  }
  if (!measured.length) return { cell: null, why: "no experiment has finished yet" };
  /** @param {CellView} cell */
  const level = (cell) => cell[cell.headline_rule]?.mean ?? 0;
  return { cell: measured.reduce((a, b) => (level(b) > level(a) ? b : a)), why: "" };
}

function experiments() {
  return sweep.cells.flatMap((cell) => cell.runs.map((run) => run.experiment));
}

/** The accuracy that counts of one run. @param {RunView} run @param {"best"|"final"} rule */
const judged = (run, rule) => run[`${rule}_accuracy`];

/** @param {RunView} run @param {"best"|"final"} rule */
function runTitle(run, rule) {
  const done = Math.max(0, Math.min(run.rounds, run.next_round - 1));
  const level = judged(run, rule);
  const accuracy = level === null ? "" : `, ${rule} ${percentNumber(level)} %`;
  const rounds = run.state === "not_applicable"
    ? ""
    : `, round ${done} of ${run.rounds}${accuracy}${run.no_convergence ? ", no convergence" : ""}`;
  const state = `${stateWord(run.state).toLowerCase()}${rounds}${run.reused ? ", reused" : ""}`;
  return `Seed ${run.seed}: ${state}${run.reason ? `. ${run.reason}` : ""}`;
}

/**
 * A dot for each seed: its state by shape and colour, its numbers in the title.
 * @param {RunView} run @param {"best"|"final"} rule
 */
function seedDot(run, rule) {
  return h(
    "a",
    {
      class: "seed",
      href: `/experiments/${run.experiment}`,
      title: runTitle(run, rule),
      "aria-label": runTitle(run, rule),
      data: { state: run.state },
    },
    h(
      "span",
      { class: "chip", data: { state: run.state } },
      h("span", { class: "chip-icon", "aria-hidden": "true" }),
      String(run.seed),
    ),
  );
}

/** @param {CellView} cell @param {number} index */
function cellRow(cell, index) {
  const rounds = cell.runs.reduce(
    (sum, run) => sum + (ENDED.has(run.state) ? Math.max(0, run.next_round - 1) : run.rounds),
    0,
  );
  const done = cell.runs.reduce((sum, run) => sum + Math.max(0, Math.min(run.rounds, run.next_round - 1)), 0);
  const bad = cell.runs.filter((run) => RETRIED.has(run.state));
  const reason = cell.runs.find((run) => run.state === "not_applicable")?.reason;
  const rule = cell.headline_rule;
  const running = cell.runs.map((run) => judged(run, rule)).filter((value) => value !== null);
  const sofar = !cell[rule] && running.length ? `${percentNumber(Math.max(...running))} so far` : null;
  const unlearned = cell.runs.filter((run) => run.no_convergence).length;
  /** @type {(name: "best"|"final") => HTMLElement} */
  const number = (name) => {
    const bold = top(cell, name);
    const mean = cell[name] ? percentNumber(cell[name].mean, 2) : null;
    const best = bold !== null && mean === bold;
    const gap = bold === null || mean === null || best
      ? ""
      : (Number(mean) - Number(bold)).toFixed(2).replace("-", "−");
    return h(
      "td",
      { class: `num right gapped${best ? " best" : ""}` },
      name === rule && sofar ? h("span", { class: "muted" }, sofar) : accuracy(cell[name]),
      name === rule ? convergenceNode(unlearned, cell[name]?.seeds) : null,
      best ? null : h("small", { class: "gap", title: gap ? "Difference to the best" : null }, gap),
    );
  };
  return h(
    "tr",
    {},
    sweep.paths.map((path, column) =>
      h(column ? "td" : "th", column ? {} : { scope: "row" }, valueNode(path, cell.values[path]))
    ),
    h("td", {}, h("div", { class: "seeds" }, cell.runs.map((run) => seedDot(run, cell.headline_rule)))),
    reason
      ? h("td", { colspan: 2, class: "muted reason", title: reason }, `Not applicable: ${reason}`)
      : [number("best"), number("final")],
    h(
      "td",
      {},
      rounds
        ? h(
          "div",
          { class: "progress" },
          h("progress", { max: rounds, value: done, "aria-label": `${done} of ${rounds} rounds` }),
          h("span", { class: "num" }, `${integer(done)} / ${integer(rounds)}`),
        )
        : null,
    ),
    h(
      "td",
      {},
      bad.length
        ? h(
          "button",
          {
            type: "button",
            class: "tool",
            title: bad.map((run) => runTitle(run, cell.headline_rule)).join("\n"),
            on: { click: () => retry(index) },
          },
          `Retry ${bad.length}`,
        )
        : null,
    ),
  );
}

function render() {
  const { counts } = sweep;
  fill(one("#state"), stateChip(sweep.state));
  const ended = countOf(counts, ENDED);
  figure("experiments", `${integer(ended)} / ${integer(sweep.experiments)}`, countsText(counts));
  const bar = /** @type {HTMLProgressElement} */ (one("#progress"));
  bar.max = Math.max(1, sweep.rounds_total);
  bar.value = sweep.rounds_done;
  figure(
    "rounds",
    `${integer(sweep.rounds_done)} / ${integer(sweep.rounds_total)}`,
    sweep.reused ? `${integer(sweep.reused)} ${sweep.reused === 1 ? "experiment" : "experiments"} reused` : "",
  );
  const { cell: winner, why } = leader();
  figure(
    "best",
    winner ? `${accuracy(winner[winner.headline_rule])} %` : "–",
    winner ? `${cellText(sweep.paths, winner.values)}${winner.headline_rule === "final" ? ", final round" : ""}` : why,
  );
  timeLeft();
  const bad = countOf(counts, RETRIED);
  figure(
    "trouble",
    integer(bad),
    [...RETRIED]
      .filter((state) => counts[state])
      .map((state) => `${counts[state]} ${state}`)
      .join(", ") || "nothing",
  );
  one("#retry").hidden = bad === 0;
  setText(one("#retry"), `Retry ${bad} ${bad === 1 ? "experiment" : "experiments"}`);
  const open = sweep.experiments - ended;
  one("#cancel").hidden = open === 0;
  const paused = counts.paused ?? 0;
  one("#pause").hidden = open === 0;
  setText(one("#pause"), paused ? `Resume ${paused}` : "Pause");
  setText(one("#cancel"), `Cancel ${open} ${open === 1 ? "experiment" : "experiments"}`);
  compareLink();
  fill(
    one("#cells thead"),
    h(
      "tr",
      {},
      sweep.paths.length ? sweep.paths.map((path) => h("th", { scope: "col", title: path }, fieldHead(path))) : null,
      h("th", { scope: "col" }, "Seeds"),
      h("th", { scope: "col", class: "right gapped" }, "Best (%)"),
      h("th", { scope: "col", class: "right gapped" }, "Final (%)"),
      h("th", { scope: "col" }, "Rounds"),
      h("th", { scope: "col" }, h("span", { class: "sr" }, "Retry")),
    ),
  );
  fill(
    one("#cells tbody"),
    sweep.cells.map((cell, index) => cellRow(cell, index)),
  );
  one("#no-convergence").hidden = !sweep.cells.some((cell) => cell.runs.some((run) => run.no_convergence));
  setText(one("#no-convergence"), NOTE);
  renderChoices();
  deliveries();
}

/** A row a group of cells: the setting chosen on validation and the one chosen on test, each with its test accuracy. */
function renderChoices() {
  const panel = one("#choices-panel");
  panel.hidden = sweep.choices === null;
  if (sweep.choices === null) return;
  const { paths, groups } = sweep.choices;
  /** @type {(spread: Spread|null|undefined) => HTMLElement} */
  const number = (spread) => h("td", { class: "num right" }, accuracy(spread));
  const right = { scope: "col", class: "right" };
  fill(
    one("#choices thead"),
    h(
      "tr",
      {},
      paths.map((path) => h("th", { scope: "col", title: path }, fieldHead(path))),
      h(
        "th",
        { ...right, title: "Settings whose seeds have all finished; the others are not chosen from" },
        "Finished",
      ),
      h("th", { scope: "col" }, "Chosen on validation"),
      h("th", right, "Validation (%)"),
      h("th", right, "Test (%)"),
      h("th", { scope: "col" }, "Chosen on test"),
      h("th", right, "Test (%)"),
    ),
  );
  /** @param {Choice} group */
  const row = (group) => {
    const { on_validation: picked, on_test: best } = group;
    return h(
      "tr",
      {},
      paths.map((path, column) =>
        h(column ? "td" : "th", column ? {} : { scope: "row" }, valueNode(path, group.values[path]))
      ),
      h("td", { class: "num right" }, `${integer(group.finished)} of ${integer(group.cells)}`),
      h("td", picked ? {} : { class: "muted" }, picked ? settingText(picked.values) : `– (${group.why_not})`),
      number(group.validation),
      number(picked?.accuracy),
      h("td", {}, settingText(best.values)),
      number(best.accuracy),
    );
  };
  const waiting = h(
    "tr",
    {},
    h("td", { colspan: paths.length + 6, class: "muted" }, "No setting has finished with all its seeds yet."),
  );
  fill(one("#choices tbody"), groups.length ? groups.map(row) : waiting);
}

function timeLeft() {
  const { seconds, unknown, slots } = sweep.time_left;
  if (sweep.experiments === countOf(sweep.counts, ENDED)) return figure("left", "done");
  const missing = unknown ? `excludes ${integer(unknown)} ${unknown === 1 ? "run" : "runs"} without an estimate` : "";
  if (!slots) return figure("left", "–", "no worker connected");
  if (seconds === null) return figure("left", "–", "no measurement yet");
  return figure("left", `about ${duration(seconds)}`, missing || `${integer(slots)} at once`);
}

function compareLink() {
  const link = /** @type {HTMLAnchorElement} */ (one("#compare"));
  const ids = sweep.cells
    .flatMap((cell) => cell.runs.filter((run) => run.next_round > 0).map((run) => run.experiment))
    .slice(0, MOST_COMPARED);
  if (ids.length) {
    const lines = sweep.cells.some((cell) => Object.values(cell.values).some((value) => typeof value === "number"));
    link.href = `/compare?ids=${ids.join(",")}${lines ? "&open=sweep" : ""}`;
    link.removeAttribute("aria-disabled");
  } else {
    link.removeAttribute("href");
    link.setAttribute("aria-disabled", "true");
  }
  setText(link, ids.length < experiments().length && ids.length ? `Compare ${ids.length}` : "Compare all");
}

function deliveries() {
  one("#webhook").hidden = sweep.webhook === null;
  if (sweep.webhook === null) return;
  setText(one("#webhook-url"), sweep.webhook);
  /** @param {DeliveryView} row */
  const text = (row) => {
    if (row.delivered_at) return `arrived ${clock(row.delivered_at)}`;
    const tries = `${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}`;
    if (row.next_try) {
      return row.attempts ? `${tries}, the next ${clock(row.next_try)}: ${row.error}` : "about to be sent";
    }
    return `given up after ${tries}: ${row.error}`;
  };
  const rows = sweep.deliveries.map((row) => h("li", {}, h("code", {}, row.event), " ", text(row)));
  fill(one("#deliveries"), rows.length ? rows : h("li", { class: "muted" }, "No messages yet."));
}

let timer = 0;
function refreshSoon() {
  if (timer) return;
  timer = window.setTimeout(async () => {
    timer = 0;
    try {
      show(await api.sweep(sweep.id));
    } catch (error) {
      console.info("The sweep could not be refreshed.", error); // the live dot shows that the server is away
    }
  }, REFRESH);
}

/** @param {SweepView} view */
function show(view) {
  const focused = document.activeElement?.getAttribute("href");
  sweep = view;
  render();
  if (focused?.startsWith("/experiments/")) all(`#cells a[href="${CSS.escape(focused)}"]`)[0]?.focus();
}

/** @param {number|null} cell */
async function retry(cell = null) {
  try {
    show(await working(api.retrySweep(sweep.id, cell)));
    follow();
    notice("Queued again. The earlier attempts stay in the list of experiments.");
  } catch (error) {
    notice(`Not queued again: ${messageOf(error)}`, "error");
  }
}

async function pauseOrResume() {
  const resume = (sweep.counts.paused ?? 0) > 0;
  try {
    show(await working(resume ? api.resumeSweep(sweep.id) : api.pauseSweep(sweep.id)));
    notice(resume ? "Back in the queue." : "Paused; running experiments finish their current round first.");
  } catch (error) {
    notice(`Nothing was changed: ${messageOf(error)}`, "error");
  }
}

async function cancel() {
  try {
    show(await working(api.cancelSweep(sweep.id)));
    notice("Cancelled. Stored rounds stay; Retry runs the cancelled ones again.");
  } catch (error) {
    notice(`Not cancelled: ${messageOf(error)}`, "error");
  }
}

/** A small sweep listens to its own experiments; the address of a large one would be too long, so it hears all. */
function follow() {
  const ids = experiments();
  live.start({ after: sweep.seq, experiments: ids.length <= MOST_FOLLOWED ? ids : [] });
}

/** @param {string} id */
const mine = (id) => experiments().includes(id);
live.onState((experiment) => mine(experiment.id) && refreshSoon());
live.onRound((record) => mine(record.experiment) && refreshSoon());
one("#retry").addEventListener("click", () => retry());
one("#pause").addEventListener("click", pauseOrResume);
one("#cancel").addEventListener("click", cancel);
document.addEventListener("fedarena:compare", () => one("#compare").click());
render();
follow();
