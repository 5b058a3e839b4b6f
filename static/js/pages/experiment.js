// One experiment: how it learns and what it costs, live.

/**
 * @import { RoundRecord } from "../api.d.ts"
 * @import { Line } from "../chart-data.js"
 * @import { Options } from "../chart.js"
 * @import { Heat } from "../heatmap.js"
 * @import { Child, ExperimentPage } from "../types.d.ts"
 * @import { QuantityName } from "../units.js"
 */

import { api, messageOf } from "../api.js";
import { showArtifacts } from "../artifacts.js";
import { Boxplot } from "../boxplot.js";
import { Chart } from "../chart.js";
import { methodStyle, methodTitle } from "../colours.js";
import { all, fill, h, one, pageData, setText, stateChip } from "../dom.js";
import { listBefore } from "../editor.js";
import { extendForm } from "../extend.js";
import { Heatmap } from "../heatmap.js";
import { LeftOut } from "../left-out.js";
import { live, perFrame } from "../live.js";
import { applyRound, Curves, flatten, headlineOf, mean, quantile, show } from "../series.js";
import { notice, working } from "../shell.js";
import { experimentTitle, specYaml } from "../spec.js";
import { actionButtons } from "../steering.js";
import { clock, duration, formatBytes, formatFlops, integer, NONE, percent } from "../units.js";
import { ACTIVE, stateWord, vocabulary } from "../vocabulary.js";

/** @type {ExperimentPage} */
const data = pageData();
let experiment = data.experiment;
const id = experiment.id;
/** Above the majority class, which an accuracy must pass. */
const MARGIN = vocabulary.convergence_margin;
/** Under protocol C the last round counts. */
const byFinal = experiment.headline_rule === "final";
const curves = new Curves();
/**
 * Quartiles over the clients tested in each round, in step with the curves.
 * @type {{low: (number|null)[], high: (number|null)[]}}
 */
const quartiles = { low: [], high: [] };
/** Accuracy on the validation samples, in step with the curves. @type {(number|null)[]} */
const validation = [];
/** The last known accuracy of each client; an idle client keeps its value. @type {Map<number, number>} */
const clients = new Map();
/**
 * The tested rounds with what each client reached, for the box plot and the heat map.
 * @type {{round: number, clients: Record<string, number>}[]}
 */
const tested = [];
/** What the method reported of a round, by client. @typedef {{round: number, clients: Record<string, any>}} Traced */

/** What the method itself reports: by name, a row a round. @type {Map<string, Traced[]>} */
const traces = new Map();
/** Costs that are not curves, summed over the rounds. */
const sums = { up: 0, down: 0 };

const style = methodStyle(experiment.spec.algorithm.name);
const solid = { ...style, dash: [] };
const dashed = { ...style, dash: [6, 4] };
const label = methodTitle(experiment.spec.algorithm.name);
/** @param {string} what */
const fileName = (what) => `${(experiment.name || label).replace(/[^\w.-]+/g, "-")}-${what}`;
const waiting = "The curve starts with the first tested round.";
/** @param {string} name @param {string} title @param {QuantityName} y @param {Partial<Options>} extra */
const chart = (name, title, y, extra = {}) =>
  new Chart(one(`#${name}`), { name, title, y, sync: "rounds", empty: waiting, file: () => fileName(name), ...extra });

const accuracy = chart("accuracy", "Test accuracy", "accuracy");
const loss = chart("loss", "Training loss", "loss", { compact: true });
const bytes = chart("bytes", "Communication", "bytes", { compact: true });
const flops = chart("flops", "Client computation", "flops", { compact: true });
const perClient = chart("clients", "Accuracy of each client", "accuracy", {
  x: "client",
  sync: "",
  bars: true,
  empty: "Bars appear once clients are tested.",
});
let sortClients = "id";
const boxes = new Boxplot(one("#spread"), one("#spread-tools"), style, () => fileName("spread"));
const leftOut = new LeftOut(one("#left-out"));
const clientRounds = new Heatmap(one("#client-rounds"), {
  name: "client-rounds",
  file: () => fileName("client-rounds"),
  title: "Clients by round",
  empty: "It is drawn once clients are tested.",
});
const partitionMap = new Heatmap(one("#partition-map"), {
  name: "partition",
  file: () => fileName("partition"),
  title: "Data per client",
  empty: "Drawing the partition…",
});

