// Does something again and again, one at a time: however often it is asked for meanwhile, it is done once more.

export class Latest {
  #action;
  #pauseMs;
  #isWanted = false;
  isRunning = false;
  #signal;

  /** `action` is done at once where it is not being done, and begins at most once in `pauseMs`, until the signal is given. */
  constructor(action, pauseMs, signal) {
    this.#action = action;
    this.#pauseMs = pauseMs;
    this.#signal = signal;
  }

  async run() {
    this.#isWanted = true;
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      while (this.#isWanted && !this.#signal.aborted) {
        this.#isWanted = false;
        const next = performance.now() + this.#pauseMs;
        await this.#action();
        // Whoever asks during the pause is answered at its end.
        await this.#pause(next - performance.now());
      }
    } finally {
      this.isRunning = false;
    }
  }

  #pause(ms) {
    return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
  }
}
