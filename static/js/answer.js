// An answer of the server: read when the question changes, and every few seconds while rounds are added.

/** @template Question, Value */
export class Answer {
  /**
   * @param {(question: Question) => Promise<Value>} ask @param {() => void} arrived
   * @param {{pause: number, settle?: number}} waits in milliseconds: between readings while rounds are added, and
   *   until a changed question is asked, because the next letter may follow
   */
  constructor(ask, arrived, { pause, settle = 0 }) {
    this.ask = ask;
    this.pause = pause;
    this.settle = settle;
    this.arrived = arrived;
    this.question = "";
    this.rounds = "";
    this.timer = 0;
    this.asked = 0;
    this.taken = 0;
    /** The question that `value` or `error` answers. */
    this.answers = "";
    /** @type {Value|null} */
    this.value = null;
    this.error = "";
  }

  /**
   * @param {Question} question @param {{next_round: number}[]} experiments
   * @returns {boolean} whether it is answered, perhaps without the newest rounds
   */
  need(question, experiments) {
    const [text, rounds] = [JSON.stringify(question), experiments.map((item) => item.next_round).join(",")];
    if (text !== this.question) {
      const wait = this.question ? this.settle : 0;
      this.question = text;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.read(), wait);
    } else if (rounds !== this.rounds) {
      // a timer that waits is left alone: rounds may come faster than it runs out
      this.timer ||= window.setTimeout(() => this.read(), this.pause);
    }
    this.rounds = rounds;
    return this.answers === text;
  }

  async read() {
    this.timer = 0;
    const [question, number] = [this.question, this.asked += 1];
    const [value, error] = await this.ask(JSON.parse(question)).then(
      (found) => [found, ""],
      (problem) => [null, problem.message],
    );
    if (question !== this.question || number < this.taken) return;
    [this.answers, this.taken, this.value, this.error] = [question, number, value, error];
    this.arrived();
  }
}