/** @param {RoundRecord} record */
function take(record) {
  if (!curves.push(record)) return;
  leftOut.take(record);
  sums.up += record.bytes_up;
  sums.down += record.bytes_down;
  validation.push(record.validation_accuracy ?? null);
  const values = Object.values(record.client_accuracy ?? {});
  quartiles.low.push(values.length > 1 ? quantile(values, 0.25) : null);
  quartiles.high.push(values.length > 1 ? quantile(values, 0.75) : null);
  if (values.length) tested.push({ round: record.round, clients: record.client_accuracy });
  for (const [name, clientValues] of Object.entries(record.traces ?? {})) {
    const rows = traces.get(name) ?? [];
    rows.push({ round: record.round, clients: clientValues });
    traces.set(name, rows);
  }
  for (const [client, value] of Object.entries(record.client_accuracy ?? {})) {
    clients.set(Number(client), value);
  }
}

/** @param {(number|null)[]} y @param {Partial<Line>} more @returns {Line} */
function line(y, more = {}) {
  return { key: label, label, style: solid, x: curves.round, y, ...more };
}

function renderCharts() {
  const best = byFinal ? null : curves.best(); // the final one stands at the end of the line
  for (const part of all("[data-when-tested]")) part.hidden = clients.size === 0;
  const banded = quartiles.low.some((value) => value !== null);
  const validated = validation.some((value) => value !== null);
  const last = lastRound();
  accuracy.set(
    [
      line(
        curves.accuracy,
        banded
          ? {
            low: quartiles.low,
            high: quartiles.high,
            bandText: (index) =>
              `interquartile range of clients ${percent(quartiles.low[index])} – ${percent(quartiles.high[index])}`,
          }
          : {},
      ),
      ...(validated ? [line(validation, { key: "validation", label: "validation", style: dashed })] : []),
    ],
    {
      marks: best
        ? [{ key: label, x: best.round, y: best.accuracy, style: solid, label: `best ${percent(best.accuracy)}` }]
        : [],
      hint: [
        banded ? "line: mean over tested clients · band: interquartile range" : "",
        validated ? "dashed: on validation" : "",
      ].filter(Boolean).join(" · "),
      last,
    },
  );
  loss.set([line(curves.loss)], { last });
  bytes.set([line(curves.bytes)], { hint: curves.total("bytes") === 0 ? "nothing is sent" : "up + down", last });
  flops.set([line(curves.flops)], { hint: "all clients", last });
  renderClients();
  renderSpread();
  renderGroups();
  renderTraces();
  leftOut.render();
}

/** Boxes and heat map: what the mean hides. */
function renderSpread() {
  boxes.set(tested.map(({ round, clients: values }) => ({ round, values: Object.values(values) })));
  const { clients: count } = experiment.spec;
  clientRounds.set(
    tested.length
      ? {
        values: Array.from(
          { length: count },
          (_, client) => tested.map(({ clients: values }) => values[client] ?? null),
        ),
        rowTitle: "Client",
        columnTitle: "Round",
        columnText: (index) => String(tested[index].round),
        valueText: (value) => percent(value),
        low: 0,
        high: 1,
      }
      : null,
  );
}

/** One line for each architecture, when there are several. */
function renderGroups() {
  const names = [...new Set(data.architectures)];
  one("#groups").hidden = names.length < 2 || !tested.length;
  if (names.length < 2 || !tested.length) return;
  groupChart ??= chart("groups", "Accuracy by architecture", "accuracy");
  groupChart.set(
    names.map((name, index) => {
      const y = tested.map(({ clients: values }) =>
        mean(
          Object.entries(values).filter(([client]) => data.architectures[Number(client)] === name).map(([, value]) =>
            value
          ),
        )
      );
      return {
        key: name,
        label: name,
        style: methodStyle(experiment.spec.algorithm.name, index),
        x: tested.map(({ round }) => round),
        y,
      };
    }),
    { hint: "mean over the tested clients of each architecture", last: lastRound() },
  );
}
let groupChart = /** @type {Chart|null} */ (null);

/** @type {Map<string, Chart|Heatmap>} */
const traceCharts = new Map();
/**
 * What the method declares of a trace; one that it no longer declares is called by its name.
 * @param {string} name
 */
