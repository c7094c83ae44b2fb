// Tables of many rows: a click on a heading sorts, the field above keeps the rows that have all of its words.
for (const table of document.querySelectorAll("table.large")) {
  const [head, ...rows] = table.rows;
  const text = (row, column) => row.cells[column].textContent.trim();
  const number = (value) => parseFloat(value.replace("\u2212", "-"));
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "filter rows, e.g. uniform better";
  field.setAttribute("aria-label", "filter rows");
  const count = document.createElement("span");
  count.className = "soft";
  const keep = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    for (const row of rows) {
      const said = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => said.includes(word));
      kept += !row.hidden;
    }
    count.textContent = ` ${kept} of ${rows.length} rows; a heading sorts them`;
  };
  field.addEventListener("input", keep);
  const above = document.createElement("p");
  above.append(field, count);
  table.parentElement.before(above);
  keep();
  [...head.cells].forEach((cell, column) => {
    let down = false;
    const sort = () => {
      const numeric = rows.some((row) => !isNaN(number(text(row, column)))) && column > 0;
      const value = (row) => (numeric ? number(text(row, column)) : text(row, column));
      const sign = down ? -1 : 1; // rows without a number are the last ones in both directions
      const order = (a, b) => (numeric ? isNaN(a) - isNaN(b) || sign * (a - b) : sign * a.localeCompare(b));
      rows.sort((a, b) => order(value(a), value(b)));
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      down = !down;
      head.parentElement.append(...rows);
    };
    cell.tabIndex = 0;
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
