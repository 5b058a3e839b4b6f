// A new experiment, or a sweep of many: the form and the text are two views of one document; it is checked, priced and
// drawn while it is written.

/**
 * @import { CostEstimate, SweepCheck } from "../api.d.ts"
 * @import { FieldOptions } from "../form.js"
 * @import { Catalogue, Document, NewPage, Parameters, Problem, Properties } from "../types.d.ts"
 */

// @ts-types="../js-yaml.d.ts"
import { load, YAMLException } from "../../vendor/js-yaml/js-yaml.esm.min.mjs";
import { api, isAborted, messageOf, newKey, problemsIn } from "../api.js";
import { FAMILIES, FAMILY_TITLES } from "../colours.js";
import { all, fill, h, one, pageData, setText } from "../dom.js";
import { keepDraft, keepInAddress, keptDraft, linkTo, makeEditor, textOfAddress } from "../editor.js";
import { Block, Field, valueAt, withValue } from "../form.js";
import { Heatmap } from "../heatmap.js";
import { live } from "../live.js";
import { notice, working } from "../shell.js";
import { cohortSize, specYaml } from "../spec.js";
import {
  firstSpec,
  isSweep,
  sharedOf,
  startValues,
  sweptElsewhere,
  valuesOf,
  withShared,
  withValues,
} from "../sweep-document.js";
import {
  bytesText,
  costText,
  flopsText,
  placeText,
  plural,
  problemsOf,
  queueText,
  rehearse,
  restText,
  showNotApplicable,
} from "../sweep-plan.js";
import { duration, formatBytes, formatFlops, integer } from "../units.js";

/** @type {NewPage} */
const data = pageData();
const catalogue = data.catalogue;
const area = /** @type {HTMLTextAreaElement} */ (one("#spec"));
const button = /** @type {HTMLButtonElement} */ (one("#queue-it"));
const preset = /** @type {HTMLSelectElement} */ (one("#preset"));
const DRAFT = "fedarena.draft";

/**
 * A block with its name and the defaults its schema knows.
 * @param {{parameters: Parameters}|undefined} entry @param {string} name @returns {Document}
 */
function blockOf(entry, name) {
  /** @type {Document} */
  const block = { name };
  for (const [key, schema] of Object.entries(entry?.parameters.properties ?? {})) {
    if (key !== "name" && schema.const === undefined && schema.default !== undefined) block[key] = schema.default;
  }
  return block;
}

/** @param {string|undefined|null} id */
const algorithmOf = (id) => catalogue.algorithms.find((item) => item.id === id);
/** @param {string|undefined} id */
const partitionOf = (id) => catalogue.partitions.find((item) => item.id === id);
/** @param {Catalogue["datasets"][number]} item */
const datasetKey = (item) => (item.set ? `imported:${item.set}` : item.id);
/** @param {Document|undefined} dataset */
const datasetOf = (dataset) =>
  catalogue.datasets.find((
    item,
  ) => (dataset?.name === "imported" ? item.set === dataset.set : item.id === dataset?.name));

/**
 * A small spec that runs on any machine within a minute: always valid, since its parts come from the catalogue.
 * @param {string} id @returns {Document}
 */
function example(id) {
  const families = catalogue.models.map((item) => item.id);
  return {
    name: `my-first-${id}`,
    algorithm: blockOf(algorithmOf(id), id),
    dataset: { name: "digits" },
    partition: { name: "pathological", classes_per_client: 2 },
    models: { family: families.includes("cnn-5") ? "cnn-5" : families[0] },
    clients: 10,
    participation: 1.0,
    rounds: 20,
    training: { epochs: 1, batch_size: 32, lr: 0.01, momentum: 0.9, weight_decay: 0.001, clip: 50, augment: false },
    evaluation: { protocol: "A", every: 1 },
    seed: 42,
  };
}

// --- the text -------------------------------------------------------------------------------------------------------

