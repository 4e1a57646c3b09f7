import type { PageProps } from '../app';
export function PolicyPage(_: PageProps) { return <p>later</p>; }
