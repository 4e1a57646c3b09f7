import type { PageProps } from '../app';
export function TopologyPage(_: PageProps) { return <p>later</p>; }