/** @returns {{found: any, problem: {field: string, message: string}|null}} */
function parse() {
  if (!area.value.trim()) {
    return {
      found: null,
      problem: { field: "", message: "The spec is empty. Choose a method above to start from an example." },
    };
  }
  try {
    const found = load(area.value);
    if (found === null || typeof found !== "object" || Array.isArray(found)) {
      return { found: null, problem: { field: "", message: "A spec is a list of fields, each as `name: value`." } };
    }
    return { found, problem: null };
  } catch (error) {
    const { mark, reason } = error instanceof YAMLException ? error : { mark: undefined, reason: messageOf(error) };
    return {
      found: null,
      problem: {
        field: mark ? `line ${mark.line + 1}` : "",
        message: `Not readable as YAML or JSON: ${reason}.`,
      },
    };
  }
}

// --- the form -------------------------------------------------------------------------------------------------------

/** What the text says, as far as it could be read; the form changes it and writes the text anew. */
let current = /** @type {any} */ ({});

/** @param {any} changed the document as it is from now on */
function write(changed) {
  current = named(changed);
  area.value = specYaml(current);
  syncForm();
  checkSoon();
}

/** The example's name follows its method. @param {Document} changed @returns {Document} */
function named(changed) {
  if (typeof changed.name !== "string" || !changed.name.startsWith("my-first-")) return changed;
  return { ...changed, name: isSweep(changed) ? "my-first-sweep" : `my-first-${changed.algorithm?.name ?? ""}` };
}

/** @type {{change: (path: string, value: unknown) => void}} */
const plain = { change: (path, value) => write(withShared(current, path, value)) };
/** @type {FieldOptions} */
const swept = { ...plain, sweep: (path, values) => write(withValues(current, path, values)), start: startValues };

/** @param {Catalogue["algorithms"][number]} item */
const FAMILY_OF = (item) => FAMILY_TITLES[item.family] ?? "Other";
const byFamily = [
  ...FAMILIES.map((family) => catalogue.algorithms.filter((item) => item.family === family)),
  catalogue.algorithms.filter((item) => !FAMILIES.includes(item.family)),
].flat();

/**
 * The four choices that decide which other fields there are. A method, a data set or a partition is swept as a whole
 * block.
 */
const choices = {
  algorithm: new Field("algorithm", {}, {
    ...swept,
    id: "method",
    title: "Method",
    change: (_, block) => write(withShared(base(), "algorithm", blockOf(algorithmOf(block.name), block.name))),
    choices: {
      options: byFamily.map((item) => ({ id: item.id, label: item.title, group: FAMILY_OF(item) })),
      idOf: (block) => block?.name,
      make: (name) => ({ name }),
      parts: (block) => algorithmOf(block?.name)?.parameters.properties,
    },
  }),
  dataset: new Field("dataset", {}, {
    ...swept,
    id: "dataset",
    title: "Data set",
    change: (_, block) => {
      const changed = withShared(current, "dataset", block);
      write(block.name === "imported" ? withShared(changed, "partition", { name: "imported" }) : changed);
    },
    choices: {
      options: catalogue.datasets.map((item) => ({
        id: datasetKey(item),
        label: `${item.title}${item.available ? "" : " (missing)"}`,
      })),
      idOf: (block) => {
        const item = datasetOf(block);
        return item && datasetKey(item);
      },
      make: datasetBlock,
      parts: (block) => without(datasetOf(block)?.parameters.properties, ["set"]),
    },
  }),
  partition: new Field("partition", {}, {
    ...swept,
    id: "partition",
    title: "Partition",
    choices: {
      options: catalogue.partitions.map((item) => ({ id: item.id, label: item.id })),
      idOf: (block) => block?.name,
      make: partitionBlock,
      parts: (block) => partitionOf(block?.name)?.parameters.properties,
    },
  }),
  models: new Field("models.family", {}, {
    ...swept,
    id: "models",
    title: "Models",
    choices: {
      options: [...catalogue.models].sort((a, b) => Number(a.members.length === 1) - Number(b.members.length === 1))
        .map((item) => ({
          id: item.id,
          label: item.title,
          group: item.members.length > 1 ? "Heterogeneous" : "One architecture",
        })),
      idOf: (family) => family,
      make: (family) => family,
    },
  }),
};
for (const [name, field] of Object.entries(choices)) one(`#choice-${name}`).replaceWith(field.root);

