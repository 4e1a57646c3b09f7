// Counters over time.

export interface Sample {
    at: number; // ms
    value: number;
}

/** A second's change of a counter; null where there is none yet. A counter that fell began anew. */
export function rate(before: Sample | undefined, now: Sample): number | null {
    if (before === undefined || now.at <= before.at) return null;
    return Math.max(0, (now.value - before.value) / ((now.at - before.at) / 1000));
}

/** The rates of named counters, from one look to the next. */
export class Rates {
    private before = new Map<string, Sample>();

    /** The rate of each, by the name; those that are new have none. What was not looked at is forgotten. */
    look(values: ReadonlyMap<string, number>, at: number): Map<string, number> {
        const found = new Map<string, number>();
        const next = new Map<string, Sample>();
        for (const [name, value] of values) {
            const sample = { at, value };
            const made = rate(this.before.get(name), sample);
            if (made !== null) found.set(name, made);
            next.set(name, sample);
        }
        this.before = next;
        return found;
    }
}
