// From round records to curves: cumulative costs, seeds grouped by method, cost to reach a target.

/**
 * @import { Headline, RoundRecord } from "./api.d.ts"
 * @import { CurveColumns, Experiment } from "./types.d.ts"
 */

import { ACTIVE, ENDED_EARLY, vocabulary } from "./vocabulary.js";

export const METHOD = "algorithm.name";

/** The curves of one experiment. Costs are sums from round 0 on, so they include an opening step. */
export class Curves {
  /** @param {Partial<CurveColumns>} columns as the server sends them; without any, the curves are empty */
  constructor(columns = {}) {
    /** @type {number[]} */ this.round = columns.round ?? [];
    /** @type {(number|null)[]} */ this.accuracy = columns.accuracy ?? [];
    /** @type {(number|null)[]} */ this.loss = columns.loss ?? [];
    /** @type {number[]} */ this.bytes = columns.bytes ?? [];
    /** @type {number[]} */ this.flops = columns.flops ?? [];
    /** @type {number[]} */ this.seconds = columns.seconds ?? [];
    /** FLOPs of one participant, without the opening. @type {number[]} */
    this.each = columns.flops_each ?? [];
    /** Some rounds were left out for the screen: the best round and the cost to a target are the server's to tell. */
    this.thinned = columns.thinned ?? false;
  }

  get length() {
    return this.round.length;
  }

  /**
   * Adds the next round; one that is already there is left alone.
   * @param {RoundRecord} record @returns {boolean} whether it was new
   */
  push(record) {
    const last = this.length - 1;
    if (last >= 0 && record.round <= this.round[last]) return false;
    this.round.push(record.round);
    this.accuracy.push(record.accuracy ?? null);
    this.loss.push(record.loss ?? null);
    this.bytes.push((this.bytes[last] ?? 0) + (record.bytes_up ?? 0) + (record.bytes_down ?? 0));
    this.flops.push((this.flops[last] ?? 0) + (record.client_flops ?? 0));
    this.seconds.push((this.seconds[last] ?? 0) + (record.seconds ?? 0));
    const participants = record.cohort?.length;
    this.each.push((this.each[last] ?? 0) + (participants ? (record.client_flops ?? 0) / participants : 0));
    return true;
  }

  /** Best tested round, the opening left out. @returns {{accuracy: number, round: number, index: number}|null} */
  best() {
    /** @type {{accuracy: number, round: number, index: number}|null} */
    let best = null;
    this.accuracy.forEach((accuracy, index) => {
      if (accuracy === null || this.round[index] === 0) return;
      if (best === null || accuracy > best.accuracy) best = { accuracy, round: this.round[index], index };
    });
    return best;
  }

  /** Last tested round. @returns {{accuracy: number, round: number, index: number}|null} */
  final() {
    for (let index = this.length - 1; index >= 0; index -= 1) {
      const [accuracy, round] = [this.accuracy[index], this.round[index]];
      if (accuracy !== null && round > 0) return { accuracy, round, index };
    }
    return null;
  }

  /**
   * Rounds until the accuracy reaches the target, and what they cost. The papers multiply the mean of all rounds but
   * the opening by the rounds to the target; `spent_` is the sum until then. FLOPs are those of one participant.
   * @param {number} target
   */
  costTo(target) {
    const index = this.accuracy.findIndex((value, i) => value !== null && this.round[i] > 0 && value >= target);
    if (index < 0) return null;
    const rounds = this.round[index];
    const last = this.length - 1;
    /** @type {(sums: number[]) => number} */
    const opening = (sums) => (this.round[0] === 0 ? sums[0] : 0);
    return {
      rounds,
      bytes: ((this.bytes[last] - opening(this.bytes)) / this.round[last]) * rounds,
      flops: ((this.each[last] - opening(this.each)) / this.round[last]) * rounds,
      spent_bytes: this.bytes[index],
      spent_flops: this.each[index],
    };
  }

  /** @param {"bytes"|"flops"|"seconds"|"round"} name */
  total(name) {
    return this.length ? this[name][this.length - 1] : null;
  }
}

