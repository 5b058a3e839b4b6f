// From round records to curves: cumulative costs, seeds grouped by method, cost to reach a target.

/** The columns a comparison needs from the server. */
export const COLUMNS = ["accuracy", "loss", "bytes_up", "bytes_down", "client_flops", "seconds"];

const ENDED_EARLY = new Set(["failed", "diverged", "cancelled", "not_applicable"]);

/** The curves of one experiment. Costs are sums from round 0 on, so they include an opening step. */
export class Curves {
  constructor() {
    /** @type {number[]} */ this.round = [];
    /** @type {(number|null)[]} */ this.accuracy = [];
    /** @type {(number|null)[]} */ this.loss = [];
    /** @type {number[]} */ this.bytes = [];
    /** @type {number[]} */ this.flops = [];
    /** @type {number[]} */ this.seconds = [];
  }

  /** @param {Record<string, any[]>} columns */
  static fromColumns(columns) {
    const curves = new Curves();
    (columns?.round ?? []).forEach((round, index) => {
      const record = { round };
      for (const name of COLUMNS) record[name] = columns[name]?.[index] ?? null;
      curves.push(record);
    });
    return curves;
  }

  get length() {
    return this.round.length;
  }

  /** Adds the next round; one that is already there is left alone. @returns {boolean} whether it was new */
  push(record) {
    const last = this.length - 1;
    if (last >= 0 && record.round <= this.round[last]) return false;
    this.round.push(record.round);
    this.accuracy.push(record.accuracy ?? null);
    this.loss.push(record.loss ?? null);
    this.bytes.push((this.bytes[last] ?? 0) + (record.bytes_up ?? 0) + (record.bytes_down ?? 0));
    this.flops.push((this.flops[last] ?? 0) + (record.client_flops ?? 0));
    this.seconds.push((this.seconds[last] ?? 0) + (record.seconds ?? 0));
    return true;
  }

  /** Best tested round, the opening left out. @returns {{accuracy: number, round: number, index: number}|null} */
  best() {
    let best = null;
    this.accuracy.forEach((accuracy, index) => {
      if (accuracy === null || this.round[index] === 0) return;
      if (best === null || accuracy > best.accuracy) best = { accuracy, round: this.round[index], index };
    });
    return best;
  }

  /** Accuracy of the last tested round. @returns {number|null} */
  final() {
    for (let index = this.length - 1; index >= 0; index -= 1) {
      if (this.accuracy[index] !== null && this.round[index] > 0) return this.accuracy[index];
    }
    return null;
  }

  /** The first round whose accuracy reaches the target, and what was spent until then. */
  reaches(target) {
    const index = this.accuracy.findIndex((value, i) => value !== null && this.round[i] > 0 && value >= target);
    if (index < 0) return null;
    return {
      round: this.round[index],
      bytes: this.bytes[index],
      flops: this.flops[index],
      seconds: this.seconds[index],
      accuracy: this.accuracy[index],
    };
  }

  total(name) {
    return this.length ? this[name][this.length - 1] : null;
  }
}

/** @param {(number|null|undefined)[]} values */
export function mean(values) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
}

/** Sample standard deviation; null for fewer than two values. @param {(number|null|undefined)[]} values */
export function std(values) {
  const numbers = values.filter((value) => value !== null && value !== undefined);
  if (numbers.length < 2) return null;
  const centre = mean(numbers);
  return Math.sqrt(numbers.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (numbers.length - 1));
}

/** A quantile with linear interpolation between the sorted values. @param {number[]} values */
export function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.ceil(place);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

/** Nested values as dotted paths: {"training.lr": 0.01, …}. Lists stay whole. */
export function flatten(value, prefix = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { [prefix]: value };
  const result = {};
  for (const [key, inner] of Object.entries(value)) Object.assign(result, flatten(inner, prefix ? `${prefix}.${key}` : key));
  return result;
}

const NOT_COMPARED = new Set(["name", "tags", "notes", "seed"]);

/** The fields of a spec that decide the result, without the seed. */
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

/**
 * Experiments that differ in their seed only form one group.
 * @param {any[]} experiments
 * @param {(id: string) => string} titleOf
 */
