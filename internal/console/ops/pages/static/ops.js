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
