// The comparison: who wins, by how much, at what price, and is it fair?

import { api } from "../api.js";
import { Chart } from "../chart.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { copy, download, fill, h, one, pageData, setQuery, setText, stateChip } from "../dom.js";
import { live, perFrame } from "../live.js";
import { COLUMNS, Curves, applyRound, counted, differences, groupExperiments, mean, meanCurve, show, std, unfairness } from "../series.js";
import { notice, working } from "../shell.js";
import { datasetText, experimentTitle, partitionText } from "../spec.js";
import { csv, latex, markdown } from "../table.js";
import { NONE, duration, formatBytes, formatFlops, integer, meanStd, percent } from "../units.js";

const AXES = ["round", "bytes", "flops", "seconds"];

const data = pageData();
const query = new URLSearchParams(location.search);
/** @type {Map<string, any>} in the order of the address */
const experiments = new Map(data.experiments.map((item) => [item.id, item]));
/** @type {Map<string, Curves>} */
const curves = new Map();
let axis = AXES.includes(query.get("x")) ? query.get("x") : "round";
let target = readTarget(query.get("target"));
/** The table as last shown: text cells for the exports. @type {string[][]} */
let shownTable = [];

const file = (what) => () => `compare-${what}-by-${axis}`;
const accuracy = new Chart(one("#accuracy"), { name: "accuracy", title: "Test accuracy", y: "accuracy", sync: "compare", empty: "The curves start with the first round.", file: file("accuracy") });
const loss = new Chart(one("#loss"), { name: "loss", title: "Training loss", y: "loss", sync: "compare", empty: "The curves start with the first round.", file: file("loss") });

/** Percent in the address and in the field, a fraction inside. */
function readTarget(text) {
  const value = Number(text);
  return text && Number.isFinite(value) && value > 0 && value <= 100 ? value / 100 : null;
}

function curvesOf(id) {
  return curves.get(id);
}

function groups() {
  return groupExperiments([...experiments.values()], methodTitle).map((group) => {
    const members = counted(group.members, curvesOf);
    return {
      ...group,
      style: methodStyle(group.method, "", group.variant),
      used: members,
      curves: members.map((member) => curvesOf(member.id)),
    };
  }).map((group) => ({ ...group, settled: settled(group) }));
}

/** Finished seeds where there are any: half a run would pull the mean of the others down. */
function settled(group) {
  const finished = group.used.filter((member) => member.state === "finished");
  return (finished.length ? finished : group.used).map((member) => curvesOf(member.id));
}

/** A method that sends nothing has no extent on an axis of bytes: its final accuracy becomes a level to compare with. */
function level(line, right) {
  if (axis === "round" || line.x.length < 2 || line.x[0] !== line.x[line.x.length - 1]) return line;
  const last = line.y[line.y.length - 1];
  return { key: line.key, label: line.label, style: line.style, x: [0, right], y: [last, last], level: true };
}

function lines(list, yName) {
  const plain = meanLines(list, yName);
  const right = Math.max(1, ...plain.map((line) => line.x[line.x.length - 1] ?? 0));
  return plain.map((line) => level(line, right));
}

function meanLines(list, yName) {
  return list
    .filter((group) => group.curves.length)
    .map((group) => {
      const { x, y, low, high } = meanCurve(group.curves, axis, yName);
      const banded = low.some((value) => value !== null);
      const spread = (index) => (high[index] === null ? "" : `± ${yName === "accuracy" ? percent(high[index] - y[index]) : (high[index] - y[index]).toFixed(3)}`);
      return { key: group.key, label: group.label, style: group.style, x, y, ...(banded ? { low, high, bandText: spread } : {}) };
    });
}

function marks(list) {
  if (target === null) return [];
  return lines(list, "accuracy").flatMap((line) => {
    const index = line.y.findIndex((value) => value !== null && value >= target);
    return index < 0 ? [] : [{ key: line.key, x: line.x[index], y: line.y[index], style: line.style, label: "" }];
  });
}

