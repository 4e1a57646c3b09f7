// Who uses how much of what a policy permits. Pure.
import { numeric, text, type Row, type Value } from './values';

export interface Use {
    vhost: string;
    group: string;
    users: string;
    hosts: string;
    most: string; // connections of one user
    busiest: string; // the user with the most of them, and how many
    management: string;
    senders: string;
    receivers: string;
}

type Map_ = Record<string, Value>;

function map(value: Value | undefined): Map_ {
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

function length(value: Value | undefined): number {
    return Array.isArray(value) ? value.length : numeric(value);
}

/** The groups of all vhosts, with the present use of their users who are named; of "*" the busiest of all. */
export function uses(vhosts: readonly Row[], stats: readonly Row[]): Use[] {
    return vhosts.flatMap((vhost) => {
        const hostname = text(vhost['hostname']);
        const users = map(stats.find((each) => text(each['hostname']) === hostname)?.['perUserState']);
        return Object.entries(map(vhost['groups'])).map(([group, given]) => {
            const settings = map(given);
            const names = text(settings['users']).split(/[\s,]+/).filter((each) => each);
            const counted = Object.entries(users).filter(([user]) => names.includes(user) || names.includes('*')).map(([user, each]): [string, number] => [user, length(each)]);
            const busiest = counted.sort(([, a], [, b]) => b - a)[0];
            return {
                vhost: hostname,
                group,
                users: text(settings['users']),
                hosts: text(settings['remoteHosts']),
                most: text(settings['maxConnectionsPerUser'] ?? vhost['maxConnectionsPerUser']),
                busiest: busiest ? `${busiest[0]}: ${busiest[1]}` : '',
                management: text(settings['management']),
                senders: text(settings['maxSenders']),
                receivers: text(settings['maxReceivers']),
            };
        });
    });
}

/** A word of a shell's command line. */
export function quoted(word: string): string {
    return /^[\w.:/@=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