/**
 * The mean of the last `width` values, where there are any.
 * @param {(number|null)[]} values @param {number} width @returns {(number|null)[]}
 */
export function smoothed(values, width) {
  if (width <= 1) return values;
  return values.map((_, index) => mean(values.slice(Math.max(0, index - width + 1), index + 1)));
}

/** @param {(number|null|undefined)[]} values @returns {number|null} */
export function mean(values) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  return numbers.length ? average(numbers) : null;
}

/** The mean of at least one number. @param {number[]} numbers */
export function average(numbers) {
  return numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
}

/** Sample standard deviation; null for fewer than two values. @param {(number|null|undefined)[]} values */
export function std(values) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  if (numbers.length < 2) return null;
  const centre = average(numbers);
  return Math.sqrt(numbers.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (numbers.length - 1));
}

/**
 * A quantile with linear interpolation between the sorted values.
 * @param {number[]} values @param {number} share @returns {number|null}
 */
export function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.ceil(place);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

/**
 * Nested values as dotted paths: {"training.lr": 0.01, …}. Lists stay whole.
 * @param {any} value @param {string} prefix @returns {Record<string, unknown>}
 */
export function flatten(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { [prefix]: value };
  /** @type {Record<string, unknown>} */
  const result = {};
  for (const [key, inner] of Object.entries(value)) {
    Object.assign(result, flatten(inner, prefix ? `${prefix}.${key}` : key));
  }
  return result;
}

/**
 * Experiments that differ in their seed only.
 * @typedef {{key: string, method: string, fields: Record<string, unknown>, members: Experiment[], variant: number, label: string}} Group
 */

/** A group with those of its members that count. @typedef {Group & {settledMembers: Experiment[]}} SettledGroup */

/**
 * A field that is not the same in all groups, with the value of each.
 * @typedef {object} Difference
 * @property {string} field
 * @property {unknown[]} values
 */

/** @typedef {{x: number[], y: number[], low: (number|null)[], high: (number|null)[]}} MeanCurve */

const NOT_COMPARED = new Set(vocabulary.not_compared);

/** The fields of a spec that decide the result, without the seed. @param {object} spec */
export function essence(spec) {
  return Object.fromEntries(Object.entries(flatten(spec)).filter(([path]) => !NOT_COMPARED.has(path)));
}

/** @param {unknown} value */
export function show(value) {
  if (value === undefined) return "–";
  if (value === null) return "none";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @type {Record<string, string>} */
/**
 * A field in a label or a table's head, as app/comparison/groups.py writes it: the name of a part names the part.
 * @param {string} path
 */
export function fieldTitle(path) {
  const parts = path.split(".");
  const last = parts.at(-1) ?? "";
  const word = last === "name" ? (parts.at(-2) ?? last) : last;
  return vocabulary.part_titles[word] ?? word.replaceAll("_", " ");
}

/** In sentence case; a symbol such as lr or mu stays as it is. @param {string} path */
export function fieldHead(path) {
  const title = fieldTitle(path);
  return title.length < 4 ? title : `${title[0].toUpperCase()}${title.slice(1)}`;
}

/**
 * Experiments that differ in their seed only form one group.
 * @param {Experiment[]} experiments @param {(id: string) => string} titleOf
 * @param {string[]} by the fields that tell groups of one method apart; none: all fields of the spec @returns {Group[]}
 */
export function groupExperiments(experiments, titleOf, by = []) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const experiment of experiments) {
    const whole = essence(experiment.spec);
    const chosen = by.length ? [METHOD, ...by.filter((field) => field !== METHOD)] : Object.keys(whole);
    const fields = Object.fromEntries(chosen.map((field) => [field, whole[field]]));
    const key = JSON.stringify(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
    const method = experiment.spec.algorithm.name;
    const group = groups.get(key) ?? { key, method, fields, members: [], variant: 0, label: titleOf(method) };
    group.members.push(experiment);
    groups.set(key, group);
  }
  const list = [...groups.values()];
  for (const method of new Set(list.map((group) => group.method))) {
    const same = list.filter((group) => group.method === method);
    if (same.length < 2) continue;
    const details = tellingFields(same);
    const names = details.map(fieldTitle);
    const named = details.map((field, place) =>
      names.indexOf(names[place]) === names.lastIndexOf(names[place]) ? names[place] : field.replace(/[._]/g, " ")
    );
    same.forEach((group, index) => {
      group.variant = index;
      group.label = [
        titleOf(method),
        ...details.map((field, place) => `${named[place]} ${show(group.fields[field])}`),
      ].join(" · ");
    });
  }
  return list;
}