/** The numbers of one group: each is {mean, std, count}. */
function summary(group) {
  const measure = (values) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    return { mean: mean(known), std: std(known), count: known.length, of: values.length };
  };
  const reached = group.settled.map((curve) => (target === null ? null : curve.reaches(target)));
  return {
    best: measure(group.settled.map((curve) => curve.best()?.accuracy ?? null)),
    final: measure(group.settled.map((curve) => curve.final())),
    bytes: measure(group.settled.map((curve) => curve.total("bytes"))),
    flops: measure(group.settled.map((curve) => curve.total("flops"))),
    seconds: measure(group.settled.map((curve) => curve.total("seconds"))),
    targetRound: measure(reached.map((hit) => hit?.round ?? null)),
    targetBytes: measure(reached.map((hit) => hit?.bytes ?? null)),
    targetFlops: measure(reached.map((hit) => hit?.flops ?? null)),
  };
}

const twoDigits = (value) => (value === null ? NONE : (100 * value).toFixed(2));
const oneDigit = (value) => (value === null ? NONE : Number.isInteger(value) ? integer(value) : value.toFixed(1));

/** `better` says whether a large or a small number wins; null when neither does. */
const TABLE = [
  { key: "best", title: "Best accuracy (%)", short: "Best (%)", format: twoDigits, better: "high", gap: (d) => `${(100 * d).toFixed(2)}` },
  { key: "final", title: "Final accuracy (%)", short: "Final (%)", format: twoDigits, better: "high", gap: (d) => `${(100 * d).toFixed(2)}` },
  { key: "targetRound", title: "Rounds to target", format: oneDigit, better: "low", target: true },
  { key: "targetBytes", title: "Bytes to target", format: (v) => formatBytes(v), better: "low", target: true },
  { key: "targetFlops", title: "FLOPs to target", format: (v) => formatFlops(v), better: "low", target: true },
  { key: "bytes", title: "Bytes in all", format: (v) => formatBytes(v), better: null },
  { key: "flops", title: "FLOPs in all", format: (v) => formatFlops(v), better: null },
  { key: "seconds", title: "Time", format: duration, better: null },
];

function renderTable(list) {
  const columns = TABLE.filter((column) => !column.target || target !== null);
  const rowsOf = list.map((group) => ({ group, numbers: summary(group) }));
  rowsOf.sort((a, b) => (b.numbers.best.mean ?? -1) - (a.numbers.best.mean ?? -1));
  const bests = Object.fromEntries(
    columns.map(({ key, better }) => {
      const values = rowsOf.map((row) => row.numbers[key].mean).filter((value) => value !== null);
      if (!better || values.length < 2) return [key, null];
      return [key, better === "high" ? Math.max(...values) : Math.min(...values)];
    }),
  );
  shownTable = [["Method", "Seeds", ...columns.map((column) => column.title)]];
  fill(one("#table thead"), h("tr", {}, h("th", { scope: "col" }, "Method"), h("th", { scope: "col", class: "right" }, "Seeds"), columns.map((column) => h("th", { scope: "col", class: column.gap ? "right gapped" : "right", title: column.short ? column.title : null }, column.short ?? column.title))));
  fill(
    one("#table tbody"),
    rowsOf.map(({ group, numbers }) => {
      const seeds = `${group.settled.length}${group.settled.length === group.members.length ? "" : ` of ${group.members.length}`}`;
      const texts = [group.label, seeds];
      const cells = columns.map((column) => {
        const { mean: value, std: spread, count, of } = numbers[column.key];
        let text = meanStd(value, count > 1 && !["bytes", "flops", "seconds", "targetBytes", "targetFlops"].includes(column.key) ? spread : null, column.format);
        if (column.target && value === null && of > 0) text = "not reached";
        else if (column.target && count < of) text += ` (${count} of ${of})`;
        texts.push(text);
        const top = bests[column.key];
        const wins = top !== null && value !== null && value === top;
        const gap = column.gap && top !== null && value !== null && !wins ? column.gap(value - top).replace("-", "−") : "";
        return h("td", { class: `num right${column.gap ? " gapped" : ""}${wins ? " best" : ""}${column.target && value === null ? " muted" : ""}` }, text, gap ? h("small", { class: "gap", title: "Difference to the best" }, gap) : null);
      });
      shownTable.push(texts);
      return h("tr", {}, h("th", { scope: "row" }, h("span", { class: "method" }, swatch(group.style), group.label)), h("td", { class: "num right" }, seeds), cells);
    }),
  );
}

