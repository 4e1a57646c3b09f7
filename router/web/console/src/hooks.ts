import { useEffect, useRef, useState } from 'preact/hooks';
import { Refused } from './refused';

export interface Polled<Found> {
    found: Found | null;
    error: string;
    again(): void;
}

export const POLL_MS = 3000;

/**
 * Asks once, and again `pauseMs` after each answer while the page is shown; 0: only once. The second look comes soon,
 * since rates need two. What the router refuses is not asked again by itself: each time would be a denial in its log.
 *
 * `key` names what is asked: with another one everything begins anew.
 */
export function usePolled<Found>(key: string, ask: () => Promise<Found>, pauseMs = POLL_MS): Polled<Found> {
    const [state, setState] = useState<{ key: string; found: Found | null; error: string }>({ key, found: null, error: '' });
    const [turn, setTurn] = useState(0);
    const latest = useRef(ask);
    latest.current = ask;
    useEffect(() => {
        let isOver = false;
        let isFirst = true;
        let isRefused = false;
        let timer: ReturnType<typeof setTimeout> | undefined;
        const look = async (): Promise<void> => {
            if (!document.hidden || isFirst) {
                try {
                    const found = await latest.current();
                    if (!isOver) setState({ key, found, error: '' });
                } catch (error) {
                    isRefused = error instanceof Refused;
                    if (!isOver) setState((before) => ({ key, found: before.key === key ? before.found : null, error: error instanceof Error ? error.message : String(error) }));
                }
            }
            if (!isOver && !isRefused && pauseMs > 0) timer = setTimeout(() => void look(), isFirst ? Math.min(pauseMs, POLL_MS) : pauseMs);
            isFirst = false;
        };
        void look();
        return () => {
            isOver = true;
            clearTimeout(timer);
        };
    }, [key, turn, pauseMs]);
    const isOld = state.key !== key;
    return { found: isOld ? null : state.found, error: isOld ? '' : state.error, again: () => setTurn((each) => each + 1) };
}

/** The part of the address behind the #, as names and parameters. */
export function useRoute(): { page: string; parts: string[]; parameters: URLSearchParams } {
    const [hash, setHash] = useState(location.hash);
    useEffect(() => {
        const changed = (): void => setHash(location.hash);
        addEventListener('hashchange', changed);
        return () => removeEventListener('hashchange', changed);
    }, []);
    return route(hash);
}

export function route(hash: string): { page: string; parts: string[]; parameters: URLSearchParams } {
    const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
    const parts = path.split('/').map((each) => {
        try {
            return decodeURIComponent(each);
        } catch {
            return each;
        }
    });
    return { page: parts[0] || 'overview', parts: parts.slice(1), parameters: new URLSearchParams(query) };
}

export function link(page: string, parts: readonly string[] = [], parameters: Record<string, string> = {}): string {
    const query = new URLSearchParams(parameters).toString();
    return `#/${[page, ...parts].map(encodeURIComponent).join('/')}${query ? `?${query}` : ''}`;
}

/** What this browser remembers. It may have been switched off. */
export const memory = {
    get(name: string): string | null {
        try {
            return localStorage.getItem(`palisade.${name}`);
        } catch {
            return null;
        }
    },
    set(name: string, value: string): void {
        try {
            localStorage.setItem(`palisade.${name}`, value);
        } catch {
            // Without it nothing is remembered.
        }
    },
};
