// Keeps the page up to date: fetches it again every few seconds and replaces the
// sections that differ, but none that someone is using.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const every = 5000;
  let last = Date.now();
  const busy = (s) => s.contains(document.activeElement) || (getSelection().type === "Range" && s.contains(getSelection().anchorNode));
  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every * 2) });
      if (!answer.ok) throw new Error(answer.statusText);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      // A section that comes or goes changes the order: take the whole then.
      const ids = (d) => [...d.querySelectorAll("[data-live]")].map((s) => s.id).join();
      if (ids(next) !== ids(document)) {
        const main = document.querySelector("main");
        if (!busy(main)) main.replaceWith(next.querySelector("main"));
      } else {
        for (const old of document.querySelectorAll("[data-live]")) {
          const fresh = next.getElementById(old.id);
          if (old.innerHTML !== fresh.innerHTML && !busy(old)) old.replaceWith(fresh);
        }
      }
      last = Date.now();
      if (live.dataset.state !== "live") { live.dataset.state = "live"; live.textContent = "live"; }
    } catch {
      live.dataset.state = "lost";
      live.textContent = "no answer for " + Math.round((Date.now() - last) / 1000) + " s";
    }
  };
  live.dataset.state = "live";
  live.textContent = "live";
  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
})();
