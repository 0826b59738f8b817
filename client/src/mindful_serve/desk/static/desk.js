"use strict";

// Elements with data-key are used by that key, wherever nothing is typed into.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = event.target.closest("input, textarea, select");
  if (field && event.key === "Enter" && !event.shiftKey && "sends" in field.dataset) {
    event.preventDefault();
    field.form.requestSubmit();
  } else if (field && event.key === "Escape") {
    field.blur();
  } else if (!field) {
    const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!found) return;
    event.preventDefault();
    if (found.matches("input, textarea")) found.focus();
    else found.click();
  }
});

// A message that is being answered leaves its field, and a new conversation gets its address.
document.addEventListener("htmx:after:sse:connection", () => {
  document.querySelector("#message").value = "";
});
document.addEventListener("htmx:after:sse:message", () => {
  const address = `/?session=${document.querySelector("#session").value}`;
  if (location.pathname + location.search !== address) history.replaceState(null, "", address);
  document.querySelector("#composer").scrollIntoView({ block: "nearest" });
});

for (const details of document.querySelectorAll("[data-wide]")) details.open = matchMedia("(min-width: 60rem)").matches;
document.querySelector("#turns > :last-child")?.scrollIntoView({ block: "nearest" });