/**
 * As few fields as tell all groups apart, in the order of the spec; the server chooses the same.
 * @param {Group[]} groups
 */
function tellingFields(groups) {
  const fields = [...new Set(groups.flatMap((group) => Object.keys(group.fields)))];
  /** @type {Set<string>} */
  const chosen = new Set();
  /** @type {(more: string[]) => number} */
  const kinds = (more) =>
    new Set(groups.map((group) => JSON.stringify([...chosen, ...more].map((field) => show(group.fields[field]))))).size;
  while (kinds([]) < groups.length && chosen.size < fields.length) {
    const rest = fields.filter((field) => !chosen.has(field));
    const most = Math.max(...rest.map((field) => kinds([field])));
    chosen.add(rest[rest.findIndex((field) => kinds([field]) === most)]);
  }
  return fields.filter((field) => chosen.has(field));
}

/**
 * Fields that are not the same in all groups.
 * @param {Group[]} groups @returns {{field: string, values: unknown[]}[]}
 */
export function differences(groups) {
  const fields = [...new Set(groups.flatMap((group) => Object.keys(group.fields)))];
  /** @type {(group: Group) => unknown} */
  const method = (group) => group.fields[METHOD];
  // a method's own parameters say something only beside another run of the same method
  /** @type {(field: string) => Group[][]} */
  const compared = (field) =>
    !field.startsWith("algorithm.") || field === METHOD ? [groups] : [...Map.groupBy(groups, method).values()];
  /** @type {(field: string) => (some: Group[]) => boolean} */
  const differs = (field) => (some) => new Set(some.map((group) => JSON.stringify(group.fields[field]) ?? "")).size > 1;
  return fields
    .filter((field) => compared(field).some(differs(field)))
    .map((field) => ({ field, values: groups.map((group) => group.fields[field]) }));
}

/**
 * Members that count for a mean: those that ended early are left out as long as others remain.
 * @param {Experiment[]} members @param {(id: string) => Curves|undefined} curvesOf
 */
export function counted(members, curvesOf) {
  const started = members.filter((member) => curvesOf(member.id)?.length);
  const whole = started.filter((member) => !ENDED_EARLY.has(member.state));
  return whole.length ? whole : started;
}

/**
 * Mean and standard deviation over the seeds of a group, round by round; x is the mean of the seeds' x at that round.
 * @param {Curves[]} curves
 * @param {"round"|"bytes"|"flops"|"seconds"} xName
 * @param {"accuracy"|"loss"|"bytes"|"flops"} yName
 */
export function meanCurve(curves, xName, yName) {
  /** @type {Map<number, {x: number[], y: number[]}>} */
  const rows = new Map();
  for (const curve of curves) {
    curve.round.forEach((round, index) => {
      const y = curve[yName][index];
      if (y === null) return;
      const row = rows.get(round) ?? { x: [], y: [] };
      row.x.push(curve[xName][index]);
      row.y.push(y);
      rows.set(round, row);
    });
  }
  /** @type {MeanCurve} */
  const result = { x: [], y: [], low: [], high: [] };
  for (const [, row] of [...rows].sort(([a], [b]) => a - b)) {
    const centre = average(row.y);
    const spread = std(row.y);
    result.x.push(average(row.x));
    result.y.push(centre);
    result.low.push(spread === null ? null : centre - spread);
    result.high.push(spread === null ? null : centre + spread);
  }
  return result;
}

/**
 * Fields that decide whether a comparison is fair, those of `conditions` in engine/records.py; a name that ends with a
 * dot stands for all fields below it.
 * @type {[string, string[]][]}
 */