/** @param {Properties|undefined} properties @param {string[]} names */
function without(properties, names) {
  return Object.fromEntries(Object.entries(properties ?? {}).filter(([name]) => !names.includes(name)));
}

/** Another data set keeps the transform; its own fields start with their defaults. @param {string} key */
function datasetBlock(key) {
  const item = catalogue.datasets.find((entry) => datasetKey(entry) === key);
  const transform = valueAt(firstSpec(current), "dataset.transform");
  return { name: item?.id, ...(item?.set ? { set: item.set } : {}), ...(transform ? { transform } : {}) };
}

/** Another partition keeps the split; what all partitions share is left to its default. @param {string} id */
function partitionBlock(id) {
  const { labels: _labels, split, seed: _seed, ...block } = blockOf(partitionOf(id), id);
  const kept = valueAt(firstSpec(current), "partition.split");
  return { ...block, ...(kept && split ? { split: kept } : {}) };
}

const blocks = {
  algorithm: new Block(one("#block-algorithm"), "algorithm", swept),
  dataset: new Block(one("#block-dataset"), "dataset", swept),
  partition: new Block(one("#block-partition"), "partition", swept),
  federation: new Block(one("#block-federation"), "", swept),
  models: new Block(one("#block-models"), "models", swept),
  training: new Block(one("#block-training"), "training", swept),
  evaluation: new Block(one("#block-evaluation"), "evaluation", swept),
  labels: new Block(one("#block-labels"), "", plain),
};
const { name: nameSchema, topology, clients, participation, rounds, seed, ...groups } = catalogue.fields;
blocks.federation.use("fixed", { clients, participation, rounds, seed, topology }, []);
blocks.models.use("fixed", groups.models, ["family", "pretrained"]);
blocks.training.use("fixed", groups.training);
blocks.evaluation.use("fixed", groups.evaluation);
blocks.labels.use("fixed", { name: nameSchema }, []);
addLabel(tagsField());
const notesSchema = {
  type: "string",
  format: "lines",
  default: "",
  description: "Free text; does not affect the result",
};
addLabel(new Field("notes", notesSchema, { change: (path, value) => plain.change(path, value ?? "") }));

/** Tags are a list in the spec and a line of text in the form. */
function tagsField() {
  const field = new Field("tags", { type: "string", description: "Words to find it again, separated by commas" }, {
    change: (path, value) =>
      plain.change(path, String(value ?? "").split(",").map((part) => part.trim()).filter(Boolean)),
  });
  const show = field.show.bind(field);
  field.show = (value) => show(Array.isArray(value) ? value.join(", ") : "");
  return field;
}

/** @param {Field} field */
function addLabel(field) {
  blocks.labels.fields.push(field);
  blocks.labels.root.append(field.root);
}

function allFields() {
  return [...Object.values(choices), ...Object.values(blocks).flatMap((block) => block.fields)];
}

/**
 * The fields of a block whose kind is swept stand with each kind, not once for all.
 * @param {"algorithm"|"dataset"|"partition"} name @param {string} id @param {Properties|undefined} properties
 * @param {string[]} [skip]
 */
function useBlock(name, id, properties, skip) {
  const many = valuesOf(current, name) !== null;
  blocks[name].use(many ? "" : id, many ? {} : properties, skip);
}

