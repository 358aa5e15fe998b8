// Keeps an open page up to date without a reload: asks every two seconds whether it has changed, and if so puts
// the new content into place. What is focused, typed, opened or selected stays. A tab that nobody sees asks nothing.
"use strict";

const EVERY = 1900, SLOWEST = 30000; // milliseconds
let etag = "", pause = EVERY;

const kept = {
  morphStyle: "innerHTML",
  ignoreActiveValue: true,
  callbacks: {
    beforeNodeMorphed: (old) => !(old instanceof HTMLFormElement), // what somebody is choosing
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
  offerCopies();
}

function lost(sentence) {
  const line = document.getElementById("lost");
  if (line.textContent !== sentence) line.textContent = sentence;
}

async function look() {
  if (document.hidden) return document.addEventListener("visibilitychange", look, { once: true });
  try {
    const answer = await fetch(location.href, { headers: { "If-None-Match": etag }, cache: "no-store" });
    if (answer.status === 401) return location.reload(); // to log in
    if (answer.status === 404) lost("This is gone, or not yours to see any more.");
    else if (answer.ok) {
      etag = answer.headers.get("ETag") || "";
      show(await answer.text());
    } else if (answer.status !== 304) throw new Error(answer.status);
    if (answer.ok || answer.status === 304) lost("");
    pause = EVERY;
  } catch {
    lost("Not up to date: the server does not answer. Trying again.");
    pause = Math.min(pause * 2, SLOWEST);
  }
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
