// AMQP values as rhea decodes them, made into plain ones. Everything a peer chose stays text.

export type Value = null | boolean | number | bigint | string | Value[] | { [key: string]: Value };
export type Row = Record<string, Value>;

/** The integer of eight bytes: rhea leaves those as bytes that a number cannot hold exactly. */
function integer(bytes: Uint8Array): bigint {
    return new DataView(bytes.buffer, bytes.byteOffset, 8).getBigInt64(0);
}

export function plain(value: unknown): Value {
    if (value === null || value === undefined) return null;
    if (typeof value === 'boolean' || typeof value === 'number' || typeof value === 'string' || typeof value === 'bigint') return value;
    if (value instanceof Date) return value.toISOString();
    if (value instanceof Uint8Array) return value.length === 8 ? integer(value) : Array.from(value, (each) => each.toString(16).padStart(2, '0')).join('');
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value === 'object') {
        // A typed value of rhea's, such as a ulong, has its value inside.
        if ('type' in value && 'value' in value && typeof value.type === 'object') return plain(value.value);
        // Without a prototype: a peer may call a key __proto__.
        const made = Object.create(null) as Record<string, Value>;
        for (const [key, each] of Object.entries(value)) made[key] = plain(each);
        return made;
    }
    return String(value);
}

export function text(value: Value | undefined): string {
    if (value === null || value === undefined) return '';
    if (typeof value === 'object') return JSON.stringify(value, (_, each: unknown) => (typeof each === 'bigint' ? each.toString() : each));
    if (typeof value === 'boolean') return value ? 'yes' : 'no';
    return String(value);
}

/** 0 for what is no number. */
export function numeric(value: Value | undefined): number {
    if (typeof value === 'number') return value;
    return typeof value === 'bigint' ? Number(value) : 0;
}

export function isNumeric(value: Value | undefined): boolean {
    return typeof value === 'number' || typeof value === 'bigint';
}

const GROUPED = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export function figure(value: number): string {
    return GROUPED.format(value);
}

export function bytes(value: number): string {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let at = 0;
    while (value >= 1024 && at < units.length - 1) {
        value /= 1024;
        at += 1;
    }
    return `${figure(value)} ${units[at]}`;
}

export function duration(seconds: number): string {
    const days = Math.floor(seconds / 86400);
    const clock = [Math.floor((seconds % 86400) / 3600), Math.floor((seconds % 3600) / 60), Math.floor(seconds % 60)];
    const shown = clock.map((each) => String(each).padStart(2, '0')).join(':');
    return days > 0 ? `${days} d ${shown}` : shown;
}