const FAIRNESS = [
  ["The data differ", ["dataset."]],
  ["The clients or their data differ", ["clients", "partition."]],
  ["Accuracy is measured in different ways", ["evaluation."]],
  ["The training budgets differ", ["rounds", "participation", "training.epochs"]],
  ["The models differ", ["models."]],
  ["Clients talk to each other in different ways", ["topology"]],
];

/** Data, partition, evaluation and models are named as a whole, a budget by its field. @param {string} field */
function partOf(field) {
  return /^(dataset|partition|evaluation|models)[.]/.test(field) ? field.split(".")[0] : field;
}

/**
 * Groups whose runs spent less than their specs say, as sentences; none where all ended after the same rounds.
 * @param {SettledGroup[]} groups
 */
function cutShort(groups) {
  /** @type {(member: Experiment) => boolean} */
  const ended = (member) => !ACTIVE.has(member.state);
  /** @type {(member: Experiment) => number} */
  const reached = (member) => Math.max(0, member.next_round - 1);
  const spent = groups.flatMap((group) =>
    group.settledMembers.map((member) => (ended(member) ? reached(member) : member.rounds))
  );
  if (new Set(spent).size < 2) return [];
  /** @type {(values: (string|number)[]) => string} */
  const listed = (values) => [...new Set(values)].join(", ");
  return groups.flatMap((group) => {
    const short = group.settledMembers.filter((member) => ended(member) && reached(member) < member.rounds);
    if (!short.length) return [];
    const reasons = short.map((member) => (member.stopped_by ? "its stop rule" : member.state));
    return [
      [
        `${group.label} ended after ${listed(short.map(reached).sort((a, b) => a - b))}`,
        `of ${listed(short.map((member) => member.rounds))} rounds: ${listed(reasons)}`,
      ].join(" "),
    ];
  });
}

/**
 * Whether some group has no other method beside it under its conditions, though there are several methods.
 * @param {Group[]} groups
 */
function someStandAlone(groups) {
  /** @type {(some: Group[]) => number} */
  const methodsOf = (some) => new Set(some.map((group) => group.method)).size;
  const alike = [...Map.groupBy(groups, (group) => group.members[0].conditions).values()];
  return methodsOf(groups) > 1 && alike.some((some) => methodsOf(some) < 2);
}

/**
 * What makes a comparison unfair, and what a reader should know besides. Where every method has another one beside it
 * under the same conditions, differing conditions are a sweep and not unfair; but who leads can only be said where the
 * `swept` fields are equal.
 * @param {SettledGroup[]} groups grouped by all fields, with their settled members
 * @returns {{warnings: string[], notes: string[], swept: string[]}}
 */
