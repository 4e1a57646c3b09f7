"use strict";
// Rows whose text has all the words stay. Texts are compared, never made into markup.
const filter = document.getElementById("filter");
const count = document.getElementById("shown");
const rows = Array.from(document.querySelectorAll("tbody tr"), (row) => [row, row.textContent.toLowerCase()]);
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of rows) {
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = words.length ? shown + " of " + rows.length + " rows" : "";
});
