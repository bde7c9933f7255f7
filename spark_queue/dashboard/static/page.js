"use strict";
// The server renders everything. This script only swaps the parts of a page that are marked as live, when the server says
// that something is new, and sends a form when its slider or choice was changed. Without it pages load again by themselves.

const live = document.getElementById("live");
let reading = false;
let pointer = null;

function say(text, state) {
  if (live) {
    live.textContent = text;
    live.className = "live " + state;
  }
}

// Anything that takes longer than this is told of, in milliseconds.
const SLOW = 300;

async function read(address) {
  const slow = setTimeout(() => say("loading …", "waits"), SLOW);
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    if (new URL(answer.url).pathname === "/login") {
      location.reload();
      return null;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    label(fresh);
    say("live", "on");
    return fresh;
  } catch (failure) {
    say("offline", "off");
    return null;
  } finally {
    clearTimeout(slow);
  }
}

// On small screens rows of tables are cards: each cell says which column it is of.
function label(root) {
  for (const row of root.querySelectorAll("tbody tr")) {
    const heads = row.closest("table").querySelectorAll("thead th");
    [...row.cells].forEach((cell, index) => {
      if (heads[index] && cell.colSpan === 1) { cell.dataset.label = heads[index].textContent.trim(); }
    });
  }
}

function put(part, next) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const place = active?.getAttribute("href"), command = active?.matches("input.command") ? active : null;
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const opened = [...part.querySelectorAll("details")].map((each) => each.open);
  part.replaceChildren(...next.childNodes);
  part.toggleAttribute("data-live", next.hasAttribute("data-live"));
  part.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
  part.querySelectorAll("details").forEach((each, index) => { each.open = opened[index] || each.open; });
  if (place) {
    const again = [...part.querySelectorAll("a")].find((each) => each.getAttribute("href") === place);
    if (again) { again.focus({ preventScroll: true }); }
  }
  if (command) {
    // A command that somebody is about to copy stays chosen.
    const again = [...part.querySelectorAll("input.command")].find((each) => each.value === command.value);
    if (again) { again.focus({ preventScroll: true }); again.setSelectionRange(command.selectionStart, command.selectionEnd); }
  }
  tell();
}

async function swap() {
  const parts = document.querySelectorAll("[data-live]");
  if (reading || parts.length === 0 || document.hidden) {
    return;
  }
  reading = true;
  const address = location.href;
  const fresh = await read(address);
  reading = false;
  for (const part of fresh && location.href === address ? parts : []) {
    const next = fresh.getElementById(part.id);
    const active = document.activeElement;
    // A text that somebody has chosen is about to be copied; a command stays chosen, see put.
    const chosen = getSelection();
    const isChosen = part.contains(chosen.anchorNode) && chosen.toString() !== "";
    const isUsed = !active?.matches("input.command") && (isChosen || (part.contains(active) && active.matches("input, select, textarea")));
    const opened = [...part.querySelectorAll("details")].map((each) => each.open);
    if (next) { next.querySelectorAll("details").forEach((each, index) => { each.open = opened[index] || each.open; }); }
    if (next && !isUsed && part.hasAttribute("data-live") && next.innerHTML !== part.innerHTML) { put(part, next); }
  }
}

// Shows another address without leaving the page, so that whoever chose it keeps the place.
let wanted = "";
async function visit(address) {
  if (wanted === address) {
    return;
  }
  wanted = address;
  const fresh = await read(address);
  if (wanted !== address) {
    return;
  }
  wanted = "";
  if (!fresh) {
    return;
  }
  history.replaceState(null, "", address);
  for (const part of document.querySelectorAll("[data-part], [data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next) { put(part, next); }
  }
}

label(document);
addEventListener("beforeunload", () => setTimeout(() => say("loading …", "waits"), SLOW));

if (live && document.querySelector("[data-live], [data-part]")) {
  const source = new EventSource("/events");
  source.onmessage = swap;
  source.onerror = () => {
    say("offline", "off");
    // Refused for good: most often the session has ended, and then the page leads to the login.
    if (source.readyState === EventSource.CLOSED) { swap(); }
  };
}

for (const form of document.querySelectorAll("form[data-sends]")) {
  const send = (event) => {
    event.preventDefault();
    visit("?" + new URLSearchParams(new FormData(form)));
  };
  form.addEventListener("change", send);
  form.addEventListener("submit", send);
}

const written = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "medium", timeZone: "UTC" });

for (const slider of document.querySelectorAll("input[type=range][data-told]")) {
  const told = document.getElementById(slider.dataset.told);
  slider.addEventListener("input", () => {
    const isNow = Number(slider.value) + Number(slider.step) > Number(slider.max);
    told.textContent = isNow ? "now" : written.format(Number(slider.value) * 1000) + " UTC";
    slider.setAttribute("aria-valuetext", told.textContent);
  });
}

// The values of a chart under the pointer; a click leads to that moment.
function pointed() {
  const svg = pointer && document.elementFromPoint(pointer.clientX, pointer.clientY)?.closest("svg[data-start]");
  if (!svg) { return null; }
  const box = svg.getBoundingClientRect();
  const [left, width] = [Number(svg.dataset.left), svg.viewBox.baseVal.width];
  const share = Math.min(1, Math.max(0, ((pointer.clientX - box.left) / box.width * width - left) / (width - left - 8)));
  const [start, end] = [Number(svg.dataset.start), Number(svg.dataset.end)];
  return { svg, share, ms: start + share * (end - start) };
}

function tell() {
  const found = pointed();
  if (!found) { return; }
  const values = [...found.svg.querySelectorAll("path[data-values]")].map((path) => {
    const known = path.dataset.values.split(" ");
    const value = known[Math.min(known.length - 1, Math.round(found.share * (known.length - 1)))];
    return path.dataset.label + " " + (value === "-" ? "–" : value);
  });
  found.svg.closest("figure").querySelector("output").textContent = values.join(", ") + " · " + written.format(found.ms) + " UTC";
}

addEventListener("pointermove", (event) => { pointer = event; tell(); });
addEventListener("click", (event) => {
  pointer = event;
  const found = pointed();
  if (found) {
    const address = new URL(location.href);
    address.searchParams.set("at", String(Math.round(found.ms / 1000)));
    location.assign(address);
  }
});
