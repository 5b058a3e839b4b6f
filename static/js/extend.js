// Another number of rounds for a finished experiment: continue it, or read a shorter run out of it.

/** @import { Experiment } from "./types.d.ts" */

import { api, newKey, problemsIn } from "./api.js";
import { one, setText } from "./dom.js";
import { working } from "./shell.js";
import { duration, integer } from "./units.js";

const input = () => /** @type {HTMLInputElement} */ (one("#extend-rounds"));

/**
 * @param {() => Experiment} current the experiment as it stands now
 * @param {string|null} fixed why its rounds are those of no other number of them
 * @param {() => number|null} secondsPerRound
 * @returns {() => void} to be called when the experiment has changed
 */
export function extendForm(current, fixed, secondsPerRound) {
  const open = one("#extend-open");
  const form = one("#extend");
  let key = newKey();

  /**
   * What the number means, what it costs, and whether it can be had.
   * @param {number} wanted @param {Experiment} experiment
   */
  function effect(wanted, { rounds, next_round, has_checkpoint: kept }) {
    const done = next_round - 1;
    if (!Number.isInteger(wanted) || wanted < 1) {
      return { word: "Continue", text: "A whole number of rounds, at least 1." };
    }
    if (wanted === rounds && done === rounds) {
      return { word: "Continue", text: `It has ${integer(rounds)} rounds already.` };
    }
    if (fixed && wanted !== rounds) {
      return {
        word: "Continue",
        text: `A run of ${
          integer(wanted)
        } rounds is another one from the start: ${fixed}. Clone it and set its rounds there.`,
      };
    }
    if (wanted <= done) {
      return {
        word: `Read out ${integer(wanted)} rounds`,
        text: `Rounds 0 to ${integer(wanted)} become an experiment of their own at once. Nothing is computed.`,
        possible: true,
      };
    }
    const seconds = secondsPerRound();
    const how = kept ? "goes on from the last checkpoint" : "trains again from round 0, as no checkpoint was kept";
    const cost = seconds === null
      ? ""
      : ` About ${duration(seconds * (kept ? wanted - done : wanted))}, as fast as it was so far.`;
    return {
      word: `Continue to ${integer(wanted)} rounds`,
      text: `A new experiment takes over rounds 0 to ${
        integer(done)
      } and ${how}. Its results are those of one submitted with ${
        integer(wanted)
      } rounds; this one stays as it is.${cost}`,
      possible: true,
    };
  }

  function render() {
    const experiment = current();
    open.hidden = experiment.state !== "finished";
    if (open.hidden) show(false);
    const { word, text, possible = false } = effect(input().valueAsNumber, experiment);
    setText(one("#extend-submit"), word);
    setText(one("#extend-effect"), text);
    /** @type {HTMLButtonElement} */ (one("#extend-submit")).disabled = !possible;
  }

  /** @param {boolean} wanted */
  function show(wanted) {
    form.hidden = !wanted;
    open.setAttribute("aria-expanded", String(wanted));
  }

  /** @param {string} error */
  function tell(error) {
    one("#extend-error").hidden = !error;
    setText(one("#extend-error"), error);
  }

  open.addEventListener("click", () => {
    const { rounds, next_round } = current();
    if (!input().value) input().value = String(next_round <= rounds ? rounds : 2 * rounds);
    render();
    show(Boolean(form.hidden));
    if (!form.hidden) input().focus();
  });
  form.addEventListener("input", () => {
    key = newKey();
    tell("");
    render();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    show(false);
    open.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const { id } = await working(api.extend(current().id, input().valueAsNumber, key));
      location.assign(`/experiments/${id}`);
    } catch (error) {
      tell(problemsIn(error).map((problem) => problem.message).join("; "));
    }
  });
  return render;
}
