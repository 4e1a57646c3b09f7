import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { isNumeric, numeric, text, type Row, type Value } from '../values';

export interface Column {
    name: string;
    label?: string;
    /** What stands in the cell; without it the value as text. */
    shown?: (row: Row) => ComponentChildren;
}

export interface Sort {
    name: string;
    isDown: boolean;
}

function compared(a: Value | undefined, b: Value | undefined): number {
    if (isNumeric(a) && isNumeric(b)) return numeric(a) - numeric(b);
    return text(a).localeCompare(text(b), 'en', { numeric: true });
}

export function sorted(rows: readonly Row[], sort: Sort | null): Row[] {
    if (!sort) return [...rows];
    const way = sort.isDown ? -1 : 1;
    return [...rows].sort((a, b) => way * compared(a[sort.name], b[sort.name]));
}

export function matching(rows: readonly Row[], filter: string): Row[] {
    const wanted = filter.trim().toLowerCase();
    return wanted ? rows.filter((row) => Object.values(row).some((each) => text(each).toLowerCase().includes(wanted))) : [...rows];
}

const LONGEST = 200; // characters of a cell: a peer chooses names of any length

export function clipped(given: string): string {
    return given.length > LONGEST ? `${given.slice(0, LONGEST)}…` : given;
}

/** open: a row's first cell is a button for it. */
export function Table({ caption, columns, rows, open }: { caption: string; columns: Column[]; rows: readonly Row[]; open?: (row: Row) => void }) {
    const [sort, setSort] = useState<Sort | null>(null);
    const shown = useMemo(() => sorted(rows, sort), [rows, sort]);
    if (rows.length === 0) return <p class="none">{caption}: none.</p>;
    return (
        <div class="scrolls" role="region" aria-label={caption} tabIndex={0}>
            <table>
                <caption class="hidden">{caption}</caption>
                <thead>
                    <tr>
                        {columns.map(({ name, label }) => (
                            <th key={name} scope="col" class={isNumeric(rows[0]?.[name]) ? 'number' : undefined} aria-sort={sort?.name !== name ? 'none' : sort.isDown ? 'descending' : 'ascending'}>
                                <button type="button" class="plain" onClick={() => setSort({ name, isDown: sort?.name === name && !sort.isDown })}>
                                    {label ?? name}
                                    <span aria-hidden="true">{sort?.name !== name ? '' : sort.isDown ? ' ▼' : ' ▲'}</span>
                                </button>
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {shown.map((row, at) => (
                        <tr key={text(row['identity']) || at}>
                            {columns.map((column, first) => {
                                const content = column.shown ? column.shown(row) : clipped(text(row[column.name]));
                                return (
                                    <td key={column.name} class={isNumeric(row[column.name]) ? 'number' : undefined}>
                                        {first === 0 && open ? <button type="button" class="plain open" onClick={() => open(row)}>{content || '(no name)'}</button> : content}
                                    </td>
                                );
                            })}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}
