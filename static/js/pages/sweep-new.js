// A new sweep: write the document, see what it would run and cost while writing, queue it.

/** @import { SweepCheck } from "../api.d.ts" */

import { api, isAborted, messageOf, newKey, problemsIn } from "../api.js";
import { fill, h, one, pageData, setText } from "../dom.js";
import { keepDraft, keepInAddress, keptDraft, linkTo, makeEditor, textOfAddress } from "../editor.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import {
  bytesText,
  costText,
  flopsText,
  plural,
  problemsOf,
  queueText,
  rehearse,
  showNotApplicable,
} from "../sweep-plan.js";
import { integer } from "../units.js";

const DRAFT = "fedarena.sweep-draft";
const EXAMPLE = `name: who learns from whom
base:
  dataset: {name: digits}
  partition: {name: pathological, classes_per_client: 2}
  models: {family: cnn-5}
  clients: 10
  rounds: 10
  training: {epochs: 1, batch_size: 32, augment: false}
grid:
  algorithm:
    - {name: standalone}
    - {name: fedavg}
    - {name: fedprox, mu: 0.1}
  training.lr: [0.01, 0.05]
seeds: [42, 43, 44]
`;
/** @type {{seq: number, yaml: string|null}} */
const data = pageData();
const area = /** @type {HTMLTextAreaElement} */ (one("#document"));
const button = /** @type {HTMLButtonElement} */ (one("#queue-it"));
const { showProblems, drawLines } = makeEditor(area);

let controller = new AbortController();
let timer = 0;
/**
 * The text as it stands, once it was found good. It has its key from the start: sent again after a lost answer, it makes
 * no second sweep.
 * @type {{text: string, key: string}|null}
 */
let good = null;

/** @param {string} state @param {string} text */
function verdict(state, text) {
  const box = one("#verdict");
  box.dataset.state = state;
  setText(box, text);
  button.disabled = state !== "good";
}

/** @param {SweepCheck} plan */
function showPlan(plan) {
  const reused = Object.entries(plan.reused).map(([state, count]) => `${integer(count)} ${state}`).join(", ");
  const notApplicable = plan.not_applicable.reduce((sum, item) => sum + item.experiments, 0);
  /** @type {([string, string]|null)[]} */
  const facts = [
    ["Settings", integer(plan.cells)],
    ["Experiments", integer(plan.experiments)],
    ["To run", integer(plan.to_run)],
    reused ? ["There already", reused] : null,
    notApplicable ? ["Not applicable", integer(notApplicable)] : null,
    plan.excluded ? ["Excluded", integer(plan.excluded)] : null,
    ["Time", costText(plan)],
    ["Communication", bytesText(plan)],
    ["Computation", flopsText(plan)],
  ];
  fill(
    one("#dry-run"),
    facts.filter((fact) => fact !== null).map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))
    ),
  );
  showNotApplicable(plan);
  setText(button, plan.ok ? queueText(plan) : "Queue the sweep");
}

/** Until a document is understood, what another one would run says nothing about it. @param {string} value */
function showNoPlan(value) {
  const facts = ["Cells", "Experiments", "To run", "Time", "Communication", "Computation"];
  fill(one("#dry-run"), facts.map((name) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value))));
  showNotApplicable(null);
  setText(button, "Queue the sweep");
}

async function check() {
  controller.abort();
  controller = new AbortController();
  good = null;
  showNoPlan("…");
  const text = area.value;
  if (!text.trim()) {
    showNoPlan("–");
    showProblems([{ field: "", message: "The document is empty. Reset it to the example." }]);
    return verdict("bad", "1 problem");
  }
  verdict("busy", "Checking…");
  try {
    const { signal } = controller;
    const plan = await api.checkSweep(text, signal);
    showPlan(plan);
    const problems = problemsOf(plan);
    showProblems(problems);
    if (!plan.ok) return verdict("bad", plural(problems.length, "problem"));
    good = { text, key: newKey() };
    verdict("good", "Ready");
    return await rehearse(plan, () => api.rehearseSweep(text, signal), showPlan);
  } catch (error) {
    if (isAborted(error)) return undefined;
    const errors = problemsIn(error);
    showProblems(errors);
    showNoPlan("–");
    return verdict("bad", plural(errors.length, "problem"));
  }
}

function checkSoon() {
  clearTimeout(timer);
  controller.abort(); // what is still answered is about another document
  good = null;
  button.disabled = true;
  showNoPlan("…");
  keepDraft(DRAFT, area.value);
  showLink();
  drawLines();
  timer = window.setTimeout(() => {
    keepInAddress(area.value);
    check();
  }, 400);
}

/** The same document in the form. */
function showLink() {
  /** @type {HTMLAnchorElement} */ (one("#in-form")).href = linkTo("/new", area.value);
}

async function submit() {
  const job = good;
  if (!job) return;
  good = null;
  button.disabled = true;
  try {
    const made = await working(api.submitSweep(job.text, job.key));
    keepDraft(DRAFT, null);
    location.assign(`/sweeps/${made.id}`);
  } catch (error) {
    notice(`Not queued: ${messageOf(error)}`, "error");
    if (area.value !== job.text) return; // the new text is being checked
    showProblems(problemsIn(error));
    verdict("bad", "Not queued");
    good = job;
    button.disabled = false;
  }
}

function start() {
  area.value = textOfAddress() ?? data.yaml ?? keptDraft(DRAFT) ?? EXAMPLE;
  drawLines();
  showLink();
  check();
}

window.addEventListener("hashchange", () => textOfAddress() !== null && start());
area.addEventListener("input", checkSoon);
area.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && !event.repeat) submit();
});
button.addEventListener("click", submit);
one("#start-over").addEventListener("click", () => {
  keepDraft(DRAFT, null);
  history.replaceState(null, "", location.pathname);
  data.yaml = EXAMPLE;
  start();
});
start();
live.start({ after: data.seq });
