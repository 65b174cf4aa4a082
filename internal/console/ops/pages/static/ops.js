// What a page does better with a script: it refreshes, it picks all rows at once. Every page works
// without it.
"use strict";

// A part with data-refresh="<seconds>" and an id is replaced by the same part of the page as it is then.
// It waits while nobody looks, while the person is in it, and while refreshing is switched off.
const parts = document.querySelectorAll("[data-refresh][id]");
const off = () => sessionStorage.getItem("refresh") === "off";
for (const part of parts) {
  const every = Math.max(2, Number(part.dataset.refresh)) * 1000;
  setInterval(async () => {
    const now = document.getElementById(part.id);
    if (document.hidden || off() || !now || now.contains(document.activeElement)) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer || !answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById(part.id);
    if (fresh && !now.contains(document.activeElement)) now.replaceWith(fresh);
  }, every);
}
if (parts.length > 0) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  const name = () => { button.textContent = off() ? "Refresh by itself" : "Stop refreshing"; };
  button.addEventListener("click", () => { sessionStorage.setItem("refresh", off() ? "on" : "off"); name(); });
  name();
  document.querySelector(".foot").append(button);
}

// A checkbox with data-all="<name>" picks or drops all boxes of that name.
for (const all of document.querySelectorAll("input[data-all]")) {
  all.addEventListener("change", () => {
    for (const box of document.getElementsByName(all.dataset.all)) box.checked = all.checked;
  });
}

// A part with data-live shows rows as they come, over a stream, the newest first. The stream is closed
// while it is paused and while nobody looks, and goes on where it was.
const live = document.querySelector("[data-live]");
if (live && "EventSource" in window) {
  const rows = document.getElementById("live-rows"), state = document.getElementById("live-state"), pause = document.getElementById("live-pause");
  const most = 100;
  let source = null, last = "", paused = false, later = 0;
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const show = (row) => {
    const made = document.createElement("template");
    made.innerHTML = row.html;
    const fresh = made.content.firstElementChild;
    const old = [...rows.children].find((one) => one.dataset.record === row.record);
    if (old && old.contains(document.activeElement)) { old.replaceWith(fresh); fresh.querySelector("a").focus(); return; }
    if (old) old.remove();
    rows.prepend(fresh);
  };
  const open = () => {
    if (source || paused || document.hidden) return;
    const address = new URL(live.dataset.live, location.href);
    if (last) address.searchParams.set("after", last);
    source = new EventSource(address);
    say("Connecting.");
    source.addEventListener("open", () => say("Live."));
    source.addEventListener("lines", (event) => {
      const look = JSON.parse(event.data);
      last = event.lastEventId || last;
      document.getElementById("live-none")?.remove();
      for (const row of look.rows) show(row);
      while (rows.children.length > most && !rows.lastElementChild.contains(document.activeElement)) rows.lastElementChild.remove();
      say(look.skipped ? "Live. More comes in than is shown here: narrow it down, or see the events." : "Live.");
    });
    source.addEventListener("problem", (event) => say("The database does not answer: " + (JSON.parse(event.data).detail || "") + " It is asked again."));
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) { say("The connection is lost. It is made again."); return; }
      close();
      say("There is no stream: too many look at once, or you are not signed in any more. It is tried again in 30 seconds.");
      later = setTimeout(open, 30000);
    });
  };
  const close = () => { clearTimeout(later); if (source) source.close(); source = null; };
  pause.hidden = false;
  document.getElementById("live-refresh").hidden = true;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) { close(); say("Paused. What comes meanwhile is shown when you go on."); } else open();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  open();
}
