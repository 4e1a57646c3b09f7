// What the charts show: values of attributes over time, kept while the page is open. The page's own state.
import { rate } from './rates';
import { Refused } from './refused';
import type { Session } from './session';
import { numeric, type Row } from './values';

export interface Wanted {
    type: string;
    identity: string;
    attribute: string;
    isRate: boolean; // a second's change of it, for counters
}

export interface Series extends Wanted {
    at: number[]; // s since 1970
    values: (number | null)[];
    error: string;
    isOver: boolean; // the router refused it: it is not asked for again
}

export const MOST_SERIES = 12;
export const MOST_POINTS = 1800; // an hour
export const PAUSE_MS = 2000;

export class Charts {
    readonly series: Series[] = [];
    private readonly before = new Map<Series, { at: number; value: number }>();

    add(wanted: Wanted): void {
        const isThere = this.series.some((each) => each.type === wanted.type && each.identity === wanted.identity && each.attribute === wanted.attribute && each.isRate === wanted.isRate);
        if (!isThere && this.series.length < MOST_SERIES) this.series.push({ ...wanted, at: [], values: [], error: '', isOver: false });
    }

    remove(series: Series): void {
        this.series.splice(this.series.indexOf(series), 1);
        this.before.delete(series);
    }

    clear(): void {
        this.series.length = 0;
        this.before.clear();
    }

    /** One more point of each, with one request an entity. */
    async sample(session: Session, now = Date.now()): Promise<void> {
        const entities = new Map<string, Series[]>();
        for (const each of this.series.filter(({ isOver }) => !isOver)) entities.set(`${each.type}\n${each.identity}`, [...(entities.get(`${each.type}\n${each.identity}`) ?? []), each]);
        await Promise.all([...entities.values()].map(async (group) => {
            const { type, identity } = group[0] as Series;
            try {
                const row = (await session.request('READ', { name: null, type, identity })).body as Row;
                for (const each of group) this.point(each, numeric(row[each.attribute]), now);
            } catch (error) {
                for (const each of group) {
                    each.error = error instanceof Error ? error.message : String(error);
                    each.isOver = error instanceof Refused;
                }
            }
        }));
    }

    private point(series: Series, value: number, now: number): void {
        const sample = { at: now, value };
        series.at.push(now / 1000);
        series.values.push(series.isRate ? rate(this.before.get(series), sample) : value);
        series.error = '';
        this.before.set(series, sample);
        if (series.at.length > MOST_POINTS) {
            series.at.shift();
            series.values.shift();
        }
    }
}

/** The points of several series on one axis of time. */
export function joined(series: readonly Series[]): (number | null)[][] {
    const times = [...new Set(series.flatMap(({ at }) => at))].sort((a, b) => a - b);
    const place = new Map(times.map((time, at) => [time, at]));
    return [times, ...series.map(({ at, values }) => {
        const made = new Array<number | null>(times.length).fill(null);
        at.forEach((time, index) => (made[place.get(time) as number] = values[index] ?? null));
        return made;
    })];
}