function traceOf(name) {
  const declared = vocabulary.traces[experiment.spec.algorithm.name]?.[name];
  return declared ?? { title: `${name[0].toUpperCase()}${name.slice(1).replaceAll("_", " ")}`, unit: "" };
}
const MOST_COMPONENTS = 12;

/** The chart of a trace, for which its first value tells what it is. @param {string} name @param {unknown} value */
function traceChart(name, value) {
  const root = h("section", { id: `trace-${name}`, class: "chart" });
  one("#traces").append(root);
  if (Array.isArray(value) && value.length > MOST_COMPONENTS) {
    const map = new Heatmap(root, { name, file: () => fileName(name), title: traceOf(name).title });
    root.append(h("p", { class: "muted small" }, "Mean over the cohort."));
    return map;
  }
  return new Chart(root, {
    name: `trace-${name}`,
    title: traceOf(name).title,
    y: traceOf(name).unit === "accuracy" ? "accuracy" : "value",
    sync: "rounds",
    empty: waiting,
    file: () => fileName(name),
  });
}

/** The most components that a client reported. @param {Traced[]} rows */
function componentsOf(rows) {
  return Math.max(...rows.map((row) => Math.max(...Object.values(row.clients).map((list) => list.length))));
}

/** The mean of one component over the cohort, round by round. @param {Traced[]} rows @param {number} index */
function componentMeans(rows, index) {
  return rows.map((row) => mean(Object.values(row.clients).map((list) => list[index] ?? null)));
}

/** A row of cells for each component, the last on top. @param {Traced[]} rows @returns {Heat} */
function componentCells(rows) {
  const size = componentsOf(rows);
  return {
    values: Array.from({ length: size }, (_, index) => componentMeans(rows, size - 1 - index)),
    rowTitle: "Up to",
    rowText: (index) => String(Number(((size - index) / size).toFixed(3))),
    columnTitle: "Round",
    columnText: (index) => String(rows[index].round),
    valueText: (value) => String(Number(value.toPrecision(3))),
  };
}

/** A line for each component. @param {Traced[]} rows @returns {Line[]} */
function componentLines(rows) {
  return Array.from({ length: Math.min(MOST_COMPONENTS, componentsOf(rows)) }, (_, index) => ({
    key: String(index),
    label: String(index + 1),
    style: methodStyle(experiment.spec.algorithm.name, index),
    x: rows.map((row) => row.round),
    y: componentMeans(rows, index),
  }));
}

/** The mean over the cohort with its middle half. @param {string} name @param {Traced[]} rows @returns {Line} */
function meanLine(name, rows) {
  const values = rows.map((row) => Object.values(row.clients).filter((value) => typeof value === "number"));
  /** @param {number} share */
  const band = (share) => values.map((list) => (list.length > 1 ? quantile(list, share) : null));
  return {
    key: name,
    label,
    style: solid,
    x: rows.map((row) => row.round),
    y: values.map((list) => mean(list)),
    low: band(0.25),
    high: band(0.75),
    bandText: () => "",
  };
}

/** A number of each client becomes a mean with its middle half; a list of numbers one line for each component. */
function renderTraces() {
  const last = lastRound();
  for (const [name, rows] of traces) {
    const [value] = Object.values(rows[rows.length - 1].clients);
    if (value === undefined) continue;
    const drawn = traceCharts.get(name) ?? traceChart(name, value);
    traceCharts.set(name, drawn);
    if (drawn instanceof Heatmap) drawn.set(componentCells(rows));
    else if (Array.isArray(value)) {
      drawn.set(componentLines(rows), { hint: "mean over the cohort, a line for each component", last });
    } else drawn.set([meanLine(name, rows)], { hint: "mean over the cohort · band: interquartile range", last });
  }
}

/** Where the axis of rounds ends: a curve that grows does so in a frame that stands still. */
function lastRound() {
  return ACTIVE.has(experiment.state) ? experiment.rounds : null;
}

async function drawPartition() {
  try {
    const found = await api.partitionOf(id);
    partitionMap.set({ values: found.counts, rowTitle: "Client", columnTitle: "Class", unit: "samples" });
  } catch (error) {
    partitionMap.fail(`The partition cannot be drawn here. ${messageOf(error)}`);
  }
}

