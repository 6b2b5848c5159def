// Elements. Texts from traffic become text nodes only, so they cannot be markup.

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found as T;
}

/** Replaces invisible characters and those that change the direction of text. */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

export function setText(element: Node, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  text?: string,
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export interface Column {
  name: string;
  /** Numbers are aligned to the right. */
  number?: boolean;
  /** An explanation for the pointer. */
  title?: string;
  /** A long text, which has lines of its own on a narrow screen. */
  long?: boolean;
}

export interface Cell {
  text: string;
  /** A longer text for the pointer, or a class for the colour of the text. */
  title?: string;
  level?: "good" | "warn" | "bad";
  /** A text whose lines are kept, such as a rule in TOML. */
  code?: boolean;
}

/**
 * Shows rows in a table that stays in the document, and changes only the texts that differ. The position of a reader or of
 * the focus is kept, and a screen reader is not disturbed.
 */
export function showTable(
  id: string,
  caption: string,
  columns: Column[],
  rows: (string | Cell)[][],
  empty: string,
): void {
  const holder = byId(id);
  let table = holder.querySelector("table");
  let note = holder.querySelector<HTMLElement>("p.empty");
  if (!table || !note) {
    const wide = make("div", { class: "wide", role: "region", tabindex: "0" });
    // On a narrow screen each row becomes a card.
    table = make("table", columns.length > 3 || columns.some((column) => column.long) ? { class: "cards" } : {});
    table.createCaption();
    const head = table.createTHead().insertRow();
    for (const column of columns) {
      const cell = make("th", { scope: "col" }, column.name);
      if (column.title) cell.title = column.title;
      if (column.number) cell.className = "n";
      head.append(cell);
    }
    table.append(make("tbody"));
    wide.append(table);
    note = make("p", { class: "empty" });
    holder.append(wide, note);
  }
  const wide = table.parentElement!;
  wide.setAttribute("aria-label", caption);
  setText(table.caption!, caption);
  wide.hidden = rows.length === 0;
  note.hidden = rows.length > 0;
  setText(note, empty);
  const body = table.tBodies[0]!;
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    row.forEach((value, nth) => {
      const cell = typeof value === "string" ? { text: value } : value;
      let element = line.cells[nth] as HTMLTableCellElement | undefined;
      if (!element) {
        element = nth === 0 ? make("th", { scope: "row" }) : make("td");
        element.dataset["label"] = columns[nth]?.name ?? "";
        line.append(element);
      }
      const classes = [columns[nth]?.number && "n", columns[nth]?.long && "long", cell.code && "code", cell.level];
      const name = classes.filter(Boolean).join(" ");
      if (element.className !== name) element.className = name;
      const title = cell.title ?? "";
      if (element.title !== title) element.title = title;
      setText(element, cell.code ? cell.text.split("\n").map(visible).join("\n") : visible(cell.text));
    });
  });
}
