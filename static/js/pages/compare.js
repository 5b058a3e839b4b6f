// The comparison: who wins, by how much, at what price, and is it fair?

/**
 * @import { Compared, Drawn, MeanLine } from "../compare/model.js"
 * @import { ComparePage } from "../types.d.ts"
 */

import { Answer } from "../answer.js";
import { api } from "../api.js";
import { Chart, MOST_END_LABELS } from "../chart.js";
import { methodStyle, methodTitle } from "../colours.js";
import { AXES, readChoices, readTarget, recall, remember } from "../compare/address.js";
import { columnsOf, groupsOf, isWide, linesOf, marksOf, resultsOf, ruleOf } from "../compare/model.js";
import { choose, Panels } from "../compare/panels.js";
import { offerExperiments } from "../compare/picker.js";
import { offerExports, showDifferences, showMembers, showResults } from "../compare/results.js";
import { showVerdict } from "../compare/verdict.js";
import { all, h, one, pageData, setQuery, setText } from "../dom.js";
import { live, perFrame } from "../live.js";
import { applyRound, Curves, differences, groupExperiments, METHOD } from "../series.js";
import { notice, working } from "../shell.js";
import { experimentTitle } from "../spec.js";

/** @type {ComparePage} */
const data = pageData();
const choices = readChoices();
/** A thinned curve cannot tell when it reached the target; the server can. */
const costs = new Answer(
  (/** @type {{ids: string[], target: number}} */ { ids: thinned, target }) => api.costToTarget(thinned, target),
  costsArrived,
  { pause: 3000, settle: 300 },
);
/** @type {Compared} */
const compared = {
  experiments: new Map(data.experiments.map((item) => [item.id, item])),
  curves: new Map(data.experiments.map(({ id }) => [id, new Curves(data.curves[id])])),
  choices,
  told: (id) => costs.value?.experiments[id],
  titleOf: methodTitle,
  styleOf: methodStyle,
};
const { experiments, curves } = compared;

function ids() {
  return [...experiments.keys()];
}

// --- charts ----------------------------------------------------------------------------------------------------------

/** @param {"pdf"|"pgf"} kind */
const print = (kind) =>
  h(
    "a",
    {
      class: "tool",
      href: "#",
      title: `Download for print, drawn by the server${kind === "pgf" ? " as a pgfplots picture for LaTeX" : ""}`,
    },
    kind.toUpperCase(),
  );
const prints = { pdf: print("pdf"), pgf: print("pgf") };

/** @param {"accuracy"|"loss"} name @param {string} title @param {HTMLElement[]} tools */
const chart = (name, title, tools = []) =>
  new Chart(one(`#${name}`), {
    name,
    title,
    y: name,
    sync: "compare",
    empty: "The curves start with the first round.",
    file: () => `compare-${name}-by-${choices.axis}`,
    tools,
    changed: () => remember(charts),
    whole: () => wholeLines(name),
  });
const accuracy = chart("accuracy", "Test accuracy", Object.values(prints));
const loss = chart("loss", "Training loss");
/** The charts whose zoom and hidden lines the address holds, by what comes before the names there. */
const charts = { "": accuracy, loss };

/** For programs: every round, and the means themselves. @param {"accuracy"|"loss"} name */
async function wholeLines(name) {
  const told = [...curves.values()].some((curve) => curve.thinned) ? await working(api.curves(ids())) : null;
  const whole = told
    ? new Map(Object.entries(told.experiments).map(([id, columns]) => [id, new Curves(columns)]))
    : curves;
  const groups = groupsOf(compared).map((group) => ({
    ...group,
    curves: group.used.flatMap((member) => whole.get(member.id) ?? []),
  }));
  return linesOf(groups, choices.axis, name, 1, isLogX(groups));
}

/** Whether the axis is logarithmic now. @param {Drawn[]} groups */
function isLogX(groups) {
  return choices.logX ?? isWide(groups, choices.axis);
}

const X_WORDS = {
  round: "by round",
  bytes: "by bytes sent and received",
  flops: "by FLOPs on clients",
  seconds: "by wall time",
};
const NOTHING_SPENT = {
  round: { one: "", many: "" },
  bytes: { one: "sends nothing", many: "send nothing" },
  flops: { one: "computes nothing", many: "compute nothing" },
  seconds: { one: "takes no time", many: "take no time" },
};
const COSTS = { round: "", bytes: "communication", flops: "computation", seconds: "time" };

/** @param {MeanLine[]} lines */
function bandWords(lines) {
  if (choices.bands === "off") return "";
  const hovered = choices.bands === "hovered" || (choices.bands === "" && lines.length > MOST_END_LABELS);
  return ` · band: ± one standard deviation${hovered ? ", of the name pointed at" : ""}`;
}

