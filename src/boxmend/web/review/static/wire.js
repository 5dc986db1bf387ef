"use strict";

/* Talk with the server: it is the only one that writes, and tells what other windows said. Verdicts
   go out one after the other in the order in which they were given; none is dropped. */

const wireOf = (told, failed) => {
  const EVERY = 2000;  // milliseconds between questions for news
  const AGAIN = 1500;  // milliseconds until a verdict that did not get through is sent again
  let seen = 0;  // lines of verdicts that this window knows
  let waiting = [];  // verdicts that are not written yet
  let sending = false;
  let timer = 0;

  async function get(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw Object.assign(new Error(await answer.text()), { isAnswer: true });
    return answer.json();
  }

  function take(news) {
    seen = news.seen;
    told(news);
  }

  async function flush() {
    if (sending || !waiting.length) return;
    sending = true;
    const batch = waiting;
    try {
      const answer = await fetch("verdicts", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ seen, verdicts: batch.flat() }),
      });
      if (!answer.ok) throw Object.assign(new Error(await answer.text()), { isRefused: answer.status < 500 });
      waiting = waiting.slice(batch.length);
      failed("");
      take(await answer.json());
    } catch (error) {
      if (error.isRefused) {  // it will not be taken later, either
        waiting = waiting.slice(batch.length);
        failed(`Not saved: ${error.message}`, batch.flat());
      } else {
        failed(`Not saved yet (${error.message}). Is the server still running? Trying again.`);
        setTimeout(flush, AGAIN);
        sending = false;
        return;
      }
    }
    sending = false;
    flush();  // what was said meanwhile
  }

  /** Give verdicts to the server: those of one call are written by one write. */
  function send(verdicts) {
    waiting = [...waiting, verdicts];
    flush();
  }

  async function ask() {
    clearTimeout(timer);
    timer = 0;
    if (!document.hidden && !sending && !waiting.length) {
      try {
        const news = await get(`news-${seen}`);
        if (!sending && news.seen >= seen) take(news);
        if (!waiting.length) failed("");  // else it is told by whoever sends that
      } catch (error) {
        if (!waiting.length) failed(error.isAnswer ? error.message : "The server does not answer. What was decided until now is saved.");
      }
    }
    timer = setTimeout(ask, EVERY);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  addEventListener("beforeunload", (event) => { if (waiting.length) event.preventDefault(); });

  return { get, send, ask, pending: () => waiting.flat() };
};
