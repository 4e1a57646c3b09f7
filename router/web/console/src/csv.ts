// Rows as CSV (RFC 4180) for a spreadsheet.
import { text, type Row } from './values';

/** Attack: a container id such as =HYPERLINK(...), which a spreadsheet computes. An apostrophe makes it text. */
export function cell(value: string): string {
    const safe = /^[\s]*[=+\-@\t\r\uFF1D\uFF0B\uFF0D\uFF20]/.test(value) && !/^-?\d+(\.\d+)?$/.test(value) ? `'${value}` : value;
    return /[",\r\n;\t]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(names: readonly string[], rows: readonly Row[]): string {
    const lines = [names.map(cell), ...rows.map((row) => names.map((name) => cell(text(row[name]))))];
    return `${lines.map((line) => line.join(',')).join('\r\n')}\r\n`;
}

export function download(name: string, content: string): void {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob(['\uFEFF', content], { type: 'text/csv;charset=utf-8' }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
