// One experiment: how it learns and what it costs, live.

import { api } from "../api.js";
import { showArtifacts } from "../artifacts.js";
import { Chart } from "../chart.js";
import { methodStyle, methodTitle } from "../colours.js";
import { ACTIVE, fill, h, one, pageData, setText, stateChip, stateWord } from "../dom.js";
import { live, perFrame } from "../live.js";
import { Curves, applyRound, flatten, quantile, show } from "../series.js";
import { notice, working } from "../shell.js";
import { experimentTitle, specYaml } from "../spec.js";
import { NONE, clock, duration, formatBytes, formatFlops, integer, percent } from "../units.js";

const data = pageData();
let experiment = data.experiment;
const id = experiment.id;
const curves = new Curves();
/** Quartiles over the clients tested in each round, in step with the curves. */
const quartiles = { low: [], high: [] };
/** The last known accuracy of each client; an idle client keeps its value. @type {Map<number, {accuracy: number, round: number}>} */
const clients = new Map();
/** Costs that are not curves, summed over the rounds. */
const sums = { up: 0, down: 0 };

const style = methodStyle(experiment.spec.algorithm.name);
const solid = { ...style, dash: [] };
const label = methodTitle(experiment.spec.algorithm.name);
const fileName = (what) => `${(experiment.name || label).replace(/[^\w.-]+/g, "-")}-${what}`;
const waiting = "The curve starts with the first round.";
const chart = (name, title, y, extra = {}) =>
  new Chart(one(`#${name}`), { name, title, y, sync: "rounds", empty: waiting, file: () => fileName(name), ...extra });

const accuracy = chart("accuracy", "Test accuracy", "accuracy");
const loss = chart("loss", "Training loss", "loss", { compact: true });
const bytes = chart("bytes", "Communication", "bytes", { compact: true });
const flops = chart("flops", "Client computation", "flops", { compact: true });
const perClient = chart("clients", "Accuracy of each client", "accuracy", { x: "client", sync: "", bars: true, empty: "Bars appear once clients are tested." });
let sortClients = "id";

function take(record) {
  if (!curves.push(record)) return;
  sums.up += record.bytes_up;
  sums.down += record.bytes_down;
  const values = Object.values(record.client_accuracy ?? {});
  quartiles.low.push(values.length > 1 ? quantile(values, 0.25) : null);
  quartiles.high.push(values.length > 1 ? quantile(values, 0.75) : null);
  for (const [client, value] of Object.entries(record.client_accuracy ?? {})) {
    clients.set(Number(client), { accuracy: value, round: record.round });
  }
}

function line(y, more = {}) {
  return { key: label, label, style: solid, x: curves.round, y, ...more };
}

function renderCharts() {
  const best = curves.best();
  const banded = quartiles.low.some((value) => value !== null);
  accuracy.set(
    [
      line(curves.accuracy, banded ? {
        low: quartiles.low,
        high: quartiles.high,
        bandText: (index) => `middle half of clients ${percent(quartiles.low[index])} – ${percent(quartiles.high[index])}`,
      } : {}),
    ],
    {
      marks: best ? [{ key: label, x: best.round, y: best.accuracy, style: solid, label: `best ${percent(best.accuracy)}` }] : [],
      hint: banded ? "line: mean over tested clients · band: their middle half" : "",
    },
  );
  loss.set([line(curves.loss)]);
  bytes.set([line(curves.bytes)], { hint: curves.total("bytes") === 0 ? "nothing is sent" : "up + down" });
  flops.set([line(curves.flops)], { hint: "all clients" });
  renderClients();
}

function renderClients() {
  const list = [...clients].map(([client, value]) => ({ client, ...value }));
  list.sort((a, b) => (sortClients === "id" ? a.client - b.client : a.accuracy - b.accuracy || a.client - b.client));
  const values = list.map((item) => item.accuracy);
  perClient.set(
    list.length ? [{ key: "clients", label: "accuracy", style: solid, x: list.map((_, index) => index), y: values }] : [],
    { xText: (index) => String(list[index]?.client ?? "") },
  );
  const parts = [
    ["clients tested", `${integer(list.length)} of ${integer(experiment.spec.clients)}`],
    ["worst", percent(values.length ? Math.min(...values) : null)],
    ["first quartile", percent(quantile(values, 0.25))],
    ["median", percent(quantile(values, 0.5))],
    ["third quartile", percent(quantile(values, 0.75))],
    ["best", percent(values.length ? Math.max(...values) : null)],
  ];
  fill(one("#client-summary"), parts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))));
}

function timeLeft() {
  if (experiment.state !== "running" || curves.length < 2) return null;
  const spent = curves.seconds;
  const from = Math.max(0, spent.length - 11);
  const perRound = (spent[spent.length - 1] - spent[from]) / (spent.length - 1 - from);
  return perRound * (experiment.rounds - curves.round[curves.length - 1]);
}

