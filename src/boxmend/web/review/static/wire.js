"use strict";

/* Requests to the server, which alone writes verdicts and knows those of other windows. Verdicts are
   sent in their order, and sent again until the server has written them. */

const wireOf = (showNews, showError) => {
  const NEWS_INTERVAL_MS = 2000;
  const RETRY_DELAY_MS = 1500;
  let seen = 0;  // number of verdicts that this window knows
  let waiting = [];  // verdicts that are not written yet
  let sending = false;
  let timer = 0;

  async function get(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw Object.assign(new Error(await answer.text()), { isAnswer: true });
    return answer.json();
  }

  function accept(news) {
    seen = news.seen;
    showNews(news);
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
      showError("");
      accept(await answer.json());
    } catch (error) {
      if (error.isRefused) {  // sending it again would not help
        waiting = waiting.slice(batch.length);
        showError(`Not saved: ${error.message}`, batch.flat());
      } else {
        showError(`Not saved yet (${error.message}). Is the server still running? Trying again.`);
        setTimeout(flush, RETRY_DELAY_MS);
        sending = false;
        return;
      }
    }
    sending = false;
    flush();  // verdicts that came in meanwhile
  }

  /** Send verdicts to the server, which writes those of one call in one write. */
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
        if (!sending && news.seen >= seen) accept(news);
        if (!waiting.length) showError("");  // otherwise `flush` shows its own errors
      } catch (error) {
        if (!waiting.length) showError(error.isAnswer ? error.message : "The server does not answer. Your verdicts so far are saved.");
      }
    }
    timer = setTimeout(ask, NEWS_INTERVAL_MS);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  addEventListener("beforeunload", (event) => { if (waiting.length) event.preventDefault(); });

  return { get, send, ask, pending: () => waiting.flat() };
};
