// What the browser is asked of a page. Each function answers with values that are JSON.

// shown reports whether a person sees an element. Text for screen readers alone is not seen: it is clipped
// to a pixel.
function shown(element) {
  for (let at = element; at && at !== document.body; at = at.parentElement) {
    const box = at.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1) return false;
  }
  return element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
}

// named says which element it is.
function named(element) {
  const text = (element.innerText || element.value || "").trim().slice(0, 40);
  return element.tagName.toLowerCase() + (element.id ? "#" + element.id : "") + [...element.classList].map((c) => "." + c).join("") + (text ? " " + JSON.stringify(text) : "");
}

// faultsOfSize lists what is wider than the tab, cut off, too small to read or, on a phone, to touch.
function faultsOfSize(phone) {
  const faults = [], root = document.documentElement, width = root.clientWidth;
  if (root.scrollWidth > width) faults.push(`the page is ${root.scrollWidth} wide in a tab of ${width}`);
  for (const element of document.body.querySelectorAll("*")) {
    if (!shown(element)) continue;
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    const skip = element.matches(":not(:focus).skip"); // waits outside for the focus
    if (!skip && (box.right > width + 1 || box.left < -1)) faults.push(`${named(element)} reaches from ${Math.round(box.left)} to ${Math.round(box.right)}`);
    if (element instanceof HTMLElement && style.display !== "inline" && !element.matches("input, select, textarea")) {
      const hides = (overflow) => overflow !== "visible";
      if (hides(style.overflowX) && element.scrollWidth > element.clientWidth + 1) faults.push(`${named(element)} is cut off at its side`);
      const scrolls = /auto|scroll/.test(style.overflowY) && element.tabIndex >= 0; // by its own keys
      if (hides(style.overflowY) && !scrolls && element.scrollHeight > element.clientHeight + 1) faults.push(`${named(element)} is cut off at its end`);
    }
    const texts = [...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
    const size = parseFloat(style.fontSize) * (element instanceof SVGElement && element.ownerSVGElement ? element.ownerSVGElement.getScreenCTM().a : 1);
    if (texts && size < 11.5) faults.push(`${named(element)} is written ${size.toFixed(1)} px tall`);
    const control = element.matches("button, select, textarea, input:not([type=checkbox], [type=radio])");
    if (phone && control && box.height < 43.5) faults.push(`${named(element)} is ${Math.round(box.height)} px high, too low for a thumb`);
    const ticked = element.matches("input[type=checkbox], input[type=radio]");
    const area = ticked && element.labels.length ? element.labels[0].getBoundingClientRect() : box;
    if (phone && ticked && Math.max(area.height, box.height) < 43.5) faults.push(`the label of ${named(element)} ${element.name} is ${Math.round(area.height)} px high, too low for a thumb`);
  }
  return [...new Set(faults)];
}

// unfold opens whatever is folded, such as the rest of the menu.
function unfold() {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  return true;
}

// faultsByAxe lists what axe-core finds: of all of its rules, or of the one that is named.
async function faultsByAxe(rule) {
  const found = await axe.run(document, { resultTypes: ["violations"], ...(rule && { runOnly: { type: "rule", values: [rule] } }) });
  return found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.target.join(" ")} ${n.failureSummary.replace(/\s+/g, " ")}`));
}

// faultsOfMotion lists what moves where a person has asked for no motion.
function faultsOfMotion() {
  const faults = document.getAnimations().map((a) => `${named(a.effect.target)} is animated`);
  for (const element of document.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    const moves = (times) => times.split(",").some((t) => parseFloat(t) > 0.011);
    if (moves(style.transitionDuration)) faults.push(`${named(element)} has a transition`);
    if (style.animationName !== "none" && moves(style.animationDuration)) faults.push(`${named(element)} has an animation`);
    if (style.scrollBehavior === "smooth") faults.push(`${named(element)} scrolls smoothly`);
  }
  return [...new Set(faults)];
}

// controls are what a keyboard has to reach, in the order of the page. Radio buttons of one name are one.
function controls() {
  const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]")].filter(
    (e) => !e.disabled && e.tabIndex >= 0 && e.checkVisibility({ visibilityProperty: true }),
  );
  const groups = new Map();
  return all.filter((e) => {
    if (e.type !== "radio") return true;
    const group = groups.get(e.name);
    const first = all.find((o) => o.type === "radio" && o.name === e.name && o.checked) || e;
    if (!group) groups.set(e.name, first);
    return groups.get(e.name) === e;
  });
}

// holdStill stops what refreshes a page by itself.
function holdStill() {
  sessionStorage.setItem("refresh", "off");
  return true;
}

// countControls is how many stops of Tab the page has.
function countControls() {
  return controls().length;
}

// nextStop says at which control the focus is after a Tab from the one before, and what is wrong with that. A field for
// a date has several stops of its own.
function nextStop(before) {
  const all = controls(), at = document.activeElement, stop = all.indexOf(at), faults = [];
  const inside = stop === before && at.matches("input[type=date], input[type=datetime-local], input[type=time]");
  if (stop !== before + 1 && !inside) return { stop, faults: [`Tab leads from ${before < 0 ? "the top" : named(all[before])} to ${named(at)} in place of ${named(all[before + 1])}`] };
  const style = getComputedStyle(at), box = at.getBoundingClientRect();
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (!outlined && !inside) faults.push(`${named(at)} has the focus, and nobody sees it`);
  if (box.bottom < 0 || box.top > innerHeight || box.right < 0 || box.left > innerWidth) faults.push(`${named(at)} has the focus outside of the tab`);
  if (at.tabIndex > 0) faults.push(`${named(at)} has a tabindex of its own`);
  return { stop, faults };
}

// nameOf is how a screen reader calls a control.
function nameOf(element) {
  const label = element.getAttribute("aria-label");
  const by = element.getAttribute("aria-labelledby");
  const texts = label ? [label] : by ? by.split(/\s+/).map((id) => document.getElementById(id)?.textContent || "") : [];
  if (!texts.length && element.labels) texts.push(...[...element.labels].map((l) => l.textContent));
  if (!texts.length) texts.push(element.textContent);
  return texts.join(" ").replace(/\s+/g, " ").trim();
}

// focusOn moves the focus to the first control of a role whose name a pattern finds: a link, a button, a field; or
// to a link by the beginning of its address.
function focusOn(role, pattern) {
  const kinds = { link: "a[href]", address: "a[href]", button: "button, summary", field: "input, select, textarea" };
  const has = role === "address" ? (e) => decodeURI(e.getAttribute("href")).startsWith(pattern) : (e) => new RegExp(pattern, "i").test(nameOf(e));
  const all = [...document.querySelectorAll("main " + kinds[role].replaceAll(", ", ", main ")), ...document.querySelectorAll(kinds[role])];
  const found = all.find((e) => !e.disabled && e.type !== "hidden" && e.checkVisibility({ visibilityProperty: true }) && has(e));
  found?.focus();
  return !!found && document.activeElement === found;
}

// selectAll marks what the field with the focus holds, so that typing replaces it.
function selectAll() {
  document.activeElement.select?.();
  return true;
}