function syncForm() {
  const spec = firstSpec(current);
  const algorithm = algorithmOf(spec.algorithm?.name);
  const dataset = datasetOf(spec.dataset);
  const partition = partitionOf(spec.partition?.name);
  const family = catalogue.models.find((item) => item.id === spec.models?.family);
  useBlock("algorithm", algorithm?.id ?? "", algorithm?.parameters.properties);
  useBlock("dataset", dataset ? datasetKey(dataset) : "", dataset?.parameters.properties, ["name", "set"]);
  useBlock("partition", partition?.id ?? "", partition?.parameters.properties);
  for (const field of allFields()) {
    field.show(sharedOf(current, field.path), valuesOf(current, field.path), sweptElsewhere(current, field.path));
  }
  helpTexts(algorithm, dataset, partition, family);
}

/**
 * @param {Catalogue["algorithms"][number]|undefined} algorithm @param {Catalogue["datasets"][number]|undefined} dataset
 * @param {Catalogue["partitions"][number]|undefined} partition @param {Catalogue["models"][number]|undefined} family
 */
function helpTexts(algorithm, dataset, partition, family) {
  /** @type {(path: string) => boolean} */
  const several = (path) => valuesOf(current, path) !== null;
  const link = /** @type {HTMLAnchorElement} */ (one("#method-link"));
  const alone = !several("algorithm") && algorithm;
  link.href = alone ? `/methods/${algorithm.id}` : "/methods";
  setText(link, alone ? `About ${algorithm.title}` : "All methods");
  setText(one("#method-help"), alone ? `Shares ${algorithm.shares}; ${algorithm.heterogeneous}.` : "");
  const shape = dataset && !several("dataset")
    ? `${integer(dataset.samples)} images of ${dataset.shape.join(" × ")}, ${integer(dataset.classes)} classes${
      dataset.available ? "" : ", not on this machine yet"
    }. `
    : "";
  setText(one("#data-help"), `${shape}${several("partition") ? "" : partition?.title ?? ""}`);
  setText(
    one("#models-help"),
    family && !several("models.family")
      ? family.members.map((member) => `${member.id} ${formatCount(member.parameters)}`).join(" · ")
      : "",
  );
}

/** @param {number} count */
function formatCount(count) {
  return count >= 1e6 ? `${(count / 1e6).toFixed(2)} M` : `${(count / 1e3).toFixed(1)} k`;
}

// --- check, price and partition -------------------------------------------------------------------------------------

const map = new Heatmap(one("#partition-map"), {
  name: "partition",
  title: "Data per client",
  empty: "The partition is drawn once the spec is valid.",
});
let controller = new AbortController();
let timer = 0;
let pricing = 0;
let drawn = "";
/**
 * What the button does, once the text as it stands was found good; gives the new page. It has its key from the start:
 * asked again after a lost answer, it makes no second experiment.
 * @type {{submit: () => Promise<string>}|null}
 */
let good = null;
/** @type {any} the spec as it will be stored, or the sweep as it will be sent */
let complete = null;

const editor = makeEditor(area);

/**
 * The field of the form that a path of the spec or the sweep belongs to: its own, or the choice that holds it.
 * @param {string} path @param {Map<string, Field>} fields
 */
function fieldAt(path, fields) {
  const plainPath = path.replace(/^(base|grid)\./, "").replace(/^seeds\b/, "seed").split(".");
  while (plainPath.length && !fields.has(plainPath.join("."))) plainPath.pop();
  return fields.get(plainPath.join("."));
}

/** Below the text, in its margin, and at the form's fields. @param {Problem[]} problems */
function showProblems(problems) {
  const fields = new Map(allFields().map((field) => [field.path, field]));
  for (const field of fields.values()) field.complain("");
  for (const { field, message } of problems) fieldAt(field, fields)?.complain(message);
  editor.showProblems(problems);
}

/** @param {string} state @param {string} text */
function verdict(state, text) {
  const box = one("#verdict");
  box.dataset.state = state;
  setText(box, text);
  button.disabled = state !== "good";
}

