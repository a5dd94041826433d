// Follows Airflow's theme, refreshes what changed, and opens Airflow's own pages outside its frame. Without it the pages
// are whole, and stay as they were loaded.
"use strict";

const root = document.documentElement;
const outer = (() => {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null; // a frame of another site
  }
})();

if (outer) {
  const theirs = outer.document.documentElement;
  const follow = () => {
    if (theirs.classList.contains("dark")) root.dataset.theme = "dark";
    else if (theirs.classList.contains("light")) root.dataset.theme = "light";
    else delete root.dataset.theme;
  };
  follow();
  const watching = new MutationObserver(follow);
  watching.observe(theirs, { attributes: true, attributeFilter: ["class"] });
  window.addEventListener("pagehide", () => watching.disconnect());
  // The frame may not navigate the window around it; a link of that window's own document may.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[target=_top]");
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const theirLink = outer.document.createElement("a");
    theirLink.href = link.href;
    outer.document.body.append(theirLink);
    theirLink.click();
    theirLink.remove();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const main = document.getElementById("main");
  const fresh = document.getElementById("fresh");
  const pause = document.getElementById("pause");
  let seconds = Number(main.dataset.refresh);
  const shown = new Map();
  const parts = (from) => [...from.querySelectorAll("[data-part]")];
  for (const part of parts(main)) shown.set(part.dataset.part, part.outerHTML);
  let timer = 0;
  let asking = null;
  let isPaused = false;
  let lost = "";

  const clock = (at) => at.toISOString().slice(11, 19);
  const say = (text, isBad) => {
    if (fresh.textContent === text) return;
    fresh.textContent = text;
    fresh.className = isBad ? "lost" : "";
  };
  const next = () => {
    clearTimeout(timer);
    if (!isPaused && !document.hidden) timer = setTimeout(refresh, seconds * 1000);
  };

  // What has the focus, what is folded out and what is scrolled stays so.
  const put = (old, now) => {
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
    const scrolled = [...old.querySelectorAll(".wide[id]")].map((each) => [each.id, each.scrollLeft]);
    old.replaceWith(now);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left] of scrolled) {
      const found = document.getElementById(id);
      if (found) found.scrollLeft = left;
    }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  const show = (text) => {
    const found = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!found) throw new Error("no page");
    seconds = Number(found.dataset.refresh);
    const mine = parts(main).map((part) => part.dataset.part);
    const theirs = parts(found);
    if (mine.join() !== theirs.map((part) => part.dataset.part).join()) {
      main.replaceChildren(...found.childNodes);
    } else {
      for (const part of theirs) {
        const text = part.outerHTML;
        if (shown.get(part.dataset.part) === text) continue;
        put(main.querySelector(`[data-part="${part.dataset.part}"]`), document.adoptNode(part));
        shown.set(part.dataset.part, text);
      }
      return;
    }
    shown.clear();
    for (const part of parts(main)) shown.set(part.dataset.part, part.outerHTML);
  };

  const refresh = async () => {
    if (asking || document.hidden || isPaused) return;
    const url = new URL(location.href);
    url.searchParams.set("part", "1");
    url.hash = "";
    asking = new AbortController();
    const patience = setTimeout(() => asking.abort(), 15000);
    main.classList.add("loading");
    try {
      const answer = await fetch(url, { signal: asking.signal, headers: { Accept: "text/html" }, redirect: "manual" });
      if (answer.status === 401 || answer.type === "opaqueredirect") {
        isPaused = true;
        say("Your login has ended. Reload to log in again.", true);
        return;
      }
      show(await answer.text());
      lost = "";
      say(`Updated ${clock(new Date())}`);
    } catch {
      lost = lost || clock(new Date());
      say(`The server has not answered since ${lost}. What you see is from before.`, true);
    } finally {
      clearTimeout(patience);
      asking = null;
      main.classList.remove("loading");
      next();
    }
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    say(isPaused ? "Paused" : "");
    if (isPaused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  next();
});