/** What must be known to read the curves. @param {Drawn[]} groups @param {MeanLine[]} lines @param {boolean} logX */
function hintOf(groups, lines, logX) {
  const { axis, smooth } = choices;
  const levelled = lines.filter((line) => line.level).map((line) => line.label);
  const spends = NOTHING_SPENT[axis][levelled.length === 1 ? "one" : "many"];
  const parts = [X_WORDS[axis]];
  if (levelled.length) parts.push(`${levelled.join(", ")}: final value as a level, ${spends}`);
  if (smooth > 1) parts.push(`smoothed: mean of the last ${smooth} tests`);
  if (isWide(groups, axis)) {
    parts.push(
      logX ? "log x: the totals differ by more than a factor of 100" : `log x separates the low-${COSTS[axis]} methods`,
    );
  }
  if (groups.some((group) => group.curves.length > 1)) parts.push(`line: mean over seeds${bandWords(lines)}`);
  return parts.join(" · ");
}

/** @param {Drawn[]} groups */
function drawCharts(groups) {
  const { axis, smooth, logY, bands, target } = choices;
  const logX = isLogX(groups);
  const look = { x: axis, logX, logY, bands };
  const lines = linesOf(groups, axis, "accuracy", smooth, logX);
  const hint = hintOf(groups, lines, logX);
  accuracy.set(lines, { ...look, target, marks: marksOf(groups, choices, logX), hint });
  loss.set(linesOf(groups, axis, "loss", smooth, logX), { ...look, hint: X_WORDS[axis] });
}

// --- the whole page --------------------------------------------------------------------------------------------------

/** @returns {boolean} whether the costs to the target are there */
function needCosts() {
  const { target } = choices;
  const thinned = [...experiments.values()].filter((item) => curves.get(item.id)?.thinned);
  if (target === null || !thinned.length) return true;
  return costs.need({ ids: thinned.map((item) => item.id), target }, thinned) && !costs.error;
}

function costsArrived() {
  if (costs.error) notice(`The cost to the target could not be read. ${costs.error}`, "error");
  renderSoon();
}

function render() {
  const any = experiments.size > 0;
  one("#comparison").hidden = !any;
  one("#empty").hidden = any;
  if (!any) {
    setText(one("#verdict"), "");
    return;
  }
  const groups = groupsOf(compared);
  const known = needCosts();
  drawCharts(groups);
  const fair = showDifferences(groupsOf(compared, []));
  const rows = resultsOf(compared, groups, fair);
  showResults(rows, columnsOf(ruleOf(compared), choices), fair, known);
  showVerdict(compared, rows, fair, { known, error: costs.error });
  showMembers(experiments, remove);
  showControls(isLogX(groups));
  panels.show(rows);
}

const renderSoon = perFrame(render);
const panels = new Panels(compared, render, renderSoon);

/** Controls that depend on what is compared. @param {boolean} logX */
function showControls(logX) {
  const { by } = choices;
  /** @type {[string, string][]} */
  const options = [["", "method and all settings"]];
  if (experiments.size) {
    options.push([METHOD, "method only"]);
    for (const { field } of differences(groupExperiments([...experiments.values()], methodTitle))) {
      if (field !== METHOD) options.push([field, `method and ${field}`]);
    }
    // a link may name a field that does not differ here; it stays a choice, or the picture would change by itself
    if (by && !options.some(([key]) => key === by)) options.push([by, `method and ${by}`]);
  }
  choose(one("#by"), options, by);
  /** @type {HTMLInputElement} */ (one("#logx")).checked = logX;
  linkPrints(logX);
}

/** @param {boolean} logX */
function linkPrints(logX) {
  const { axis, target, logY, smooth, by } = choices;
  const asked = new URLSearchParams({ ids: ids().join(","), x: axis });
  if (target !== null) asked.set("target", String(target));
  if (logX) asked.set("log_x", "true");
  if (logY) asked.set("log_y", "true");
  if (smooth > 1) asked.set("smooth", String(smooth));
  if (by) asked.set("by", by);
  for (const [kind, link] of Object.entries(prints)) {
    link.setAttribute("href", `/api/compare/figure.${kind}?${String(asked).replaceAll("%2C", ",")}`);
  }
}

// --- what is compared ------------------------------------------------------------------------------------------------

function connect() {
  live.start({ after: data.seq, experiments: ids() });
}

function changed() {
  setQuery({ ids: ids().join(",") });
  connect();
  render();
}