/** @param {Problem[]} problems @param {string} text */
function refuse(problems, text = plural(problems.length, "problem")) {
  showProblems(problems);
  verdict("bad", text);
  showNotApplicable(null);
  setText(button, isSweep(current) ? "Queue the sweep" : "Queue 1 experiment");
  showFigures(isSweep(current) ? NO_SWEEP : NO_COST);
}

/** While a price is awaited the button and the strip show none: the last one was that of another document. */
function awaitPrice() {
  setText(button, isSweep(current) ? "Queue the sweep" : "Queue 1 experiment (…)");
  showFigures((isSweep(current) ? NO_SWEEP : NO_COST).map((figure) => ({ ...figure, value: "…" })));
  one(".strip-figures").dataset.state = "busy";
}

async function check() {
  controller.abort();
  controller = new AbortController();
  const { signal } = controller;
  good = null;
  const { found, problem } = parse();
  if (problem) return refuse([problem]);
  current = found;
  syncForm();
  awaitPrice();
  for (const element of all("[data-for-sweeps]")) {
    element.hidden = (element.dataset.forSweeps === "yes") !== isSweep(current);
  }
  /** @type {HTMLAnchorElement} */ (one("#as-sweep")).href = linkTo("/sweeps/new", area.value);
  verdict("busy", "Checking…");
  try {
    return await (isSweep(found) ? checkSweep(found, area.value, signal) : checkSpec(found, signal));
  } catch (error) {
    return isAborted(error) ? undefined : refuse(problemsIn(error));
  }
}

/** @param {Document} spec @param {AbortSignal} signal */
async function checkSpec(spec, signal) {
  const answer = await api.check(spec, signal);
  const key = newKey();
  good = { submit: async () => `/experiments/${(await api.submit(spec, key)).id}` };
  complete = answer.spec;
  showProblems([]);
  showNotApplicable(null);
  const { clients: count, rounds: total } = answer.spec;
  const cohort = cohortSize(answer.spec);
  verdict("good", `Ready to run: ${integer(total)} rounds, ${integer(cohort)} of ${integer(count)} clients in each`);
  showCopies();
  later(() => Promise.all([price(spec, signal), drawPartition(spec, signal)]));
}

/** @param {Document} sweep @param {string} text @param {AbortSignal} signal */
async function checkSweep(sweep, text, signal) {
  const plan = await api.checkSweep(text, signal);
  if (!plan.ok) return refuse(problemsOf(plan));
  const key = newKey();
  good = { submit: async () => `/sweeps/${(await api.submitSweep(text, key)).id}` };
  complete = sweep;
  showProblems([]);
  showNotApplicable(plan);
  const rest = restText(plan);
  verdict(
    "good",
    `Ready to run: ${plural(plan.experiments, "experiment")} in ${plural(plan.cells, "cell")}${
      rest ? `; ${rest}` : ""
    }`,
  );
  showCopies();
  showPlan(plan);
  return later(() =>
    Promise.all([
      rehearse(plan, () => api.rehearseSweep(text, signal), showPlan).catch(unlessAborted),
      drawPartition(firstSpec(sweep), signal),
    ])
  );
}

/** What takes longer waits until nothing was typed for a moment. @param {() => unknown} work */
function later(work) {
  clearTimeout(pricing);
  pricing = window.setTimeout(work, 300);
}

/** @param {unknown} error */
function unlessAborted(error) {
  if (!isAborted(error)) throw error;
}

/** @type {Record<CostEstimate["basis"], (count: number) => string>} */
const BASIS = {
  measured: (count) => `Measured: ${plural(count, "experiment")} with the same method, data and training`,
  scaled: (count) =>
    `Scaled from another setting: ${plural(count, "experiment")} with the same method, data and models`,
  rate: (count) =>
    `Rough: from the FLOPs and the speed of ${integer(count)} other ${count === 1 ? "experiment" : "experiments"} here`,
  guess: () => "A guess from the FLOPs: no experiment has run here yet",
};
const NO_COST = ["Bytes per round", "FLOPs per round", "Total", "On this worker"].map((title) => ({
  title,
  value: "–",
}));
const NO_SWEEP = ["Cells × seeds", "To run", "Total", "On this worker"].map((title) => ({ title, value: "–" }));