function renderClients() {
  const list = [...clients].map(([client, value]) => ({ client, accuracy: value }));
  list.sort((a, b) => (sortClients === "id" ? a.client - b.client : a.accuracy - b.accuracy || a.client - b.client));
  const values = list.map((item) => item.accuracy);
  perClient.set(
    list.length
      ? [{ key: "clients", label: "accuracy", style: solid, x: list.map((_, index) => index), y: values }]
      : [],
    { xText: (index) => String(list[index]?.client ?? "") },
  );
  const parts = [
    ["clients tested", `${integer(list.length)} of ${integer(experiment.spec.clients)}`],
    ["worst", percent(quantile(values, 0))],
    ["first quartile", percent(quantile(values, 0.25))],
    ["median", percent(quantile(values, 0.5))],
    ["third quartile", percent(quantile(values, 0.75))],
    ["best", percent(quantile(values, 1))],
  ];
  fill(
    one("#client-summary"),
    parts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))),
  );
}

function timeLeft() {
  if (experiment.state !== "running" || curves.length < 2) return null;
  const spent = curves.seconds;
  const from = Math.max(0, spent.length - 11);
  const perRound = (spent[spent.length - 1] - spent[from]) / (spent.length - 1 - from);
  return perRound * (experiment.rounds - curves.round[curves.length - 1]);
}

/** @param {string} name @param {string} value @param {string} detail */
function figure(name, value, detail) {
  const box = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", box), value);
  setText(one(".figure-detail", box), detail);
}

const actions = actionButtons("", () => [experiment], ([done], action) => {
  if (!done) return;
  if (action.id === "retry") return location.assign(`/experiments/${done.id}`);
  if (action.id === "delete") return location.assign(listBefore({ undo: done.id }));
  experiment = done;
  renderSoon();
});
fill(one("#actions"), actions.buttons);

const wallPerRound =
  () => (curves.length > 1 ? (curves.total("seconds") ?? 0) / Math.max(1, curves.round[curves.length - 1]) : null);
const renderExtend = data.problems.length ? () => {} : extendForm(() => experiment, data.fixed_rounds, wallPerRound);
/** The accuracy that counts, and beside it the other one where it differs. */
function renderAccuracy() {
  const [best, final] = [curves.best(), curves.final()];
  if (!best || !final) return figure("best", NONE, "not tested yet");
  const active = ACTIVE.has(experiment.state);
  const differs = percent(final.accuracy) !== percent(best.accuracy);
  /** @type {(tested: {round: number}) => string} */
  const inRound = ({ round }) => `in round ${integer(round)}`;
  if (byFinal) {
    return figure(
      "best",
      percent(final.accuracy),
      `${inRound(final)}${differs ? ` · best ${percent(best.accuracy)} ${inRound(best)}` : ""}`,
    );
  }
  figure(
    "best",
    percent(best.accuracy),
    `${inRound(best)}${differs ? ` · ${active ? "now" : "last"} ${percent(final.accuracy)}` : ""}`,
  );
}

/** Only of a finished run, whose state stays what it is. */
function renderConvergence() {
  const { majority_share: share, no_convergence: told } = experiment;
  one("#convergence").hidden = !told;
  if (!told) return;
  const accuracy = `the ${byFinal ? "final" : "best"} accuracy, ${percent(headlineOf(experiment), 2)}`;
  const threshold = `${percent((share ?? 0) + MARGIN, 2)}, ${
    Number((100 * MARGIN).toPrecision(3))
  } points above what naming the most frequent class of each client’s test set reaches`;
  setText(
    one("#convergence"),
    `No convergence: ${accuracy}, does not pass ${threshold}. Papers print “–” for such a run.`,
  );
}