function renderDifferences(list) {
  const rows = differences(list).filter((row) => row.field !== "algorithm.name");
  const common = (field) => !field.startsWith("algorithm.");
  const shared = list.length ? Object.keys(list[0].fields).filter(common).length - rows.filter((row) => common(row.field)).length : 0;
  const table = one("#differences");
  table.hidden = rows.length === 0;
  setText(one("#same"), rows.length ? `${integer(Math.max(0, shared))} other fields are equal.` : list.length > 1 ? "The specs differ in nothing but the method with its own parameters and the seed." : "There is one group only, so nothing to compare.");
  fill(one("#differences thead"), h("tr", {}, h("th", { scope: "col" }, "Field"), list.map((group) => h("th", { scope: "col" }, h("span", { class: "method" }, swatch(group.style), group.label)))));
  fill(one("#differences tbody"), rows.map((row) => h("tr", {}, h("th", { scope: "row", class: "code" }, row.field), row.values.map((value) => h("td", { class: value === undefined ? "num muted" : "num" }, show(value))))));
  const reasons = list.length > 1 ? unfairness(list) : [];
  one("#unfair").hidden = reasons.length === 0;
  fill(one("#unfair-list"), reasons.map((reason) => h("li", {}, reason)));
  one("#fair").hidden = reasons.length > 0 || list.length < 2;
}

function renderMembers() {
  fill(
    one("#members tbody"),
    [...experiments.values()].map((experiment) => {
      const style = methodStyle(experiment.spec.algorithm.name);
      const done = Math.max(0, experiment.next_round - 1);
      const title = experimentTitle(experiment, methodTitle);
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: `/experiments/${experiment.id}` }, title)),
        h("td", {}, stateChip(experiment.state)),
        h("td", {}, h("span", { class: "method" }, swatch(style), methodTitle(experiment.spec.algorithm.name))),
        h("td", {}, `${datasetText(experiment.spec.dataset)}, ${partitionText(experiment.spec.partition)}`),
        h("td", { class: "num right" }, String(experiment.spec.seed)),
        h("td", { class: "num right" }, `${integer(done)} / ${integer(experiment.rounds)}`),
        h("td", { class: "num right" }, percent(experiment.headline?.best_accuracy)),
        h("td", { class: "right" }, h("button", { type: "button", class: "tool", "aria-label": `Remove ${title}`, on: { click: () => remove(experiment.id) } }, "Remove")),
      );
    }),
  );
}

const X_WORDS = { round: "by round", bytes: "by bytes sent and received", flops: "by FLOPs on clients", seconds: "by wall time" };

function render() {
  const list = groups();
  const any = experiments.size > 0;
  one("#comparison").hidden = !any;
  one("#empty").hidden = any;
  if (!any) return;
  const seeds = list.some((group) => group.curves.length > 1);
  const drawn = lines(list, "accuracy");
  const leveled = drawn.filter((line) => line.level).map((line) => line.label).join(", ");
  accuracy.set(drawn, { x: axis, target, marks: marks(list), hint: `${X_WORDS[axis]}${leveled ? ` · ${leveled} sends nothing: its final accuracy is shown as a level` : ""}${seeds ? " · line: mean over seeds · band: ± one standard deviation" : ""}` });
  loss.set(lines(list, "loss"), { x: axis, hint: `${X_WORDS[axis]}${leveled ? ` · ${leveled}: final value as a level` : ""}` });
  renderTable(list);
  renderDifferences(list);
  renderVerdict(list);
  renderMembers();
}

/** The answer in one sentence. */
function renderVerdict(list) {
  const ranked = list
    .map((group) => ({ label: group.label, best: mean(group.settled.map((curve) => curve.best()?.accuracy ?? null)) }))
    .filter((row) => row.best !== null)
    .sort((a, b) => b.best - a.best);
  const running = [...experiments.values()].filter((item) => ["queued", "running", "paused", "cancelling"].includes(item.state)).length;
  const parts = [];
  if (ranked.length > 1) {
    const gap = 100 * (ranked[0].best - ranked[1].best);
    parts.push(gap < 0.005 ? `${ranked[0].label} and ${ranked[1].label} are level at ${percent(ranked[0].best)}` : `${ranked[0].label} leads with ${percent(ranked[0].best)}, ${gap.toFixed(1)} points ahead of ${ranked[1].label}`);
  } else if (ranked.length === 1) {
    parts.push(`${ranked[0].label} reaches ${percent(ranked[0].best)}`);
  }
  parts.push(running ? `${running} of ${experiments.size} ${experiments.size === 1 ? "experiment" : "experiments"} ${running === 1 ? "is" : "are"} not finished` : `${experiments.size === 1 ? "the experiment has" : `${experiments.size === 2 ? "both" : `all ${experiments.size}`} experiments have`} ended`);
  if (parts.length === 1) parts[0] = `${parts[0][0].toUpperCase()}${parts[0].slice(1)}`; // a method keeps its own spelling
  setText(one("#verdict"), `${parts.join("; ")}.`);
}

