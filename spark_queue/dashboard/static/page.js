"use strict";
// The server renders everything. This script only swaps the parts of a page that are marked as live, when the server says
// that something is new, and sends a form when its slider or choice was changed. Without it pages load again by themselves.

const live = document.getElementById("live");
let reading = false;

function say(text, state) {
  if (live) {
    live.textContent = text;
    live.className = "live " + state;
  }
}

async function swap() {
  const parts = document.querySelectorAll("[data-live]");
  if (reading || parts.length === 0 || document.hidden) {
    return;
  }
  reading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.url.endsWith("/login")) {
      location.reload();
      return;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const next = fresh.getElementById(part.id);
      const active = document.activeElement;
      const isUsed = part.contains(active) && (active.matches("input, select, textarea") || getSelection().toString() !== "");
      if (next && !isUsed && next.innerHTML !== part.innerHTML) {
        const place = part.contains(active) ? active.getAttribute("href") : null;
        const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
        part.replaceChildren(...next.childNodes);
        part.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
        if (place) {
          const again = [...part.querySelectorAll("a")].find((each) => each.getAttribute("href") === place);
          if (again) { again.focus({ preventScroll: true }); }
        }
      }
    }
    say("live", "on");
  } catch (failure) {
    say("offline", "off");
  } finally {
    reading = false;
  }
}

if (live && document.querySelector("[data-live]")) {
  const source = new EventSource("/events");
  source.onmessage = swap;
  source.onerror = () => {
    say("offline", "off");
    // Refused for good: most often the session has ended, and then the page leads to the login.
    if (source.readyState === EventSource.CLOSED) { swap(); }
  };
}

for (const form of document.querySelectorAll("form[data-sends]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

for (const slider of document.querySelectorAll("input[type=range][data-told]")) {
  const told = document.getElementById(slider.dataset.told);
  slider.addEventListener("input", () => {
    const at = new Date(Number(slider.value) * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
    told.textContent = Number(slider.value) + Number(slider.step) > Number(slider.max) ? "now" : at;
  });
}