function figure(name, value, detail) {
  const box = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", box), value);
  setText(one(".figure-detail", box), detail);
}

function renderHead() {
  const best = curves.best();
  const final = curves.final();
  const last = curves.length ? curves.round[curves.length - 1] : 0;
  const left = timeLeft();
  figure("best", percent(best?.accuracy), best ? `in round ${integer(best.round)} · now ${percent(final)}` : "not tested yet");
  figure("round", integer(last), `of ${integer(experiment.rounds)}`);
  const bar = /** @type {HTMLProgressElement} */ (one("#progress"));
  bar.max = experiment.rounds;
  bar.value = last;
  figure("bytes", curves.length ? formatBytes(curves.total("bytes")) : NONE, curves.length ? `${formatBytes(sums.up)} up · ${formatBytes(sums.down)} down` : "");
  figure("flops", curves.length ? formatFlops(curves.total("flops")) : NONE, curves.length > 1 ? `${formatFlops(curves.total("flops") / Math.max(1, last))} a round` : "");
  const perRound = curves.length > 1 ? `${duration(curves.total("seconds") / Math.max(1, last))} a round` : "";
  figure("time", curves.length ? duration(curves.total("seconds")) : NONE, left === null ? perRound : `about ${duration(left)} left`);
  const chip = one("#state");
  if (chip.dataset.state !== experiment.state) {
    chip.dataset.state = experiment.state;
    fill(chip, stateChip(experiment.state));
  }
  const cancel = /** @type {HTMLButtonElement} */ (one("#cancel"));
  cancel.hidden = !ACTIVE.has(experiment.state);
  cancel.disabled = experiment.state === "cancelling";
  setText(cancel, experiment.state === "cancelling" ? "Cancelling…" : "Cancel experiment");
  document.title = `${ACTIVE.has(experiment.state) && experiment.rounds ? `${last}/${experiment.rounds} · ` : ""}${experimentTitle(experiment, methodTitle)} · FedArena`;
  renderError(last);
  renderFacts();
}

const ADVICE = {
  failed: "Rounds before the failure are kept. Look at the details below, correct the spec or the code, and queue it again.",
  diverged: "The loss became infinite or not a number. Rounds before it are kept. A lower learning rate or gradient clipping often helps.",
  not_applicable: "The method cannot run with these models or data, so nothing was computed.",
};

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
  const facts = [
    ["id", id],
    ["fingerprint", experiment.fingerprint],
    ["partition", experiment.partition_fingerprint ?? NONE],
    ["created", clock(experiment.created_at)],
    ["started", clock(experiment.started_at)],
    ["finished", clock(experiment.finished_at)],
    ["worker", experiment.owner ?? NONE],
    ["attempts", integer(experiment.attempts)],
    ...Object.entries(experiment.environment ?? {}).map(([key, value]) => [key.replaceAll("_", " "), show(value)]),
  ];
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
        h("dd", {}, value, copied.has(name) && value !== NONE ? h("button", { type: "button", class: "tool", "data-copy": "", "data-text": value, "aria-label": `Copy ${name}` }, "Copy") : null),
      ),
    ),
  );
}

function renderSpec() {
  const { spec } = experiment;
  setText(one("#spec-yaml"), specYaml(spec));
  setText(one("#spec-json"), JSON.stringify(spec, null, 2));
  setText(one("#notes"), spec.notes || "");
  one("#notes").hidden = !spec.notes;
  const rows = Object.entries(flatten(spec)).filter(([path]) => !["name", "tags", "notes"].includes(path));
  fill(one("#spec-table"), rows.map(([path, value]) => h("div", {}, h("dt", {}, path), h("dd", { class: "num" }, show(value)))));
}

const render = () => {
  renderHead();
  renderCharts();
};
const renderSoon = perFrame(render);

live.onState((state) => {
  if (state.id !== id) return;
  experiment = state;
  renderSoon();
});
live.onRound((record) => {
  if (record.experiment !== id) return;
  take(record);
  applyRound(experiment, record);
  renderSoon();
});

one("#cancel").addEventListener("click", async () => {
  try {
    experiment = await working(api.cancel(id));
    renderSoon();
  } catch (error) {
    notice(`Not cancelled: ${error.message}`, "error");
  }
});
for (const radio of document.querySelectorAll('input[name="client-order"]')) {
  radio.addEventListener("change", () => {
    sortClients = /** @type {HTMLInputElement} */ (radio).value;
    renderClients();
  });
}

for (const record of data.rounds) take(record);
renderSpec();
render();
showArtifacts(experiment.state);
live.start({ after: data.seq, experiments: [id] });