function renderHead() {
  const last = curves.length ? curves.round[curves.length - 1] : 0;
  const left = timeLeft();
  renderAccuracy();
  renderConvergence();
  renderValidation();
  figure("round", integer(last), `of ${integer(experiment.rounds)}`);
  const bar = /** @type {HTMLProgressElement} */ (one("#progress"));
  bar.max = experiment.rounds;
  bar.value = last;
  figure(
    "bytes",
    curves.length ? formatBytes(curves.total("bytes")) : NONE,
    curves.length ? `${formatBytes(sums.up)} up · ${formatBytes(sums.down)} down` : "",
  );
  figure(
    "flops",
    curves.length ? formatFlops(curves.total("flops")) : NONE,
    curves.length > 1 ? `${formatFlops((curves.total("flops") ?? 0) / Math.max(1, last))} per round` : "",
  );
  const perRound = curves.length > 1 ? `${duration(wallPerRound())} per round` : "";
  figure(
    "time",
    curves.length ? duration(curves.total("seconds")) : NONE,
    left === null ? perRound : `about ${duration(left)} left`,
  );
  const chip = one("#state");
  if (chip.dataset.state !== experiment.state) {
    chip.dataset.state = experiment.state;
    fill(chip, stateChip(experiment.state));
  }
  actions.update((action, fitting, button) => {
    const cancelling = action.id === "cancel" && experiment.state === "cancelling";
    button.hidden = !fitting.length && !cancelling;
    button.disabled = cancelling;
    if (action.id === "cancel") setText(button, cancelling ? "Cancelling…" : "Cancel experiment");
  });
  document.title = `${ACTIVE.has(experiment.state) && experiment.rounds ? `${last}/${experiment.rounds} · ` : ""}${
    experimentTitle(experiment, methodTitle)
  } · FedArena`;
  one("#checkpoint").hidden = !experiment.has_checkpoint;
  renderExtend();
  renderWaiting(last);
  renderStory();
  renderError(last);
  renderFacts();
}

/** What the experiment reached where its validation part chooses the round, or under C in its last one. */
function renderValidation() {
  const headline = experiment.headline;
  const final = experiment.headline_rule === "final";
  const level = (final ? headline?.final_validation_accuracy : headline?.best_validation_accuracy) ?? null;
  one('[data-figure="validation"]').hidden = level === null;
  if (level === null) return;
  const where = final ? "in the last test" : `in round ${integer(headline?.best_validation_round)}`;
  figure(
    "validation",
    percent(final ? headline?.final_accuracy : headline?.accuracy_at_best_validation),
    `${percent(level)} on validation ${where}`,
  );
}

/** @type {Record<string, string>} */
const BEFORE_THE_FIRST_ROUND = {
  paused: "Paused before the first round.",
  running: "Running. The first round is not finished yet.",
  cancelling: "Being cancelled before the first round is finished.",
  cancelled: "Cancelled before the first round was finished, so there is nothing to draw.",
};

/** Until there is a round, one line says what is waited for; no panel stands empty. @param {number} last */
function renderWaiting(last) {
  const { state, position } = experiment;
  const before = position
    ? `${integer(position)} ${position === 1 ? "experiment is" : "experiments are"} taken before it`
    : "";
  const place = position === 0 ? ": next in line" : before && `: ${before}`;
  const text = state === "queued" ? `Queued${place || ""}.` : BEFORE_THE_FIRST_ROUND[state] ?? "";
  one("#waiting").hidden = last > 0 || !text;
  setText(one("#waiting"), text);
  for (const part of all("[data-after-start]")) part.hidden = last < 1;
}

/** Its place moves with others, of which the live events of this page tell nothing. */
async function followQueue() {
  if (experiment.state !== "queued" || document.hidden) return;
  try {
    const { position } = await api.experiment(id);
    if (experiment.state !== "queued") return;
    experiment = { ...experiment, position };
    renderSoon();
  } catch (error) {
    console.info("The place in the queue could not be read.", error); // the live dot shows that the server is away
  }
}

/** Its relatives with another number of rounds. */
function lengths() {
  const { continues, taken_over: taken, rounds } = experiment;
  /** @type {(other: {id: string, rounds: number}) => HTMLElement} */
  const link = ({ id: other, rounds: count }) => h("a", { href: `/experiments/${other}` }, `${integer(count)} rounds`);
  const source = data.source ? ["a run of ", link(data.source)] : ["a run that was deleted"];
  return [
    continues && [taken > rounds ? "Read out of " : `Goes on after round ${integer(taken - 1)} of `, ...source],
    data.heirs.length > 0 && ["Also with ", data.heirs.flatMap((heir, index) => [index ? ", " : "", link(heir)])],
  ];
}

