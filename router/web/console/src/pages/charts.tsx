import type { PageProps } from '../app';
export function ChartsPage(_: PageProps) { return <p>later</p>; }
export function clearCharts(): void {}
