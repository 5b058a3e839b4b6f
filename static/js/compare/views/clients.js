// Accuracy of single clients, read once for all views that show it.

/**
 * @import { SettledGroup } from "../../series.js"
 * @import { Experiment, Style } from "../../types.d.ts"
 */

import { Answer } from "../../answer.js";
import { api } from "../../api.js";
import { average } from "../../series.js";

/** A group as it is drawn. @typedef {SettledGroup & {style: Style}} Shown */

/**
 * A client with its mean accuracy over the runs on one partition.
 * @typedef {object} ClientMean
 * @property {string} client
 * @property {number} seed
 * @property {number} value
 */

/** Accuracy of the clients, read once for all views. */
export class ClientTable {
  /** @param {() => void} arrived */
  constructor(arrived) {
    this.answer = new Answer(({ ids, at }) => api.clients(ids, at), arrived, { pause: 3000 });
  }

  /**
   * @param {Experiment[]} experiments @param {string} at
   * @returns {boolean} whether the values of these experiments at this moment are there, or why there are none
   */
  need(experiments, at) {
    return experiments.length === 0 || this.answer.need({ ids: experiments.map((item) => item.id), at }, experiments);
  }

  /** @returns {Record<string, {round: number|null, accuracy: Record<string, number|null>}>} */
  get values() {
    return this.answer.value?.experiments ?? {};
  }

  get error() {
    return this.answer.error;
  }

  /**
   * Of a group: (partition, client) to accuracy, the mean over runs on that partition.
   * @param {SettledGroup} group @returns {Map<string, ClientMean>}
   */
  of(group) {
    /** @type {Map<string, {client: string, seed: number, values: number[]}>} */
    const found = new Map();
    for (const member of group.settledMembers) {
      for (const [client, value] of Object.entries(this.values[member.id]?.accuracy ?? {})) {
        if (value === null) continue;
        const key = `${member.partition_fingerprint ?? member.id} ${client}`;
        const item = found.get(key) ?? { client, seed: member.spec.seed, values: [] };
        item.values.push(value);
        found.set(key, item);
      }
    }
    return new Map(
      [...found].map(([key, { client, seed, values }]) => [key, { client, seed, value: average(values) }]),
    );
  }
}
