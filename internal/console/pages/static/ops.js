// What a page does better with a script: it refreshes, it picks all rows at once, it shows times as people want them.
// Every page works without it.
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
    if (fresh && !now.contains(document.activeElement)) { now.replaceWith(fresh); retime(); }
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

// Times are in UTC, in the person's own zone, or as how long ago: as was chosen last.
const units = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
function ago(at) {
  const seconds = (at - Date.now()) / 1000;
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) || units[units.length - 1];
  return relative.format(Math.trunc(seconds / size), unit);
}
function retime() {
  const as = localStorage.getItem("times") || "UTC";
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.title ||= time.textContent;
    const at = new Date(time.dateTime);
    time.textContent = as === "local" ? at.toLocaleString() : as === "relative" ? ago(at) : time.title;
  }
}
const chooser = document.createElement("label");
chooser.textContent = "Times ";
const choice = document.createElement("select");
for (const as of ["UTC", "local", "relative"]) choice.append(new Option(as, as, false, as === (localStorage.getItem("times") || "UTC")));
choice.addEventListener("change", () => { localStorage.setItem("times", choice.value); retime(); });
chooser.append(choice);
document.querySelector(".foot").append(chooser);
retime();