export function groupExperiments(experiments, titleOf) {
  /** @type {Map<string, any>} */
  const groups = new Map();
  for (const experiment of experiments) {
    const fields = essence(experiment.spec);
    const key = JSON.stringify(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
    const method = experiment.spec.algorithm.name;
    if (!groups.has(key)) groups.set(key, { key, method, fields, members: [], variant: 0, label: titleOf(method) });
    groups.get(key).members.push(experiment);
  }
  const list = [...groups.values()];
  for (const method of new Set(list.map((group) => group.method))) {
    const same = list.filter((group) => group.method === method);
    if (same.length < 2) continue;
    const differing = differences(same).map((row) => row.field);
    same.forEach((group, index) => {
      group.variant = index;
      const details = differing.slice(0, 3).map((field) => `${field.split(".").pop()} ${show(group.fields[field])}`);
      group.label = [titleOf(method), ...details].join(" · ");
    });
  }
  return list;
}

/** Fields that are not the same in all groups. @returns {{field: string, values: unknown[]}[]} */
export function differences(groups) {
  const fields = [...new Set(groups.flatMap((group) => Object.keys(group.fields)))];
  const method = (group) => group.fields["algorithm.name"];
  // a method's own parameters say something only beside another run of the same method
  const compared = (field) => (!field.startsWith("algorithm.") || field === "algorithm.name" ? [groups] : [...Map.groupBy(groups, method).values()]);
  const differs = (field) => (some) => new Set(some.map((group) => JSON.stringify(group.fields[field]) ?? "")).size > 1;
  return fields
    .filter((field) => compared(field).some(differs(field)))
    .map((field) => ({ field, values: groups.map((group) => group.fields[field]) }));
}

/** Members that count for a mean: those that ended early are left out as long as others remain. */
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
  const rows = new Map();
  for (const curve of curves) {
    curve.round.forEach((round, index) => {
      const y = curve[yName][index];
      if (y === null) return;
      if (!rows.has(round)) rows.set(round, { x: [], y: [] });
      rows.get(round).x.push(curve[xName][index]);
      rows.get(round).y.push(y);
    });
  }
  const result = { x: [], y: [], low: [], high: [] };
  for (const round of [...rows.keys()].sort((a, b) => a - b)) {
    const row = rows.get(round);
    const centre = mean(row.y);
    const spread = std(row.y);
    result.x.push(mean(row.x));
    result.y.push(centre);
    result.low.push(spread === null ? null : centre - spread);
    result.high.push(spread === null ? null : centre + spread);
  }
  return result;
}

/** What makes a comparison unfair, as sentences. */
export function unfairness(groups) {
  const found = [];
  const differing = new Map(differences(groups).map((row) => [row.field, row.values]));
  const say = (fields, sentence) => {
    const hit = fields.filter((field) => differing.has(field));
    if (hit.length) found.push(`${sentence} (${hit.map((field) => `${field}: ${[...new Set(differing.get(field).map(show))].join(", ")}`).join("; ")})`);
  };
  const starting = (prefix) => [...differing.keys()].filter((field) => field.startsWith(prefix));
  say(starting("dataset."), "The data differ");
  say(["clients", "participation", ...starting("partition.")], "The clients or their data differ");
  say(starting("evaluation."), "Accuracy is measured in different ways");
  say(["rounds", "training.epochs"], "The training budgets differ");
  say(["training.lr", "training.batch_size", "training.momentum", "training.weight_decay", "training.clip", "training.augment"], "The local training differs");
  say(["models.family", "models.feature_dim", "models.assign"], "The models differ");
  const partitions = new Map();
  for (const member of groups.flatMap((group) => group.members)) {
    if (!member.partition_fingerprint) continue;
    const seed = member.spec.seed;
    if (!partitions.has(seed)) partitions.set(seed, new Set());
    partitions.get(seed).add(member.partition_fingerprint);
  }
  if (!found.some((sentence) => sentence.startsWith("The clients") || sentence.startsWith("The data"))) {
    const seeds = [...partitions].filter(([, prints]) => prints.size > 1).map(([seed]) => seed);
    if (seeds.length) found.push(`The partitions differ although their specs are equal (seed ${seeds.join(", ")})`);
  }
  const seedLists = new Set(groups.map((group) => group.members.map((member) => member.spec.seed).sort().join(", ")));
  if (seedLists.size > 1) found.push(`The methods ran with different seeds (${[...seedLists].join(" | ")})`);
  return found;
}

/** Brings an experiment up to date with one of its rounds, as the list shows it. @returns {boolean} */
export function applyRound(experiment, record) {
  if (record.round < experiment.next_round) return false;
  experiment.next_round = record.round + 1;
  experiment.seconds = (experiment.seconds ?? 0) + (record.seconds ?? 0);
  const totals = (experiment.totals ??= { bytes_up: 0, bytes_down: 0, client_flops: 0 });
  for (const name of ["bytes_up", "bytes_down", "client_flops"]) totals[name] = (totals[name] ?? 0) + (record[name] ?? 0);
  if (record.accuracy !== null && record.accuracy !== undefined && record.round > 0) {
    const headline = (experiment.headline ??= { best_accuracy: null, best_round: null, final_accuracy: null });
    headline.final_accuracy = record.accuracy;
    if (headline.best_accuracy === null || record.accuracy > headline.best_accuracy) {
      headline.best_accuracy = record.accuracy;
      headline.best_round = record.round;
    }
  }
  return true;
}
