"use strict";
// Replaces what the page shows every few seconds; scroll position and selection stay.
const EVERY = 5000;

async function refresh() {
  if (document.hidden || !getSelection().isCollapsed) return;
  const trouble = document.getElementById("trouble");
  try {
    const answer = await fetch(location.href, {
      cache: "no-store",
      signal: AbortSignal.timeout(EVERY - 500),
    });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(next.querySelector("main"));
    trouble.textContent = "";
  } catch (error) {
    trouble.textContent = `The scaler does not answer (${error.message}). This page shows the past.`;
  }
}

setInterval(refresh, EVERY);