/** @param {{title: string, value: string, help?: string, id?: string}[]} figures */
function showFigures(figures) {
  const box = one(".strip-figures");
  delete box.dataset.state;
  fill(
    box,
    figures.map(({ id, title, value, help }) =>
      h("div", { title: help }, h("dt", {}, title), h("dd", { id, class: "num" }, value))
    ),
  );
  setText(one("#no-cost"), "");
}

/** @param {CostEstimate|null} estimate null: nothing can be said @param {string} reason why not */
function showCost(estimate, reason = "") {
  if (!estimate) {
    setText(button, "Queue 1 experiment");
    showFigures(NO_COST);
    setText(one("#no-cost"), reason ? `No estimate: ${reason}` : "");
    return;
  }
  const { round, total } = estimate;
  const time = `${estimate.basis === "measured" ? "about" : "roughly"} ${duration(estimate.seconds)}`;
  setText(button, `Queue 1 experiment (${time})`);
  showFigures([
    {
      id: "cost-bytes",
      title: "Bytes per round",
      value: formatBytes(round.bytes_up + round.bytes_down),
      help: "Bytes sent and received in one round, all clients of the cohort",
    },
    { title: "FLOPs per round", value: formatFlops(round.client_flops), help: "FLOPs of local training in one round" },
    {
      title: "Total",
      value: `${formatBytes(total.bytes_up + total.bytes_down)} · ${formatFlops(total.client_flops)}`,
      help: "All rounds",
    },
    { title: "On this worker", value: time, help: BASIS[estimate.basis](estimate.experiments) },
  ]);
}

/** @param {SweepCheck} plan */
function showPlan(plan) {
  const { cost } = plan;
  setText(button, queueText(plan));
  /** @type {(text: string) => string} */
  const words = (text) => text.replace(/ on .*|;.*/, "");
  showFigures([
    {
      title: "Cells × seeds",
      value: `${integer(plan.cells)} × ${integer(valuesOf(current, "seed")?.length ?? 1)}`,
      help: "A cell is one combination of the swept values",
    },
    { title: "To run", value: integer(plan.to_run), help: "Without those that are there already or not applicable" },
    {
      title: "Total",
      value: cost.bytes === null && cost.flops === null
        ? words(bytesText(plan))
        : `${formatBytes(cost.bytes)} · ${formatFlops(cost.flops)}`,
      help: `Communication: ${bytesText(plan)}. Client computation: ${flopsText(plan)}`,
    },
    { title: placeText(cost).replace("on", "On"), value: words(costText(plan)), help: costText(plan) },
  ]);
}

/** @param {Document} spec @param {AbortSignal} signal */
async function price(spec, signal) {
  try {
    const { estimate, reason } = await api.estimate(spec, signal);
    showCost(estimate, reason ?? "");
  } catch (error) {
    if (!isAborted(error)) showCost(null, messageOf(error));
  }
}

/** @param {Document} spec @param {AbortSignal} signal */
async function drawPartition(spec, signal) {
  const key = JSON.stringify([spec.dataset, spec.partition, spec.clients, spec.seed, isSweep(current)]);
  if (key === drawn) return;
  try {
    const found = await api.partition(spec, signal);
    drawn = key;
    map.set({ values: found.counts, rowTitle: "Client", columnTitle: "Class", unit: "samples" });
    setText(one("#partition-notes"), `${isSweep(current) ? "Of the first experiment. " : ""}${found.notes.join(" ")}`);
  } catch (error) {
    if (isAborted(error)) return;
    drawn = "";
    map.fail(`The partition cannot be drawn here. ${messageOf(error)}`);
  }
}