/** @param {string} id */
function remove(id) {
  experiments.delete(id);
  curves.delete(id);
  changed();
}

/**
 * The list of candidates may be old, so the experiment is fetched anew; all curves too, thinned to common rounds.
 * @param {string} id
 */
async function add(id) {
  const answer = await working(api.curves([...ids(), id], data.points));
  experiments.set(id, await working(api.experiment(id)));
  for (const [key, columns] of Object.entries(answer.experiments)) {
    if (experiments.has(key)) curves.set(key, new Curves(columns));
  }
  // events that passed while these curves were on their way did not concern the new one: they are told again
  live.last = Math.min(live.last ?? answer.seq, answer.seq);
  changed();
}

live.onState((experiment) => {
  if (!experiments.has(experiment.id)) return;
  if (experiment.deleted_at) {
    remove(experiment.id);
    notice(`${experimentTitle(experiment, methodTitle)} was deleted and left this comparison.`);
    return;
  }
  experiments.set(experiment.id, experiment);
  renderSoon();
});
live.onRound((record) => {
  const experiment = experiments.get(record.experiment);
  if (!experiment) return;
  curves.get(record.experiment)?.push(record);
  applyRound(experiment, record);
  renderSoon();
});

// --- controls, each with its place in the address --------------------------------------------------------------------

for (const radio of document.querySelectorAll('input[name="x"]')) {
  const input = /** @type {HTMLInputElement} */ (radio);
  input.checked = input.value === choices.axis;
  input.addEventListener("change", () => {
    choices.axis = AXES.find((axis) => axis === input.value) ?? "round";
    setQuery({ x: choices.axis === "round" ? "" : choices.axis });
    render();
    remember(charts);
  });
}

/** @param {string} id @param {"logX"|"logY"} key @param {string} off as it is written */
function onLog(id, key, off) {
  const input = /** @type {HTMLInputElement} */ (one(`#${id}`));
  input.checked = choices[key] === true;
  input.addEventListener("change", () => {
    choices[key] = input.checked;
    setQuery({ [id]: input.checked ? "1" : off });
    render();
  });
}
onLog("logx", "logX", "0");
onLog("logy", "logY", "");

/**
 * @param {HTMLElement} element
 * @param {"smooth"|"by"|"bands"|"first"|"second"|"field"|"reference"|"at"} key of the choice
 * @param {string} name in the address @param {string} usual not written
 */
function onSelect(element, key, name, usual) {
  const select = /** @type {HTMLSelectElement} */ (element);
  select.addEventListener("change", () => {
    if (key === "smooth") choices.smooth = Number(select.value);
    else choices[key] = select.value;
    setQuery({ [name]: select.value === usual ? "" : select.value });
    render();
  });
}

const smooth = /** @type {HTMLSelectElement} */ (one("#smooth"));
if (![...smooth.options].some((option) => option.value === String(choices.smooth))) {
  smooth.append(h("option", { value: choices.smooth }, `${choices.smooth} tests`));
}
smooth.value = String(choices.smooth);
onSelect(smooth, "smooth", "smooth", "1");
onSelect(one("#by"), "by", "by", "");
const bands = /** @type {HTMLSelectElement} */ (one("#bands"));
bands.value = choices.bands;
onSelect(bands, "bands", "bands", "");
onSelect(one("#wins-a"), "first", "a", "");
onSelect(one("#wins-b"), "second", "b", "");
onSelect(one("#sweep-field"), "field", "field", "");
onSelect(one("#reference"), "reference", "ref", "");
const moments = /** @type {HTMLSelectElement[]} */ (all("[data-moment]"));
for (const select of moments) {
  select.value = choices.at;
  onSelect(select, "at", "at", "last");
  select.addEventListener("change", () => moments.forEach((other) => (other.value = choices.at)));
}
const targetField = /** @type {HTMLInputElement} */ (one("#target"));
targetField.value = choices.target === null ? "" : String(Number((100 * choices.target).toFixed(4)));
targetField.addEventListener("input", () => {
  choices.target = readTarget(targetField.value);
  targetField.setAttribute("aria-invalid", String(targetField.value !== "" && choices.target === null));
  setQuery({ target: choices.target === null ? "" : targetField.value });
  render();
});

offerExports();
offerExperiments((id) => experiments.has(id), add, !experiments.size);
if (data.missing.length) {
  notice(`${data.missing.length} of the experiments in this address do not exist: ${data.missing.join(", ")}`, "error");
}
accuracy.xQuantity = choices.axis;
loss.xQuantity = choices.axis;
recall(charts, groupsOf(compared));
render();
connect();
