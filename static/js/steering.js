// What a person can ask of an experiment: what fits its state, and the words for it.

import { api } from "./api.js";
import { ACTIVE, h } from "./dom.js";
import { notice, working } from "./shell.js";

const RETRIED = new Set(["failed", "cancelled", "diverged"]);

/** @type {{id: string, word: string, fits: (experiment: any) => boolean, act: (id: string) => Promise<any>, told: string}[]} */
export const ACTIONS = [
  { id: "pause", word: "Pause", fits: (it) => (it.state === "queued" || it.state === "running") && !it.pause, act: api.pause, told: "Paused; what runs ends its present round first." },
  { id: "resume", word: "Resume", fits: (it) => it.state === "paused" || it.pause, act: api.resume, told: "Back in the queue." },
  { id: "cancel", word: "Cancel", fits: (it) => ACTIVE.has(it.state) && it.state !== "cancelling", act: api.cancel, told: "Being cancelled. Stored rounds stay." },
  { id: "retry", word: "Retry", fits: (it) => RETRIED.has(it.state), act: api.retry, told: "Queued anew. The earlier attempts stay in the list." },
  { id: "delete", word: "Delete", fits: (it) => !ACTIVE.has(it.state), act: api.remove, told: "Deleted; the files go after a day." },
];

/** Ask for each of the experiments; what fails is told together, what worked stays. Gives what worked, as it stands now. */
export async function ask(action, experiments) {
  const results = await working(Promise.allSettled(experiments.map((experiment) => action.act(experiment.id))));
  const done = results.filter((result) => result.status === "fulfilled").map((result) => result.value);
  const failed = results.filter((result) => result.status === "rejected");
  if (failed.length) notice(`${failed.length} of ${results.length} were refused: ${failed[0].reason.message}`, "error");
  else if (action.id === "delete") notice(action.told, "info", { word: "Undo", act: () => ask({ act: api.undelete, told: "Back again." }, done) });
  else notice(action.told);
  return done;
}

/** A button for each action, in a row; `update` shows and counts those that fit. */
export function actionButtons(suffix, chosen, took) {
  const buttons = ACTIONS.map((action) => h("button", { id: `${action.id}${suffix}`, class: "button", type: "button", on: { click: () => run(action) } }, action.word));
  async function run(action) {
    took(await ask(action, chosen().filter(action.fits)), action);
  }
  /** @param {(action: any, fitting: any[], button: HTMLButtonElement) => void} show */
  function update(show) {
    ACTIONS.forEach((action, index) => show(action, chosen().filter(action.fits), /** @type {HTMLButtonElement} */ (buttons[index])));
  }
  return { buttons, update };
}