function checkSoon() {
  clearTimeout(timer);
  clearTimeout(pricing);
  controller.abort(); // what is still answered is about another document
  good = null;
  button.disabled = true;
  awaitPrice();
  keepDraft(DRAFT, area.value);
  editor.drawLines();
  timer = window.setTimeout(() => {
    keepInAddress(area.value);
    check();
  }, 250);
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
/**
 * A Python string on several lines: whatever is quoted in the text, three quotes never stand together.
 * @param {string} text
 */
const multiline = (text) =>
  `"""\n${text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"').replace(/"$/, '\\"')}"""`;
/** @type {Record<"spec"|"sweep", Record<string, (document: Document) => string>>} */
const COPIES = {
  spec: {
    yaml: (spec) => specYaml(spec),
    json: (spec) => JSON.stringify(spec, null, 2),
    curl: (spec) =>
      `curl -X POST ${location.origin}/api/experiments -H 'content-type: application/json' -d ${
        quoted(JSON.stringify(spec))
      }`,
    python: (spec) =>
      `from app.config import Settings\nfrom engine.runtime.run import Run\nfrom engine.spec.experiment import ExperimentSpec\n\nspec = ExperimentSpec.from_yaml(${
        multiline(specYaml(spec))
      })\nfor record in Run(spec, data_root=Settings().data_root).rounds():\n    print(record.round, record.accuracy, record.bytes_up)\n`,
  },
  sweep: {
    yaml: () => area.value,
    json: (sweep) => JSON.stringify(sweep, null, 2),
    curl: () =>
      `curl -X POST ${location.origin}/api/sweeps -H 'content-type: application/yaml' --data-binary ${
        quoted(area.value)
      }`,
    python: () =>
      `from app.client import FedArena\n\nwith FedArena("${location.origin}") as client:\n    sweep = client.submit_sweep(${
        multiline(area.value)
      })\n    client.wait_sweep(sweep["id"])\n    print(client.sweep_table(sweep["id"]))\n`,
  },
};

function showCopies() {
  const chosen = /** @type {HTMLInputElement} */ (one('input[name="copy-as"]:checked')).value;
  setText(one("#expanded"), complete ? COPIES[isSweep(complete) ? "sweep" : "spec"][chosen](complete) : "");
}

// --- choices --------------------------------------------------------------------------------------------------------

/** What the text says or, where it cannot be read, the example. */
function base() {
  const { found, problem } = parse();
  return problem ? example(first.id) : found;
}

/** The preset in use, and the document before it. @type {{name: string, before: any}|null} */
let preceded = null;

/**
 * The document with a block of settings changed for each of its methods: fields that the preset has of its own.
 * @param {Document} document @param {(block: any) => any} change
 */
function withMethods(document, change) {
  const methods = valuesOf(document, "algorithm");
  if (methods) return withValues(document, "algorithm", methods.map(change));
  return withShared(document, "algorithm", change(sharedOf(document, "algorithm")));
}

/** Fields of the spec that a preset sets, a path for each. @param {string} name @returns {[string, unknown][]} */
function presetFields(name) {
  /** @type {(value: unknown) => value is object} */
  const isBlock = (value) => value !== null && typeof value === "object";
  /** @type {[string, unknown][]} */
  const found = [];
  for (const [key, value] of Object.entries(catalogue.presets[name])) {
    if (!isBlock(value)) found.push([key, value]);
    else for (const [inner, set] of Object.entries(value)) found.push([`${key}.${inner}`, set]);
  }
  return found;
}

/**
 * Puts a paper's values into the document: what the preset names is overwritten, the rest stays.
 * @param {string} name
 */
function applyPreset(name) {
  const before = withoutPreset(base());
  preceded = name ? { name, before } : null;
  if (!name) return write(before);
  /** @type {(block: Document) => Document} */
  const own = (block) => ({ ...block, ...algorithmOf(block?.name)?.presets?.[name] });
  const changed = presetFields(name).reduce(
    (document, [path, value]) => withShared(document, path, value),
    withMethods(before, own),
  );
  return write(changed);
}

/**
 * What the preset set is again as it was before it; what was changed by hand since then stays.
 * @param {Document} document
 */
function withoutPreset(document) {
  if (!preceded) return document;
  const { name, before } = preceded;
  const earlier = [valuesOf(before, "algorithm") ?? sharedOf(before, "algorithm")].flat();
  /** @type {(block: Document) => Document} */
  const back = (block) => {
    const old = earlier.find((item) => item?.name === block?.name);
    const set = Object.entries(algorithmOf(block?.name)?.presets?.[name] ?? {}).filter(([key, value]) =>
      same(block[key], value)
    );
    return set.reduce((changed, [key]) => withValue(changed, key, old?.[key]), block);
  };
  const set = presetFields(name).filter(([path, value]) => same(sharedOf(document, path), value));
  const restored = set.reduce((changed, [path]) => {
    const [block] = path.split(".");
    const undone = withShared(changed, path, sharedOf(before, path));
    const emptied = path !== block && sharedOf(before, block) === undefined &&
      !Object.keys(sharedOf(undone, block) ?? {}).length;
    return emptied ? withShared(undone, block, undefined) : undone;
  }, document);
  return withMethods(restored, back);
}

/** @param {unknown} one_ @param {unknown} other */
const same = (one_, other) => JSON.stringify(one_) === JSON.stringify(other);

async function submit() {
  const job = good;
  if (!job) return;
  const text = area.value;
  good = null;
  button.disabled = true;
  try {
    const page = await working(job.submit());
    keepDraft(DRAFT, null);
    location.assign(page);
  } catch (error) {
    notice(`Not queued: ${messageOf(error)}`, "error");
    if (area.value !== text) return; // the new text is being checked
    refuse(problemsIn(error), "Not queued");
    good = job;
    button.disabled = false;
  }
}

fill(
  preset,
  h("option", { value: "" }, "none"),
  Object.entries({ A: "A: pFedAFM, pFedES", B: "B: FedARC", C: "C: CompFL" }).filter(([id]) => id in catalogue.presets)
    .map(([id, title]) => h("option", { value: id }, title)),
);

const first = algorithmOf(data.algorithm) ?? algorithmOf("fedavg") ?? catalogue.algorithms[0];

/** What the address carries comes first, then what the page was asked for, then what was left here. */
function start() {
  const draft = data.algorithm ? null : keptDraft(DRAFT);
  area.value = textOfAddress() ?? (data.spec ? specYaml(data.spec) : draft ?? specYaml(example(first.id)));
  editor.drawLines();
  check();
}

area.addEventListener("input", checkSoon);
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && !event.repeat) submit();
});
one("#form").addEventListener("submit", (event) => event.preventDefault());
preset.addEventListener("change", () => applyPreset(preset.value));
button.addEventListener("click", submit);
one("#start-over").addEventListener("click", () => {
  keepDraft(DRAFT, null);
  history.replaceState(null, "", location.pathname);
  preceded = null;
  preset.value = "";
  area.value = specYaml(example(firstSpec(current).algorithm?.name ?? first.id));
  editor.drawLines();
  check();
});
for (const radio of all('input[name="copy-as"]')) radio.addEventListener("change", showCopies);
/** A key led here: the keyboard continues in the first field. */
function focusFirst() {
  if (location.hash !== "#first") return;
  history.replaceState(null, "", location.pathname);
  if (area.value) keepInAddress(area.value);
  choices.algorithm.control.focus();
}
window.addEventListener("hashchange", () => {
  focusFirst();
  if (textOfAddress() !== null && textOfAddress() !== area.value) start();
});
focusFirst();
start();
live.start({ after: data.seq });