function ids() {
  return [...experiments.keys()];
}

function remove(id) {
  experiments.delete(id);
  curves.delete(id);
  setQuery({ ids: ids().join(",") });
  connect();
  render();
}

async function add(experiment) {
  experiments.set(experiment.id, experiment);
  setQuery({ ids: ids().join(",") });
  await load([experiment.id]);
  connect();
  render();
}

/** Fetches the curves of experiments that are not here yet. */
async function load(wanted) {
  if (!wanted.length) return;
  const answer = await working(api.columns(wanted, COLUMNS));
  for (const id of wanted) curves.set(id, Curves.fromColumns(answer.experiments[id] ?? { round: [] }));
}

function connect() {
  live.start({ after: data.seq, experiments: ids() });
}

const renderSoon = perFrame(render);
live.onState((experiment) => {
  if (!experiments.has(experiment.id)) return;
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

// Picking further experiments.
const search = /** @type {HTMLInputElement} */ (one("#add-search"));
const panel = /** @type {HTMLDetailsElement} */ (one("#add"));
let timer = 0;

async function listCandidates() {
  try {
    const answer = await api.experiments({ search: search.value.trim(), limit: 30 });
    const rows = answer.items.filter((item) => !experiments.has(item.id));
    fill(
      one("#candidates"),
      rows.map((item) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "candidate", on: { click: async (event) => {
              event.currentTarget.closest("li").remove();
              try {
                await add(item);
              } catch (error) {
                notice(`Not added: ${error.message}`, "error");
              }
            } } },
            swatch(methodStyle(item.spec.algorithm.name)),
            h("span", { class: "candidate-name" }, experimentTitle(item, methodTitle)),
            h("span", { class: "muted" }, `${methodTitle(item.spec.algorithm.name)} · ${datasetText(item.spec.dataset)} · seed ${item.spec.seed}`),
            h("span", { class: "num" }, percent(item.headline?.best_accuracy)),
            stateChip(item.state),
          ),
        ),
      ),
      rows.length ? null : h("li", { class: "muted" }, "No further experiments match."),
    );
  } catch (error) {
    notice(`The experiments could not be listed. ${error.message}`, "error");
  }
}

panel.addEventListener("toggle", () => {
  if (!panel.open) return;
  listCandidates();
  search.focus();
});
search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(listCandidates, 200);
});

for (const radio of document.querySelectorAll('input[name="x"]')) {
  const input = /** @type {HTMLInputElement} */ (radio);
  input.checked = input.value === axis;
  input.addEventListener("change", () => {
    axis = input.value;
    setQuery({ x: axis === "round" ? "" : axis });
    render();
  });
}
const targetField = /** @type {HTMLInputElement} */ (one("#target"));
targetField.value = target === null ? "" : String(Number((100 * target).toFixed(4)));
targetField.addEventListener("input", () => {
  target = readTarget(targetField.value);
  targetField.setAttribute("aria-invalid", String(targetField.value !== "" && target === null));
  setQuery({ target: target === null ? "" : targetField.value });
  render();
});

one("#table-csv").addEventListener("click", () => download("compare-table.csv", csv(shownTable), "text/csv"));
one("#table-markdown").addEventListener("click", (event) => copy(/** @type {HTMLElement} */ (event.currentTarget), markdown(shownTable)));
one("#table-latex").addEventListener("click", (event) => copy(/** @type {HTMLElement} */ (event.currentTarget), latex(shownTable)));

for (const [id, columns] of Object.entries(data.columns)) curves.set(id, Curves.fromColumns(columns));
for (const id of ids()) if (!curves.has(id)) curves.set(id, new Curves());
if (data.missing.length) notice(`${data.missing.length} of the experiments in this address do not exist: ${data.missing.join(", ")}`, "error");
if (!experiments.size) panel.open = true;
render();
connect();
