// Keeps an open page up to date without a reload: asks every two seconds whether it has changed, and if so puts
// the new content into place. What is focused, typed, opened or selected stays. A tab that nobody sees asks nothing.
// How long ago something was is counted here: no page is made for that alone.
"use strict";

const EVERY = 1900, SLOWEST = 30000, SPREAD = 200; // milliseconds
const STEPS = [ // as in extender/api/units.py
  [120, 1, "s"], [600, 60, "m", 1, "s"], [10800, 60, "m"], [28800, 3600, "h", 60, "m"], [172800, 3600, "h"],
  [691200, 86400, "d", 3600, "h"], [63072000, 86400, "d"], [252288000, 31536000, "y", 86400, "d"], [Infinity, 31536000, "y"],
];
let state = document.getElementById("main").dataset.state, pause = EVERY;
let ahead = 0; // milliseconds, of the server's clock

// What somebody chooses or types stays; other forms are new, as the button that resumes what is held by now.
const isUsed = (form) => form.contains(document.activeElement) || [...form.elements].some(
  (it) => it instanceof HTMLSelectElement || (it instanceof HTMLInputElement && it.value !== it.defaultValue),
);

const kept = {
  morphStyle: "innerHTML",
  ignoreActiveValue: true,
  callbacks: {
    beforeNodeMorphed: (old) => !(old instanceof HTMLFormElement && isUsed(old)),
    beforeAttributeUpdated: (name, node) => !(name === "open" && node instanceof HTMLDetailsElement),
    beforeNodeRemoved: (node) => !(node instanceof HTMLElement && node.classList.contains("copy")),
  },
};

function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const id of ["main", "live"]) {
    const now = document.getElementById(id), then = page.getElementById(id);
    if (now && then) Idiomorph.morph(now, then.innerHTML, kept);
  }
  state = page.getElementById("main").dataset.state;
  offerCopies();
}

function rounded(seconds) {
  const [, unit, letter, second, small] = STEPS.find(([below]) => seconds < below);
  const rest = second ? Math.floor((seconds % unit) / second) : 0;
  return `${Math.floor(seconds / unit)}${letter}${rest ? rest + small : ""}`;
}

function count() {
  for (const it of document.querySelectorAll("time.since, time.until")) {
    const passed = (Date.now() + ahead - Date.parse(it.dateTime)) * (it.className === "since" ? 1 : -1);
    const told = rounded(Math.max(0, Math.floor(passed / 1000)));
    if (it.textContent !== told) it.textContent = told;
  }
}

function lost(sentence) {
  const line = document.getElementById("lost");
  if (line.textContent !== sentence) line.textContent = sentence;
}

async function look() {
  if (document.hidden) return document.addEventListener("visibilitychange", look, { once: true });
  try {
    const answer = await fetch(location.href, { headers: { "If-None-Match": `W/"${state}"` }, cache: "no-store" });
    if (answer.status === 401) return location.reload(); // to log in
    if (answer.status === 404) lost("This is gone, or not yours to see any more.");
    else if (answer.ok) show(await answer.text());
    else if (answer.status !== 304) throw new Error(answer.status);
    if (answer.ok || answer.status === 304) lost("");
    if (answer.headers.has("Date")) ahead = Date.parse(answer.headers.get("Date")) - Date.now();
    const seconds_to_next_change = Number(answer.headers.get("Muster-Again"));
    pause = seconds_to_next_change ? seconds_to_next_change * 1000 + Math.random() * SPREAD : EVERY;
  } catch {
    lost("Not up to date: the server does not answer. Trying seconds_to_next_change.");
    pause = Math.min(pause * 2, SLOWEST);
  }
  count();
  setTimeout(look, pause);
}

function offerCopies() {
  for (const block of document.querySelectorAll("pre")) {
    if (block.nextElementSibling?.classList.contains("copy")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.after(button);
  }
}

offerCopies();
setTimeout(look, EVERY);
