// What a person can ask of an experiment: what fits its state, and the words for it.

/** @import { Experiment } from "./types.d.ts" */

import { api } from "./api.js";
import { h } from "./dom.js";
import { notice, progress, working } from "./shell.js";
import { integer } from "./units.js";
import { ACTIVE, RETRIED } from "./vocabulary.js";

/**
 * @typedef {object} Action
 * @property {string} id
 * @property {string} word
 * @property {(experiment: Experiment) => boolean} fits
 * @property {(id: string) => Promise<Experiment>} act
 * @property {(done: Experiment[]) => string} told
 */

/** @type {Action[]} */
export const ACTIONS = [
  {
    id: "pause",
    word: "Pause",
    fits: (it) => (it.state === "queued" || it.state === "running") && !it.pause,
    act: api.pause,
    told: () => "Paused. What is running finishes its current round first.",
  },
  {
    id: "resume",
    word: "Resume",
    fits: (it) => it.state === "paused" || it.pause,
    act: api.resume,
    told: () => "Back in the queue.",
  },
  {
    id: "cancel",
    word: "Cancel",
    fits: (it) => ACTIVE.has(it.state) && it.state !== "cancelling",
    act: api.cancel,
    told: cancelled,
  },
  {
    id: "retry",
    word: "Retry",
    fits: (it) => RETRIED.has(it.state),
    act: api.retry,
    told: () => "Queued again. The earlier attempts stay in the list.",
  },
  { id: "delete", word: "Delete", fits: (it) => !ACTIVE.has(it.state), act: api.remove, told: () => "" },
];

/**
 * Ask for each of the experiments; what fails is told together, what worked stays. Gives what worked, as it stands now.
 * @param {Pick<Action, "act"|"told"> & {id?: string}} action @param {{id: string}[]} experiments
 */
export async function ask(action, experiments) {
  const far = progress(experiments.length);
  const results = await working(
    Promise.allSettled(experiments.map((experiment) => action.act(experiment.id).finally(far.step))),
  );
  far.end();
  const done = results.filter((result) => result.status === "fulfilled").map((result) => result.value);
  const failed = results.filter((result) => result.status === "rejected");
  if (failed.length) notice(failureText(failed.map((result) => result.reason), results.length), "error");
  if (action.id === "delete" && done.length) offerUndo(done);
  else if (!failed.length) notice(action.told(done));
  return done;
}

/** A worker obeys within seconds; what waited is cancelled already. @param {Experiment[]} done */
function cancelled(done) {
  const still = done.some((experiment) => experiment.state === "cancelling");
  return `${still ? "Being cancelled" : "Cancelled"}. Stored rounds are kept.`;
}

/** What did not work: refused by the server, or never heard by it. @param {any[]} reasons @param {number} total */
function failureText(reasons, total) {
  const word = reasons[0].status ? "refused" : "not done";
  const how = total > 1 ? `${reasons.length} of ${total} ${word}` : `${word[0].toUpperCase()}${word.slice(1)}`;
  return `${how}: ${reasons[0].message}`;
}

/** What was deleted can be had back, also on the page that follows. @param {{id: string}[]} deleted */
export function offerUndo(deleted) {
  const what = deleted.length > 1 ? `${integer(deleted.length)} deleted` : "Deleted";
  const undo = { word: "Undo", act: () => ask({ act: api.undelete, told: () => "Restored." }, deleted) };
  notice(`${what}. Files are removed after 24 h.`, "info", undo);
}

/**
 * A button for each action, in a row; `update` shows and counts those that fit.
 * @param {string} suffix @param {() => Experiment[]} chosen @param {(done: Experiment[], action: Action) => void} took
 */
export function actionButtons(suffix, chosen, took) {
  const buttons = ACTIONS.map((action) =>
    h(
      "button",
      { id: `${action.id}${suffix}`, class: "button", type: "button", on: { click: () => run(action) } },
      action.word,
    )
  );
  /** @param {Action} action */
  async function run(action) {
    took(await ask(action, chosen().filter(action.fits)), action);
  }
  /** @param {(action: Action, fitting: Experiment[], button: HTMLButtonElement) => void} show */
  function update(show) {
    ACTIONS.forEach((action, index) =>
      show(action, chosen().filter(action.fits), /** @type {HTMLButtonElement} */ (buttons[index]))
    );
  }
  return { buttons, update };
}