export function fairness(groups) {
  /** @type {string[]} */
  const warnings = [];
  /** @type {string[]} */
  const notes = [];
  const alone = someStandAlone(groups);
  const differing = differences(groups).filter(({ field }) => field !== METHOD);
  /** @type {(rows: Difference[]) => string} */
  const words = (rows) =>
    rows.map(({ field, values }) => `${field}: ${[...new Set(values.map(show))].join(", ")}`).join("; ");
  /** @type {Set<string>} */
  const deciding = new Set();
  /** @type {Difference[]} */
  const sweeps = [];
  for (const [sentence, names] of FAIRNESS) {
    const rows = differing.filter(({ field }) =>
      names.some((name) => (name.endsWith(".") ? field.startsWith(name) : field === name))
    );
    rows.forEach(({ field }) => deciding.add(field));
    // one protocol's number says nothing about another's, however they are run
    const grave = rows.filter(({ field }) => alone || field === "evaluation.protocol");
    if (grave.length) warnings.push(`${sentence} (${words(grave)})`);
    sweeps.push(...rows.filter((row) => !grave.includes(row)));
  }
  warnings.push(...cutShort(groups));
  const rest = differing.filter(({ field }) => !field.startsWith("algorithm.") && !deciding.has(field));
  const methods = [...Map.groupBy(groups, (group) => group.method).values()];
  /** @type {(some: Group[], field: string) => string} */
  const valuesOf = (some, field) =>
    JSON.stringify([...new Set(some.map((group) => JSON.stringify(group.fields[field]) ?? ""))].sort());
  /** @type {(row: Difference) => boolean} */
  const sweptByAll = ({ field }) => new Set(methods.map((some) => valuesOf(some, field))).size === 1;
  const swept = [...sweeps, ...rest.filter(sweptByAll)];
  if (swept.length) notes.push(`Swept: ${words(swept)}. Compare rows with equal values.`);
  const others = rest.filter((row) => !sweptByAll(row));
  if (others.length) notes.push(`Also different: ${words(others)}.`);
  /** @type {Map<string, {seed: number, prints: Set<string>}>} */
  const partitions = new Map();
  for (const group of groups) {
    for (const member of group.members) {
      if (!member.partition_fingerprint) continue;
      const key = JSON.stringify([
        member.spec.seed,
        group.fields.clients,
        ...Object.keys(group.fields)
          .filter((field) => /^(dataset|partition)[.]/.test(field))
          .map((field) => group.fields[field]),
      ]);
      const partition = partitions.get(key) ?? { seed: member.spec.seed, prints: new Set() };
      partition.prints.add(member.partition_fingerprint);
      partitions.set(key, partition);
    }
  }
  const broken = [...partitions.values()].filter(({ prints }) => prints.size > 1).map(({ seed }) => seed);
  if (broken.length) {
    warnings.push(`The partitions differ although their specs are equal (seed ${[...new Set(broken)].join(", ")})`);
  }
  /** @type {(group: Group) => string} */
  const seedsOf = (group) =>
    group.members
      .map((member) => member.spec.seed)
      .sort((a, b) => a - b)
      .join(", ");
  const seedLists = new Set(groups.map(seedsOf));
  if (seedLists.size > 1) {
    notes.push(
      `The seeds are not the same everywhere (${[...seedLists].join(" | ")}); another seed deals the data differently.`,
    );
  }
  return { warnings, notes, swept: [...new Set(sweeps.map(({ field }) => fieldTitle(partOf(field))))] };
}

/**
 * The accuracy that counts of an experiment, best or final, as the server tells it.
 * @param {{headline: Headline|null, headline_rule: "best"|"final"}} experiment @returns {number|null}
 */
export function headlineOf(experiment) {
  const { headline, headline_rule: rule } = experiment;
  return (rule === "final" ? headline?.final_accuracy : headline?.best_accuracy) ?? null;
}

/** @type {Headline} */
const NO_HEADLINE = {
  best_accuracy: null,
  best_round: null,
  final_accuracy: null,
  best_validation_accuracy: null,
  best_validation_round: null,
  accuracy_at_best_validation: null,
  final_validation_accuracy: null,
};

/**
 * Brings an experiment up to date with one of its rounds, as the list shows it.
 * @param {Experiment} experiment @param {RoundRecord} record @returns {boolean}
 */
export function applyRound(experiment, record) {
  if (record.round < experiment.next_round) return false;
  experiment.next_round = record.round + 1;
  experiment.seconds = (experiment.seconds ?? 0) + (record.seconds ?? 0);
  const totals = (experiment.totals ??= { bytes_up: 0, bytes_down: 0, client_flops: 0 });
  totals.bytes_up += record.bytes_up ?? 0;
  totals.bytes_down += record.bytes_down ?? 0;
  totals.client_flops += record.client_flops ?? 0;
  if (record.accuracy !== null && record.accuracy !== undefined && record.round > 0) {
    const headline = (experiment.headline ??= { ...NO_HEADLINE });
    const validation = record.validation_accuracy ?? null;
    headline.final_accuracy = record.accuracy;
    headline.final_validation_accuracy = validation;
    if (headline.best_accuracy === null || record.accuracy > headline.best_accuracy) {
      headline.best_accuracy = record.accuracy;
      headline.best_round = record.round;
    }
    const known = headline.best_validation_accuracy ?? null;
    if (validation !== null && (known === null || validation > known)) {
      headline.best_validation_accuracy = validation;
      headline.best_validation_round = record.round;
      headline.accuracy_at_best_validation = record.accuracy;
    }
  }
  return true;
}