/** Where it comes from, why it waits, and what ended it early: one line, empty for most. */
function renderStory() {
  const { state, window: hours, hold } = experiment;
  const waits = state === "queued" || state === "paused";
  const later = waits && new Date(experiment.start_after ?? 0).getTime() > Date.now();
  const ended = !ACTIVE.has(state);
  /** @type {Child[]} */
  const parts = [
    data.sweep &&
    ["Part of the sweep ", h("a", { href: `/sweeps/${data.sweep.id}` }, data.sweep.name ?? data.sweep.id)],
    experiment.retry_of && ["Retry of ", h("a", { href: `/experiments/${experiment.retry_of}` }, "an earlier attempt")],
    ...lengths(),
    state === "paused" && [hold && hold !== "asked" ? `Paused: ${hold}` : "Paused by hand"],
    experiment.pause && !ended && ["Pauses after the present round"],
    later && [`Starts after ${clock(experiment.start_after)}`],
    hours && !ended && [`Runs only from ${hours.from} to ${hours.to} ${hours.zone}`],
    waits && experiment.priority !== 0 && [`Priority ${integer(experiment.priority)}`],
    experiment.stopped_by && [`Ended early: ${experiment.stopped_by}`],
  ].filter(Boolean);
  const line = h("p", {}, parts.map((part, index) => [index ? " · " : "", part]));
  const place = one("#story");
  place.hidden = parts.length === 0;
  if (place.textContent !== line.textContent) fill(place, ...line.childNodes);
}

/** @type {Record<string, string>} */
const ADVICE = {
  failed:
    "Rounds before the failure are kept. Look at the details below, correct the spec or the code, and queue it again.",
  diverged:
    "The training of more clients became infinite or not a number than training.divergence_tolerance lets sit out. Rounds before it are kept. A lower learning rate or gradient clipping often helps.",
  not_applicable: "The method cannot run with these models or data, so nothing was computed.",
};

/** @param {number} last */
function renderError(last) {
  const panel = one("#error");
  const told = experiment.error;
  panel.hidden = !told && !(experiment.state in ADVICE);
  if (panel.hidden) return;
  panel.dataset.state = experiment.state;
  setText(one("#error-title"), `${stateWord(experiment.state)}${last ? ` after round ${integer(last)}` : ""}`);
  setText(one("#error-reason"), told?.reason ?? "");
  setText(one("#error-advice"), ADVICE[experiment.state] ?? "");
  one("#error-details").hidden = !told?.detail;
  setText(one("#error-traceback"), told?.detail ?? "");
}

function renderFacts() {
  /** @type {[string, string][]} */
  const facts = [
    ["id", id],
    ["fingerprint", experiment.fingerprint],
    ["partition", experiment.partition_fingerprint ?? NONE],
    ["created", clock(experiment.created_at)],
    ["started", clock(experiment.started_at)],
    ["finished", clock(experiment.finished_at)],
    ["worker", experiment.owner ?? NONE],
    ["attempts", integer(experiment.attempts)],
  ];
  for (const [key, value] of Object.entries(experiment.environment ?? {})) {
    facts.push([key.replaceAll("_", " "), show(value)]);
  }
  const list = one("#facts");
  const signature = JSON.stringify(facts);
  if (list.dataset.signature === signature) return; // leave a selection in the text alone
  list.dataset.signature = signature;
  const copied = new Set(["id", "fingerprint", "partition"]);
  fill(
    list,
    facts.map(([name, value]) =>
      h(
        "div",
        {},
        h("dt", {}, name),
        h(
          "dd",
          {},
          value,
          copied.has(name) && value !== NONE
            ? h("button", {
              type: "button",
              class: "tool",
              "data-copy": "",
              "data-text": value,
              "aria-label": `Copy ${name}`,
            }, "Copy")
            : null,
        ),
      )
    ),
  );
}

function renderSpec() {
  const { spec } = experiment;
  setText(one("#spec-yaml"), specYaml(spec));
  setText(one("#spec-json"), JSON.stringify(spec, null, 2));
  const rows = Object.entries(flatten(spec)).filter(([path]) => !["name", "tags", "notes"].includes(path));
  fill(
    one("#spec-table"),
    rows.map(([path, value]) => h("div", {}, h("dt", {}, path), h("dd", { class: "num" }, show(value)))),
  );
}

/** Name, tags and notes may change at any time. */
function renderLabels() {
  setText(one("h1"), experimentTitle(experiment, methodTitle));
  fill(one("#tags"), experiment.tags.map((tag) => h("span", { class: "tag" }, tag)));
  renderNotes(one("#notes"), experiment.notes || "");
  if (edited) return; // what somebody wrote and did not save yet
  field("label-name").value = experiment.name ?? "";
  field("label-tags").value = experiment.tags.join(", ");
  field("label-notes").value = experiment.notes ?? "";
}

