// The globals of Node that rhea uses. Imported before rhea.
import { Buffer } from 'buffer';

const nextTick = (work: (...given: unknown[]) => void, ...given: unknown[]): void => queueMicrotask(() => work(...given));
Object.assign(globalThis, { Buffer, process: { nextTick, env: {}, version: '', cwd: () => '' } });