const ADDRESS = /(https?:\/\/[^\s<>"']*[^\s<>"'.,;:!?)\]])/;

/**
 * Addresses become links; long notes are cut, and shown whole when somebody wants them or tabs into them.
 * @param {HTMLElement} place @param {string} notes
 */
function renderNotes(place, notes) {
  one("#notes-box").hidden = !notes;
  if (place.textContent !== notes) {
    const parts = notes.split(ADDRESS);
    fill(place, parts.map((part, index) => (index % 2 ? h("a", { href: part, rel: "noopener" }, part) : part)));
  }
  const open = "open" in one("#notes-box").dataset;
  one("#notes-all").hidden = !open && place.scrollHeight <= place.clientHeight;
}

/** @param {boolean} open */
function openNotes(open) {
  one("#notes-box").toggleAttribute("data-open", open);
  one("#notes-all").setAttribute("aria-expanded", String(open));
  setText(one("#notes-all"), open ? "Show less" : "Show all");
}

let edited = false;
/** @param {string} id */
const field = (id) => /** @type {HTMLInputElement} */ (one(`#${id}`));

/** As the form says them. */
function labels() {
  const tags = field("label-tags").value.split(",").map((tag) => tag.trim()).filter(Boolean);
  return {
    name: field("label-name").value.trim() || null,
    tags: [...new Set(tags)],
    notes: field("label-notes").value,
  };
}

/** @param {SubmitEvent} event */
async function saveLabels(event) {
  event.preventDefault();
  const written = labels();
  try {
    experiment = await working(api.relabel(id, written));
    edited = JSON.stringify(labels()) !== JSON.stringify(written);
    renderLabels();
    renderSpec();
    notice("Saved.");
  } catch (error) {
    notice(`Not saved: ${messageOf(error)}`, "error");
  }
}

const render = () => {
  renderLabels();
  renderHead();
  renderCharts();
};
const renderSoon = perFrame(render);

live.onState((state) => {
  if (state.id !== id) return;
  experiment = state;
  renderSoon();
  followQueue();
  readLogSoon();
});
live.onRound((record) => {
  if (record.experiment !== id) return;
  take(record);
  applyRound(experiment, record);
  renderSoon();
  readLogSoon();
});

for (const radio of document.querySelectorAll('input[name="client-order"]')) {
  radio.addEventListener("change", () => {
    sortClients = /** @type {HTMLInputElement} */ (radio).value;
    renderClients();
  });
}

// --- log ------------------------------------------------------------------------------------------------------------

const log = /** @type {HTMLDetailsElement} */ (one("#log details"));
let lastLine = 0;
let logTimer = 0;

async function readLog() {
  const { lines } = await api.log(id, lastLine);
  for (const line of lines) one("#log-lines").append(`${line.at} ${line.level.padEnd(7)} ${line.text}\n`);
  lastLine = lines.at(-1)?.number ?? lastLine;
  one("#log-empty").hidden = lastLine > 0;
}

/** At most once in two seconds, and only while somebody looks. */
function readLogSoon() {
  if (!log.open || logTimer) return;
  logTimer = window.setTimeout(() => {
    logTimer = 0;
    readLog();
  }, 2000);
}

log.addEventListener("toggle", () => log.open && readLog());

one("#notes-all").addEventListener("click", () => openNotes(!("open" in one("#notes-box").dataset)));
one("#notes").addEventListener("focusin", () => openNotes(true));
setInterval(followQueue, 15_000);
one("#labels-form").addEventListener("input", () => (edited = true));
one("#labels-form").addEventListener("submit", saveLabels);
// only when it comes into view: a large data set takes a moment
const looked = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  looked.disconnect();
  drawPartition();
});
looked.observe(one("#partition-map"));

for (const record of data.rounds) take(record);
for (const [client, value] of Object.entries(data.latest ?? {})) clients.set(Number(client), value);
one("#detailed").hidden = !data.detailed;
setText(
  one("#detailed"),
  data.detailed
    ? `Many clients: pictures of single clients show ${integer(data.detailed)} of the ${
      integer(data.tested)
    } rounds tested before this page was opened. The files under “Data” hold all.`
    : "",
);
live.start({ after: data.seq, experiments: [id] }); // first: a picture that cannot be drawn must not keep the page from being current
renderSpec();
render();
showArtifacts(experiment.state);
